lib_libpd_a_SOURCES += \
	lib/checkpoint/checkpoint.h \
	lib/checkpoint/element.c lib/checkpoint/element.h \
	lib/checkpoint/folder.c \
	lib/checkpoint/hold.c lib/checkpoint/hold.h \
	lib/checkpoint/info.c lib/checkpoint/info.h \
	lib/checkpoint/lock.c lib/checkpoint/lock.h \
	lib/checkpoint/open.c \
	lib/checkpoint/safetensors.c lib/checkpoint/safetensors.h \
	lib/checkpoint/safetensors_write.c \
	lib/checkpoint/stage.c lib/checkpoint/stage.h \
	lib/checkpoint/transfer.c
