lib_libpd_a_SOURCES += \
	lib/engine/transport/sim/link.c lib/engine/transport/sim/link.h \
	lib/engine/transport/sim/sim.c lib/engine/transport/sim/sim.h
