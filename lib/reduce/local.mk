lib_libpd_a_SOURCES += lib/reduce/dense.c lib/reduce/dense.h lib/reduce/direct.c lib/reduce/direct.h \
	lib/reduce/doubling.c \
	lib/reduce/hierarchical.c lib/reduce/nccl.c \
	lib/reduce/queue.c lib/reduce/queue.h lib/reduce/reduce.c lib/reduce/reduce.h \
	lib/reduce/ring.c lib/reduce/ring.h lib/reduce/script.c lib/reduce/script.h \
	lib/reduce/sparse.c lib/reduce/sparse.h
