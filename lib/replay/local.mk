lib_libpd_a_SOURCES += lib/replay/replay.h lib/replay/replay.c
