lib_libpd_a_SOURCES +=
