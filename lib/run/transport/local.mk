lib_libpddevice_a_SOURCES += lib/run/transport/address.c lib/run/transport/address.h lib/run/transport/list.c \
	lib/run/transport/joint.c lib/run/transport/joint.h \
	lib/run/transport/provider.def lib/run/transport/provider.h lib/run/transport/routes.c lib/run/transport/routes.h \
	lib/run/transport/staged.c

include lib/run/transport/ucx/local.mk
include lib/run/transport/tcp/local.mk
include lib/run/transport/nccl/local.mk
