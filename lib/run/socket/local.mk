lib_libpddevice_a_SOURCES += \
	lib/run/socket/door.c lib/run/socket/door.h \
	lib/run/socket/socket.c lib/run/socket/socket.h
