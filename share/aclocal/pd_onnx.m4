# PD_ONNX
# Finds the compiler of protobuf-c, PROTOC_C, and ONNX's definition of its files, ONNX_PROTO.
AC_DEFUN([PD_ONNX], [
	AC_ARG_VAR([ONNX_PROTO], [onnx.proto, which defines ONNX files])
	AC_ARG_VAR([PROTOC_C], [the compiler of protobuf-c])
	AC_PATH_PROG([PROTOC_C], [protoc-c], [no])
	AS_IF([test "x$PROTOC_C" = xno],
		[AC_MSG_ERROR([protoc-c not found (Debian package protobuf-c-compiler)])])
	AC_MSG_CHECKING([for onnx.proto])
	AS_IF([test -z "$ONNX_PROTO"],
		[for pd_dir in /usr/include /usr/local/include; do
			AS_IF([test -r "$pd_dir/onnx/onnx.proto"],
				[ONNX_PROTO=$pd_dir/onnx/onnx.proto; break])
		done])
	AS_IF([test -r "$ONNX_PROTO"], [AC_MSG_RESULT([$ONNX_PROTO])],
		[AC_MSG_ERROR([no onnx.proto (Debian package libonnx-dev, or ONNX_PROTO=FILE)])])
])
