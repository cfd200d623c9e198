lib_libpd_a_SOURCES += lib/topology/topology.h
