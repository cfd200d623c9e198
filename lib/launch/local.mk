lib_libpd_a_SOURCES += lib/launch/channel.c lib/launch/channel.h \
	lib/launch/heartbeat.c lib/launch/heartbeat.h \
	lib/launch/launcher.h lib/launch/fork.c \
	lib/launch/process.c lib/launch/process.h
