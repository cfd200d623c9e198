lib_libpd_a_SOURCES += lib/transport/transport.h \
	lib/transport/address.c lib/transport/address.h \
	lib/transport/staged.c lib/transport/staged.h
lib_libpddevice_a_SOURCES += lib/transport/list.c \
	lib/transport/provider.h lib/transport/routes.c lib/transport/routes.h

include lib/transport/ucx/local.mk
include lib/transport/sim/local.mk
include lib/transport/nccl/local.mk
