lib_libpd_a_SOURCES += lib/transport/sim/sim.h lib/transport/sim/sim.c \
	lib/transport/sim/link.h lib/transport/sim/link.c
