lib_libpddevice_a_SOURCES += lib/socket/door.c lib/socket/door.h lib/socket/socket.c lib/socket/socket.h
