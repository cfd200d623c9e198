# With NCCL the transport, else one that says that there is none.
NCCL_TRANSPORT = lib/transport/nccl/abort.c lib/transport/nccl/comm.c \
	lib/transport/nccl/connection.c \
	lib/transport/nccl/connection.h lib/transport/nccl/group.c lib/transport/nccl/loopback.c lib/transport/nccl/nccl.c
lib_libpddevice_a_SOURCES += lib/transport/nccl/nccl.h lib/transport/nccl/provider.c
if HAVE_NCCL
lib_libpddevice_a_SOURCES += $(NCCL_TRANSPORT)
lib/transport/nccl/libpddevice_a-%.$(OBJEXT): AM_CPPFLAGS += $(NCCL_CPPFLAGS) $(CUDA_CPPFLAGS)
PD_DEVICE_LIBS += $(CUDA_LDFLAGS) $(NCCL_LDFLAGS) $(NCCL_LIBS)
else
lib_libpddevice_a_SOURCES += lib/transport/nccl/absent.c
endif
