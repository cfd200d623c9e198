lib_libpd_a_SOURCES += \
	lib/planner/alternatives.c lib/planner/alternatives.h \
	lib/planner/auto.c \
	lib/planner/baseline.c \
	lib/planner/batch.c \
	lib/planner/bound.c lib/planner/bound.h \
	lib/planner/bucket.c lib/planner/bucket.h \
	lib/planner/reducer.c lib/planner/reducer.h \
	lib/planner/candidate.c lib/planner/candidate.h \
	lib/planner/contest.c lib/planner/contest.h lib/planner/contest_replays.c \
	lib/planner/cost.c lib/planner/cost.h lib/planner/cost_kind.def \
	lib/planner/cuts.c lib/planner/cuts.h \
	lib/planner/draw_dot.c \
	lib/planner/draw_svg.c lib/planner/draw_svg.h \
	lib/planner/draw_machine.c lib/planner/draw_stages.c \
	lib/planner/even.c \
	lib/planner/exhaust.c \
	lib/planner/explain.c \
	lib/planner/fixed.c \
	lib/planner/fewest.c lib/planner/fewest.h \
	lib/planner/lattice.c lib/planner/lattice.h \
	lib/planner/levels.c lib/planner/levels.h lib/planner/levels_table.c \
	lib/planner/levels_table.h \
	lib/planner/orders.c \
	lib/planner/flow.c lib/planner/flow.h \
	lib/planner/flow_parts.c lib/planner/flow_parts.h \
	lib/planner/gain.h lib/planner/hand.c \
	lib/planner/judge.c lib/planner/judge.h \
	lib/planner/line.c lib/planner/line.h \
	lib/planner/line_search.h lib/planner/line_stage.c \
	lib/planner/links.c lib/planner/links.h \
	lib/planner/map.c lib/planner/map.h \
	lib/planner/nodes.c lib/planner/nodes.h \
	lib/planner/none.c lib/planner/placement.c lib/planner/placement.h \
	lib/planner/planner.c lib/planner/planner.h \
	lib/planner/points.c lib/planner/points.h \
	lib/planner/predict.c lib/planner/predict.h \
	lib/planner/published.c lib/planner/published.h \
	lib/planner/recompute.c lib/planner/recompute.h lib/planner/recompute_kind.def \
	lib/planner/reduce_bound.c lib/planner/reduce_bound.h \
	lib/planner/request.c \
	lib/planner/refine.c lib/planner/refine.h lib/planner/refine_branches.c \
	lib/planner/search.h lib/planner/simulated.c \
	lib/planner/spans.c \
	lib/planner/usage.c lib/planner/usage.h \
	lib/planner/states.c lib/planner/states.h \
	lib/planner/terms.c lib/planner/terms.h \
	lib/planner/views.c lib/planner/views.h \
	lib/planner/warmup.c lib/planner/warmup.h \
	lib/planner/window.c lib/planner/window.h
