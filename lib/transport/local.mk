lib_libpd_a_SOURCES += lib/transport/transport.h lib/transport/sleep.c \
	lib/transport/transfers.c lib/transport/transfers.h
lib_libpddevice_a_SOURCES += lib/transport/address.c lib/transport/address.h lib/transport/list.c \
	lib/transport/joint.c lib/transport/joint.h \
	lib/transport/provider.def lib/transport/provider.h lib/transport/routes.c lib/transport/routes.h \
	lib/transport/staged.c

include lib/transport/ucx/local.mk
include lib/transport/tcp/local.mk
include lib/transport/sim/local.mk
include lib/transport/nccl/local.mk
