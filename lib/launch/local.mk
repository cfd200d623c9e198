lib_libpd_a_SOURCES += lib/launch/channel.c lib/launch/channel.h \
	lib/launch/pulse.c lib/launch/pulse.h \
	lib/launch/launcher.h lib/launch/fork.c \
	lib/launch/process.c lib/launch/process.h
