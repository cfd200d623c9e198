lib_libpd_a_SOURCES += \
	lib/engine/reduce/direct.c lib/engine/reduce/direct.h \
	lib/engine/reduce/nccl.c lib/engine/reduce/nccl.h \
	lib/engine/reduce/queue.c lib/engine/reduce/queue.h \
	lib/engine/reduce/reduce.c lib/engine/reduce/reduce.h \
	lib/engine/reduce/script.c lib/engine/reduce/script.h \
	lib/engine/reduce/sparse.c lib/engine/reduce/sparse.h
