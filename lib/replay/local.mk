lib_libpd_a_SOURCES += lib/replay/replay.h lib/replay/replay.c \
	lib/replay/whatif.h lib/replay/whatif.c \
	lib/replay/subject.h lib/replay/subject.c
