lib_libpd_a_SOURCES += \
	lib/memory/again.c lib/memory/again.h \
	lib/memory/arenas.c lib/memory/arenas.def lib/memory/arenas.h \
	lib/memory/buckets.c lib/memory/buckets.h \
	lib/memory/memory.c lib/memory/memory.h \
	lib/memory/scratch.c lib/memory/scratch.h \
	lib/memory/segments.c lib/memory/segments.h \
	lib/memory/shared_gradients.c lib/memory/shared_gradients.h
