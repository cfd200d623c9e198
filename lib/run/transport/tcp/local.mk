lib_libpddevice_a_SOURCES += lib/run/transport/tcp/end.c lib/run/transport/tcp/in.c lib/run/transport/tcp/out.c \
	lib/run/transport/tcp/table.c lib/run/transport/tcp/tcp.c lib/run/transport/tcp/tcp.h
