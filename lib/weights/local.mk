lib_libpd_a_SOURCES += lib/weights/weights.c lib/weights/weights.h
