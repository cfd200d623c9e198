lib_libpddevice_a_SOURCES += lib/transport/ucx/ucx.c \
	lib/transport/ucx/nameless.c lib/transport/ucx/nameless.h
