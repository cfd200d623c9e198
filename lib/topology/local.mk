lib_libpd_a_SOURCES += \
	lib/topology/contract.c lib/topology/contract.h \
	lib/topology/kinds.c \
	lib/topology/seat.c lib/topology/seat.h \
	lib/topology/topology.c lib/topology/topology.h
