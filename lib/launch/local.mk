lib_libpd_a_SOURCES += lib/launch/channel.c lib/launch/channel.h \
	lib/launch/process.c lib/launch/process.h
