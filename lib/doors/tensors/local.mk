lib_libpd_a_SOURCES += \
	lib/doors/tensors/export.c lib/doors/tensors/export.h \
	lib/doors/tensors/initial.c lib/doors/tensors/initial.h \
	lib/doors/tensors/initial_anew.c \
	lib/doors/tensors/initial_check.c \
	lib/doors/tensors/initial_found.h \
	lib/doors/tensors/tensors.c lib/doors/tensors/tensors.h \
	lib/doors/tensors/tensors_file.c \
	lib/doors/tensors/tensors_other.c
