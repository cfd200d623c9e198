lib_libpddevice_a_SOURCES += lib/transport/ucx/ucx.c lib/transport/ucx/fabric.c lib/transport/ucx/fabric.h \
	lib/transport/ucx/transfer.c lib/transport/ucx/transfer.h \
	lib/transport/ucx/shm_memfd.c lib/transport/ucx/shm_memfd.h
