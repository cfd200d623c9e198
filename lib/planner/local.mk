lib_libpd_a_SOURCES += \
	lib/planner/alternatives.c lib/planner/answers.h lib/planner/best.c lib/planner/best.h lib/planner/bound/bound.c \
	lib/planner/bound/bound.h lib/planner/cut/fewest.c lib/planner/cut/fewest.h \
	lib/planner/cut/partition.c lib/planner/cut/partition.h lib/planner/cut/points.c \
	lib/planner/cut/points.h lib/planner/cut/states.c lib/planner/cut/states.h \
	lib/planner/cut/task.c lib/planner/cut/task.h lib/planner/cut/views.c lib/planner/cut/views.h \
	lib/planner/formula/levels.c lib/planner/formula/levels.h lib/planner/formula/published.c \
	lib/planner/formula/published.h lib/planner/formula/terms.c lib/planner/formula/terms.h \
	lib/planner/hand.c lib/planner/idle.c lib/planner/idle.h lib/planner/kinds.c \
	lib/planner/kinds.h lib/planner/like.c lib/planner/like.h lib/planner/none.c \
	lib/planner/ordered.c lib/planner/ordered.h lib/planner/planner.c \
	lib/planner/planner.h lib/planner/search/candidate.c lib/planner/search/candidate.h \
	lib/planner/search/contest.c lib/planner/search/contest.h lib/planner/search/exhaust.c \
	lib/planner/search/gain.h lib/planner/search/line.c lib/planner/search/line.h \
	lib/planner/search/ordering.c lib/planner/search/ordering.h lib/planner/search/placement.c \
	lib/planner/search/placement.h lib/planner/search/recompute.c lib/planner/search/recompute.h \
	lib/planner/search/recompute_kind.def lib/planner/search/refine.c lib/planner/search/plan_shape.c \
	lib/planner/search/plan_shape.h lib/planner/search/simulated.c \
	lib/planner/search/simulated.h lib/planner/search/warmup.c lib/planner/search/warmup.h \
	lib/planner/scout.c lib/planner/scout.h lib/planner/sums.c lib/planner/sums.h lib/planner/top.c lib/planner/top.h lib/planner/variants.c \
	lib/planner/variants.h
