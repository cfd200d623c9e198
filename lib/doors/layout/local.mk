lib_libpd_a_SOURCES += \
	lib/doors/layout/blocks.c lib/doors/layout/blocks.h \
	lib/doors/layout/even.c lib/doors/layout/even.h \
	lib/doors/layout/layout_kind.def \
	lib/doors/layout/megatron.c lib/doors/layout/megatron.h \
	lib/doors/layout/read.c lib/doors/layout/read.h \
	lib/doors/layout/segments.c lib/doors/layout/segments.h \
	lib/doors/layout/write.c lib/doors/layout/write.h
