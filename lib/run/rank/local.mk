lib_libpddevice_a_SOURCES += \
	lib/run/rank/begin.c \
	lib/run/rank/folder.c \
	lib/run/rank/internal.h \
	lib/run/rank/messages.c \
	lib/run/rank/rank.c lib/run/rank/rank.h \
	lib/run/rank/saver.c lib/run/rank/saver.h \
	lib/run/rank/setup.c \
	lib/run/rank/share.c
