lib_libpd_a_SOURCES += \
	lib/doors/layout/blocks.c lib/doors/layout/blocks.h \
	lib/doors/layout/decoder.c lib/doors/layout/decoder.h \
	lib/doors/layout/deepspeed.c \
	lib/doors/layout/even.c lib/doors/layout/even.h \
	lib/doors/layout/galvatron.c \
	lib/doors/layout/layout_kind.def \
	lib/doors/layout/megatron.c lib/doors/layout/megatron.h \
	lib/doors/layout/megatron_arguments.c \
	lib/doors/layout/read.c lib/doors/layout/read.h \
	lib/doors/layout/segments.c lib/doors/layout/segments.h \
	lib/doors/layout/torchtitan.c lib/doors/layout/torchtitan.h \
	lib/doors/layout/write.c lib/doors/layout/write.h \
	lib/doors/layout/writer.c lib/doors/layout/writer.h
