lib_libpd_a_SOURCES += \
	lib/predict/cost.c lib/predict/cost.h \
	lib/predict/cost_kind.def \
	lib/predict/cycle.c lib/predict/cycle.h \
	lib/predict/expect.c lib/predict/expect.h \
	lib/predict/flow.c lib/predict/flow.h \
	lib/predict/flow_parts.c lib/predict/flow_parts.h \
	lib/predict/judge.c lib/predict/judge.h \
	lib/predict/links.c lib/predict/links.h \
	lib/predict/map.c lib/predict/map.h \
	lib/predict/predict.c lib/predict/predict.h \
	lib/predict/range.c lib/predict/range.h \
	lib/predict/replay.c lib/predict/replay.h \
	lib/predict/step.c lib/predict/step.h \
	lib/predict/subject.c lib/predict/subject.h \
	lib/predict/turns.c lib/predict/turns.h lib/predict/walk.c lib/predict/walk.h \
	lib/predict/whatif.c lib/predict/whatif.h
