lib_libpd_a_SOURCES += lib/topology/topology.c lib/topology/topology.h lib/topology/kinds.c \
	lib/topology/allreduce.c lib/topology/allreduce.h \
	lib/topology/contract.c lib/topology/contract.h \
	lib/topology/direct.c lib/topology/direct.h \
	lib/topology/dense.c lib/topology/doubling.c lib/topology/hierarchical.c \
	lib/topology/reducer.c lib/topology/reducer.h lib/topology/reducer_kind.def \
	lib/topology/picture.c lib/topology/picture.h lib/topology/price.c lib/topology/price.h lib/topology/ring.c lib/topology/ring.h \
	lib/topology/script.c lib/topology/script.h \
	lib/topology/seat.c lib/topology/seat.h lib/topology/traffic.c lib/topology/traffic.h
