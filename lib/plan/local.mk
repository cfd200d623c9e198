lib_libpd_a_SOURCES += \
	lib/plan/alternative_kind.def \
	lib/plan/chain.c lib/plan/chain.h \
	lib/plan/document.c \
	lib/plan/given_order.c lib/plan/given_order.h \
	lib/plan/layout_door.h \
	lib/plan/order.c lib/plan/order.h \
	lib/plan/period_kind.def \
	lib/plan/plan.c lib/plan/plan.h \
	lib/plan/prediction.c lib/plan/prediction.h \
	lib/plan/recompute.c lib/plan/recompute.h \
	lib/plan/schedule_kind.c lib/plan/schedule_kind.def lib/plan/schedule_kind.h \
	lib/plan/show.c lib/plan/show.h \
	lib/plan/sparse.c lib/plan/sparse.h \
	lib/plan/startup_kind.def \
	lib/plan/weight_kind.def \
	lib/plan/wiring.c lib/plan/wiring.h
