lib_libpd_a_SOURCES += \
	lib/doors/onnx/array.c lib/doors/onnx/array.h lib/doors/onnx/attention.c \
	lib/doors/onnx/attention.h lib/doors/onnx/attribute.h lib/doors/onnx/document.c \
	lib/doors/onnx/fold.c lib/doors/onnx/fold.def lib/doors/onnx/fold.h lib/doors/onnx/fold_graph.c \
	lib/doors/onnx/fold_move.c lib/doors/onnx/fold_number.c lib/doors/onnx/fold_rows.h \
	lib/doors/onnx/graph.c lib/doors/onnx/graph.h lib/doors/onnx/image.c lib/doors/onnx/image.h \
	lib/doors/onnx/layers.c lib/doors/onnx/mask.c lib/doors/onnx/number.c lib/doors/onnx/number.h lib/doors/onnx/onnx.h \
	lib/doors/onnx/op_adaptive.c lib/doors/onnx/op_axes.c lib/doors/onnx/op_channels.c \
	lib/doors/onnx/op_image.c lib/doors/onnx/op_linear.c lib/doors/onnx/op_pair.c \
	lib/doors/onnx/op_rows.c lib/doors/onnx/op_upsample.c lib/doors/onnx/pattern.c \
	lib/doors/onnx/place.c lib/doors/onnx/place.h lib/doors/onnx/relative.c lib/doors/onnx/rope.c \
	lib/doors/onnx/rows.def lib/doors/onnx/shape.c lib/doors/onnx/shape.h lib/doors/onnx/translate.c \
	lib/doors/onnx/translate.h lib/doors/onnx/view.c lib/doors/onnx/view.h

include lib/doors/onnx/proto/local.mk
