lib_libpd_a_SOURCES += lib/device/device.h
lib_libpddevice_a_SOURCES += lib/device/list.c

include lib/device/cpu/local.mk
include lib/device/sim/local.mk
