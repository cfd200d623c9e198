lib_libpddevice_a_SOURCES +=
