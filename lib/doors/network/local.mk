lib_libpd_a_SOURCES += lib/doors/network/named.c lib/doors/network/named.h
