lib_libpd_a_SOURCES += \
	lib/doors/onnx/proto/file.c lib/doors/onnx/proto/graph.c lib/doors/onnx/proto/memory.h lib/doors/onnx/proto/onnx.h lib/doors/onnx/proto/scope.c lib/doors/onnx/proto/tensor.c
# protobuf-c writes these of ONNX's own definition.
nodist_lib_libpd_a_SOURCES = lib/doors/onnx/proto/onnx.pb-c.c lib/doors/onnx/proto/onnx.pb-c.h
BUILT_SOURCES += lib/doors/onnx/proto/onnx.pb-c.c lib/doors/onnx/proto/onnx.pb-c.h
CLEANFILES += lib/doors/onnx/proto/onnx.pb-c.c lib/doors/onnx/proto/onnx.pb-c.h
lib/doors/onnx/proto/onnx.pb-c.c: $(ONNX_PROTO)
	@$(MKDIR_P) lib/doors/onnx/proto
	$(AM_V_GEN)$(PROTOC_C) --proto_path="$$(dirname $(ONNX_PROTO))" --c_out=lib/doors/onnx/proto $(ONNX_PROTO)
lib/doors/onnx/proto/onnx.pb-c.h: lib/doors/onnx/proto/onnx.pb-c.c
lib/doors/onnx/proto/file.$(OBJEXT) lib/doors/onnx/proto/graph.$(OBJEXT) lib/doors/onnx/proto/scope.$(OBJEXT) lib/doors/onnx/proto/tensor.$(OBJEXT): \
	lib/doors/onnx/proto/onnx.pb-c.h
