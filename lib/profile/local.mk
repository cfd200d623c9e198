lib_libpd_a_SOURCES += lib/profile/profile.c lib/profile/profile.h
