lib_libpddevice_a_SOURCES += lib/transport/ucx/ucx.c
