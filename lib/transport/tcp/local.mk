lib_libpddevice_a_SOURCES += lib/transport/tcp/end.c lib/transport/tcp/in.c lib/transport/tcp/out.c \
	lib/transport/tcp/table.c lib/transport/tcp/tcp.c lib/transport/tcp/tcp.h
