lib_libpddevice_a_SOURCES += \
	lib/device/cpu/batchnorm2d.c \
	lib/device/cpu/conv2d.c \
	lib/device/cpu/cpu.c lib/device/cpu/cpu.h \
	lib/device/cpu/dropout.c \
	lib/device/cpu/eltwise.c \
	lib/device/cpu/linear.c \
	lib/device/cpu/loss.c \
	lib/device/cpu/merge.c \
	lib/device/cpu/net.c \
	lib/device/cpu/onednn.c lib/device/cpu/onednn.h \
	lib/device/cpu/place.c \
	lib/device/cpu/pool2d.c \
	lib/device/cpu/run.c \
	lib/device/cpu/sgd.c \
	lib/device/cpu/stream.c \
	lib/device/cpu/via.c \
	lib/device/cpu/weighted.c
# oneDNN's threads are OpenMP's, and are counted with it
lib_libpddevice_a_CFLAGS = $(AM_CFLAGS) -fopenmp
PD_DEVICE_LIBS += -lgomp
