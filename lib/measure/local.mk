lib_libpddevice_a_SOURCES += lib/measure/layers.c lib/measure/layers.h \
	lib/measure/bench.c lib/measure/bench.h \
	lib/measure/beside.c lib/measure/beside.h \
	lib/measure/apart.c lib/measure/apart.h \
	lib/measure/operation.c lib/measure/operation.h lib/measure/turns.c lib/measure/turns.h \
	lib/measure/end.c lib/measure/end.h lib/measure/link.c lib/measure/link.h \
	lib/measure/flows.c lib/measure/flows.h lib/measure/machine.c lib/measure/machine.h \
	lib/measure/machine_levels.c lib/measure/machine_draw.c
lib_libpd_a_SOURCES += lib/measure/figures.c lib/measure/figures.h lib/measure/kineto.c lib/measure/kineto.h \
	lib/measure/kineto_file.c lib/measure/kineto_file.h
