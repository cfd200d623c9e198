lib_libpd_a_SOURCES += \
	lib/checkpoint/checkpoint.h \
	lib/checkpoint/folder.c \
	lib/checkpoint/info.c lib/checkpoint/info.h \
	lib/checkpoint/open.c \
	lib/checkpoint/safetensors.c lib/checkpoint/safetensors.h \
	lib/checkpoint/safetensors_write.c
