lib_libpd_a_SOURCES += lib/measure/link.c lib/measure/link.h
