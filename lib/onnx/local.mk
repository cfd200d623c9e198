lib_libpd_a_SOURCES += \
	lib/onnx/file.c lib/onnx/graph.c lib/onnx/memory.h lib/onnx/onnx.h lib/onnx/scope.c lib/onnx/tensor.c
# protobuf-c writes these of ONNX's own definition.
nodist_lib_libpd_a_SOURCES = lib/onnx/onnx.pb-c.c lib/onnx/onnx.pb-c.h
BUILT_SOURCES += lib/onnx/onnx.pb-c.c lib/onnx/onnx.pb-c.h
CLEANFILES += lib/onnx/onnx.pb-c.c lib/onnx/onnx.pb-c.h
lib/onnx/onnx.pb-c.c: $(ONNX_PROTO)
	@$(MKDIR_P) lib/onnx
	$(AM_V_GEN)$(PROTOC_C) --proto_path="$$(dirname $(ONNX_PROTO))" --c_out=lib/onnx $(ONNX_PROTO)
lib/onnx/onnx.pb-c.h: lib/onnx/onnx.pb-c.c
lib/onnx/file.$(OBJEXT) lib/onnx/graph.$(OBJEXT) lib/onnx/scope.$(OBJEXT) lib/onnx/tensor.$(OBJEXT): \
	lib/onnx/onnx.pb-c.h
