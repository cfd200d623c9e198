lib_libpddevice_a_SOURCES += lib/run/transport/ucx/ucx.c lib/run/transport/ucx/fabric.c lib/run/transport/ucx/fabric.h \
	lib/run/transport/ucx/transfer.c lib/run/transport/ucx/transfer.h \
	lib/run/transport/ucx/shm_memfd.c lib/run/transport/ucx/shm_memfd.h
