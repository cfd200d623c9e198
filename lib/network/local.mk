lib_libpd_a_SOURCES += \
	lib/network/bert.c \
	lib/network/builder.c lib/network/builder.h \
	lib/network/config.c lib/network/config.def lib/network/config.h \
	lib/network/config_name.c lib/network/config_name.def \
	lib/network/config_rule.c lib/network/config_rule.h \
	lib/network/family.c \
	lib/network/image.c \
	lib/network/llama.c \
	lib/network/megatron.c \
	lib/network/network.h lib/network/option.def \
	lib/network/recurrent.c \
	lib/network/transformer.c lib/network/transformer.h \
	lib/network/vit.c \
	lib/network/onnx.h \
	lib/network/onnx/array.c \
	lib/network/onnx/array.h \
	lib/network/onnx/attention.c \
	lib/network/onnx/attention.h \
	lib/network/onnx/attribute.h \
	lib/network/onnx/document.c \
	lib/network/onnx/fold.c \
	lib/network/onnx/fold.def \
	lib/network/onnx/fold.h \
	lib/network/onnx/fold_graph.c \
	lib/network/onnx/fold_move.c \
	lib/network/onnx/fold_number.c \
	lib/network/onnx/fold_rows.h \
	lib/network/onnx/graph.c \
	lib/network/onnx/graph.h \
	lib/network/onnx/image.c \
	lib/network/onnx/image.h \
	lib/network/onnx/layers.c \
	lib/network/onnx/mask.c \
	lib/network/onnx/number.c \
	lib/network/onnx/op_adaptive.c \
	lib/network/onnx/op_axes.c \
	lib/network/onnx/op_channels.c \
	lib/network/onnx/op_image.c \
	lib/network/onnx/op_linear.c \
	lib/network/onnx/op_pair.c \
	lib/network/onnx/op_rows.c \
	lib/network/onnx/op_upsample.c \
	lib/network/onnx/pattern.c \
	lib/network/onnx/place.c \
	lib/network/onnx/place.h \
	lib/network/onnx/relative.c \
	lib/network/onnx/rope.c \
	lib/network/onnx/rows.def \
	lib/network/onnx/shape.c \
	lib/network/onnx/shape.h \
	lib/network/onnx/translate.c \
	lib/network/onnx/translate.h \
	lib/network/onnx/view.c \
	lib/network/onnx/view.h
