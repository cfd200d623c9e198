lib_libpd_a_SOURCES += lib/trace/read.c lib/trace/trace.c lib/trace/trace.h
