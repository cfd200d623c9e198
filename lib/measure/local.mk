lib_libpddevice_a_SOURCES += lib/measure/layers.c lib/measure/layers.h \
	lib/measure/bench.c lib/measure/bench.h \
	lib/measure/beside.c lib/measure/beside.h \
	lib/measure/operation.c lib/measure/operation.h \
	lib/measure/end.c lib/measure/end.h lib/measure/link.c lib/measure/link.h
lib_libpd_a_SOURCES += lib/measure/figures.c lib/measure/figures.h
