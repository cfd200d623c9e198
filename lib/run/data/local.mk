# the readers need zlib, so only programs that compute have them
lib_libpddevice_a_SOURCES += \
	lib/run/data/cifar.c \
	lib/run/data/format.h \
	lib/run/data/formats.c \
	lib/run/data/idx.c \
	lib/run/data/npy.c lib/run/data/npy.h \
	lib/run/data/npy_column.c \
	lib/run/data/npy_header.c \
	lib/run/data/npy_type.c \
	lib/run/data/npz.c \
	lib/run/data/source.c \
	lib/run/data/token_file.c lib/run/data/token_file.h \
	lib/run/data/tokens.c \
	lib/run/data/zip.c lib/run/data/zip.h
