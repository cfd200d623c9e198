lib_libpd_a_SOURCES += \
	lib/sums/allreduce.c lib/sums/allreduce.h \
	lib/sums/dense.c \
	lib/sums/direct.c lib/sums/direct.h \
	lib/sums/doubling.c \
	lib/sums/hierarchical.c \
	lib/sums/price.c lib/sums/price.h \
	lib/sums/reducer.c lib/sums/reducer.h \
	lib/sums/reducer_kind.def \
	lib/sums/ring.c lib/sums/ring.h \
	lib/sums/script.c lib/sums/script.h \
	lib/sums/traffic.c lib/sums/traffic.h
