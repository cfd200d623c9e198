lib_libpddevice_a_SOURCES += \
	lib/run/measure/bench.c lib/run/measure/bench.h \
	lib/run/measure/companions.c lib/run/measure/companions.h \
	lib/run/measure/copies.c \
	lib/run/measure/flows.c lib/run/measure/flows.h \
	lib/run/measure/in_child.c lib/run/measure/in_child.h \
	lib/run/measure/kinds.c lib/run/measure/kinds.h \
	lib/run/measure/launch.c \
	lib/run/measure/layers.c lib/run/measure/layers.h \
	lib/run/measure/link.c lib/run/measure/link.h \
	lib/run/measure/link_end.c lib/run/measure/link_end.h \
	lib/run/measure/machine.c lib/run/measure/machine.h \
	lib/run/measure/machine_levels.c \
	lib/run/measure/machine_print.c \
	lib/run/measure/operation_cost.c lib/run/measure/operation_cost.h \
	lib/run/measure/ranks.c lib/run/measure/ranks.h \
	lib/run/measure/shared_processor.c lib/run/measure/shared_processor.h
