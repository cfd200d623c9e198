lib_libpd_a_SOURCES += \
	lib/engine/data/augment.c lib/engine/data/augment.h \
	lib/engine/data/dataset.c lib/engine/data/dataset.h \
	lib/engine/data/images.c lib/engine/data/images.h \
	lib/engine/data/loader.c lib/engine/data/loader.h \
	lib/engine/data/order.c lib/engine/data/order.h \
	lib/engine/data/samples.c lib/engine/data/samples.h
