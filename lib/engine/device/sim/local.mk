lib_libpd_a_SOURCES += \
	lib/engine/device/sim/device.c \
	lib/engine/device/sim/engine.c lib/engine/device/sim/engine.h \
	lib/engine/device/sim/share.c \
	lib/engine/device/sim/sim.c lib/engine/device/sim/sim.h
