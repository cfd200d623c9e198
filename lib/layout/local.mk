lib_libpd_a_SOURCES += lib/layout/blocks.c lib/layout/blocks.h lib/layout/layout_kind.def \
	lib/layout/megatron.c lib/layout/megatron.h lib/layout/read.c lib/layout/read.h \
	lib/layout/write.c lib/layout/write.h
