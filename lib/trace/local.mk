lib_libpd_a_SOURCES += lib/trace/trace.h
