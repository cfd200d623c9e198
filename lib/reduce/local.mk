lib_libpd_a_SOURCES += lib/reduce/direct.c lib/reduce/direct.h lib/reduce/nccl.c lib/reduce/nccl.h \
	lib/reduce/queue.c lib/reduce/queue.h lib/reduce/reduce.c lib/reduce/reduce.h \
	lib/reduce/script.c lib/reduce/script.h lib/reduce/sparse.c lib/reduce/sparse.h
