lib_libpddevice_a_SOURCES += lib/transport/ucx/ucx.c \
	lib/transport/ucx/transfer.c lib/transport/ucx/transfer.h \
	lib/transport/ucx/nameless.c lib/transport/ucx/nameless.h
