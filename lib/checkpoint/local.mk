lib_libpd_a_SOURCES += \
	lib/checkpoint/checkpoint.h \
	lib/checkpoint/element.c lib/checkpoint/element.h \
	lib/checkpoint/export.c lib/checkpoint/export.h \
	lib/checkpoint/folder.c \
	lib/checkpoint/hold.c lib/checkpoint/hold.h \
	lib/checkpoint/info.c lib/checkpoint/info.h \
	lib/checkpoint/initial.c lib/checkpoint/initial.h \
	lib/checkpoint/initial_anew.c lib/checkpoint/initial_check.c lib/checkpoint/initial_found.h \
	lib/checkpoint/lock.c lib/checkpoint/lock.h \
	lib/checkpoint/open.c \
	lib/checkpoint/safetensors.c lib/checkpoint/safetensors.h \
	lib/checkpoint/safetensors_write.c \
	lib/checkpoint/stage.c lib/checkpoint/stage.h \
	lib/checkpoint/tensors.c lib/checkpoint/tensors.h \
	lib/checkpoint/tensors_file.c lib/checkpoint/tensors_other.c \
	lib/checkpoint/transfer.c
