lib_libpd_a_SOURCES += lib/device/sim/sim.h lib/device/sim/engine.h lib/device/sim/engine.c \
	lib/device/sim/device.c lib/device/sim/sim.c lib/device/sim/share.c
