lib_libpddevice_a_SOURCES += \
	lib/measure/bench.c lib/measure/bench.h lib/measure/companions.c lib/measure/companions.h \
	lib/measure/copies.c lib/measure/flows.c lib/measure/flows.h \
	lib/measure/ranks.c lib/measure/ranks.h lib/measure/in_child.c lib/measure/in_child.h \
	lib/measure/kinds.c lib/measure/kinds.h lib/measure/launch.c \
	lib/measure/layers.c lib/measure/layers.h lib/measure/link.c lib/measure/link.h \
	lib/measure/link_end.c lib/measure/link_end.h lib/measure/machine.c lib/measure/machine.h \
	lib/measure/machine_draw.c lib/measure/machine_levels.c \
	lib/measure/operation_cost.c lib/measure/operation_cost.h \
	lib/measure/shared_processor.c lib/measure/shared_processor.h
lib_libpd_a_SOURCES += \
	lib/measure/kineto.c lib/measure/kineto.h lib/measure/kineto_event.def \
	lib/measure/kineto_file.c lib/measure/kineto_file.h lib/measure/kineto_finder.h \
	lib/measure/kineto_layers.c lib/measure/kineto_leaves.c lib/measure/kineto_leaves.h \
	lib/measure/kineto_modules.c lib/measure/kineto_modules.h lib/measure/kineto_node.def \
	lib/measure/kineto_ops.c lib/measure/kineto_ops.h \
	lib/measure/kineto_passes.c lib/measure/kineto_passes.h lib/measure/kineto_repeats.c \
	lib/measure/kineto_scan.c lib/measure/kineto_scan.h \
	lib/measure/kineto_trace.c lib/measure/kineto_trace.h \
	lib/measure/kineto_walk.c lib/measure/kineto_walk.h \
	lib/measure/rounds.c lib/measure/rounds.h
