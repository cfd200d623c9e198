# with the devices: it opens them, and the data
lib_libpddevice_a_SOURCES += lib/rank/begin.c lib/rank/folder.c lib/rank/internal.h lib/rank/messages.c \
	lib/rank/rank.c lib/rank/rank.h lib/rank/saver.c lib/rank/saver.h lib/rank/setup.c lib/rank/share.c
