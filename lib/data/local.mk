# the readers need zlib, so only programs that compute have them; the loader does not
lib_libpd_a_SOURCES += \
	lib/data/augment.c lib/data/augment.h \
	lib/data/dataset.c lib/data/dataset.h \
	lib/data/images.c lib/data/images.h \
	lib/data/loader.c lib/data/loader.h \
	lib/data/order.c lib/data/order.h \
	lib/data/samples.c lib/data/samples.h
lib_libpddevice_a_SOURCES += \
	lib/data/cifar.c \
	lib/data/format.h \
	lib/data/formats.c \
	lib/data/idx.c \
	lib/data/npy.c lib/data/npy.h \
	lib/data/npy_column.c \
	lib/data/npy_header.c \
	lib/data/npy_type.c \
	lib/data/npz.c \
	lib/data/source.c \
	lib/data/token_file.c lib/data/token_file.h \
	lib/data/tokens.c \
	lib/data/zip.c lib/data/zip.h
