lib_libpd_a_SOURCES += \
	lib/model/begin.c \
	lib/model/document.c \
	lib/model/dtype.c lib/model/dtype.def lib/model/dtype.h \
	lib/model/graph.c lib/model/graph.h \
	lib/model/infer.h \
	lib/model/kind.c lib/model/kind.h \
	lib/model/layer.c lib/model/layer.h \
	lib/model/layer_kind.def \
	lib/model/model.c lib/model/model.h \
	lib/model/names.c \
	lib/model/normalize.c lib/model/normalize.h \
	lib/model/order.h \
	lib/model/outside.c lib/model/outside.h \
	lib/model/relative.c lib/model/relative.h \
	lib/model/same.c lib/model/same.h \
	lib/model/shape.c \
	lib/model/shape_axes.c \
	lib/model/shape_image.c \
	lib/model/shape_rows.c \
	lib/model/shape_sequences.c \
	lib/model/summary.c lib/model/summary.h \
	lib/model/winograd.h
