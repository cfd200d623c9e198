lib_libpd_a_SOURCES += \
	lib/engine/device/chunks.h lib/engine/device/device.h lib/engine/device/global_norm.h \
	lib/engine/device/hyper.def lib/engine/device/mixed_sum.h lib/engine/device/optimizer.def \
	lib/engine/device/submit.h lib/engine/device/update.c lib/engine/device/update.h \
	lib/engine/device/work.h

include lib/engine/device/sim/local.mk
