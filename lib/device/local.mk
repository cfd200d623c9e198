lib_libpd_a_SOURCES += lib/device/update.c lib/device/update.h lib/device/optimizer.def lib/device/hyper.def \
	lib/device/chunks.h lib/device/global_norm.h lib/device/device.h lib/device/work.h lib/device/submit.h \
	lib/device/mixed_sum.h
lib_libpddevice_a_SOURCES += lib/device/list.c \
	lib/device/compiled_net.c lib/device/compiled_net.h lib/device/memory_layout.c \
	lib/device/resize.h lib/device/rotary.h \
	lib/device/curve.c lib/device/curve.h lib/device/curve.def \
	lib/device/queue.c lib/device/propagation.h lib/device/queue.h lib/device/rehearse.c lib/device/rehearse.h \
	lib/device/run.c

include lib/device/cpu/local.mk
include lib/device/sim/local.mk
include lib/device/cuda/local.mk
