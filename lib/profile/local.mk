lib_libpd_a_SOURCES += lib/profile/profile.h
