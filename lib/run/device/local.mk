lib_libpddevice_a_SOURCES += lib/run/device/list.c \
	lib/run/device/compiled_net.c lib/run/device/compiled_net.h lib/run/device/memory_layout.c \
	lib/run/device/resize.h lib/run/device/rotary.h \
	lib/run/device/curve.c lib/run/device/curve.h lib/run/device/curve.def \
	lib/run/device/queue.c lib/run/device/propagation.h lib/run/device/queue.h lib/run/device/rehearse.c lib/run/device/rehearse.h \
	lib/run/device/run.c

include lib/run/device/cpu/local.mk
include lib/run/device/cuda/local.mk
