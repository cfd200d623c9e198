# With NCCL the transport, else one that says that there is none.
NCCL_TRANSPORT = lib/run/transport/nccl/abort.c lib/run/transport/nccl/comm.c \
	lib/run/transport/nccl/connection.c \
	lib/run/transport/nccl/connection.h lib/run/transport/nccl/group.c lib/run/transport/nccl/loopback.c lib/run/transport/nccl/nccl.c
lib_libpddevice_a_SOURCES += lib/run/transport/nccl/nccl.h lib/run/transport/nccl/provider.c
if HAVE_NCCL
lib_libpddevice_a_SOURCES += $(NCCL_TRANSPORT)
lib/run/transport/nccl/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
PD_DEVICE_LIBS += $(CUDA_LDFLAGS) $(NCCL_LDFLAGS) $(NCCL_LIBS)
else
lib_libpddevice_a_SOURCES += lib/run/transport/nccl/absent.c
endif
