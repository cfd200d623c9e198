lib_libpd_a_SOURCES += lib/transport/transport.h \
	lib/transport/collective.c lib/transport/collective.h \
	lib/transport/staged.c lib/transport/staged.h
lib_libpddevice_a_SOURCES += lib/transport/list.c

include lib/transport/ucx/local.mk
include lib/transport/sim/local.mk
