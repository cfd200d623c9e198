lib_libpd_a_SOURCES += lib/plan/plan.h lib/plan/schedule_kind.def lib/plan/weight_kind.def \
	lib/plan/wiring.h lib/plan/memory.h
