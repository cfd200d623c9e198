/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-ups as a choice.
 *
 * Published planners take the warm-up of a stage as given, one minibatch for each rank behind
 * it: enough to keep all busy if transfers took no time and replicas did not wait for each
 * other.  They do, and more minibatches in flight hide it, at the price of the memory that they
 * take.
 *
 * The fewest with which a period is possible follow from windows (window.h), for replicas that
 * begin together and for others.  Both are tried, what SOSP 2019 takes too, and the estimate
 * decides; then warm-ups are given back one at a time as long as that costs nothing.
 *
 * Where memory is tight more is not always better: a stage that has room for few admits nothing new
 * while those behind it hold as many.  So the least warm-ups for the shortest period for which they
 * fit are tried, too.
 */
#include "planner/search/warmup.h"

#include "base/mem.h"
#include "planner/search/candidate.h"
#include "planner/price/cost.h"
#include "planner/price/flow.h"
#include "planner/price/predict.h"
#include "planner/search/recompute.h"
#include "planner/search/window.h"
#include "schedule/schedule.h"
#include "trace/steady.h"

#include <stdlib.h>

#define MOST_STEPS 16           /* warm-ups that are given back, at most */
#define FEW 8                   /* warm-ups that are taken back one by one */
#define PRECISION 256           /* of the period for which warm-ups fit: one part in this */
#define WORK 1000000            /* of estimates for one plan: stages times minibatches */

int pd_warmup_most(const struct pd_plan *plan, int stage)
{
	int64_t behind = 0, r = plan->stages[stage].replicas;

	for (int s = stage + 1; s < plan->stage_count; s++)
		behind += plan->stages[s].replicas;
	return behind ? (int)pd_ceil_div(2 * behind, r) + 1 : 0;
}

/* Lowers leads so that no stage admits more than the one before. */
static void descend(struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++) {
		const struct pd_stage *before = &plan->stages[s - 1];
		int64_t lead = (int64_t)before->warmup * before->replicas;

		if ((int64_t)plan->stages[s].warmup * plan->stages[s].replicas > lead)
			plan->stages[s].warmup = (int)(lead / plan->stages[s].replicas);
	}
}

/*
 * Returns a warm-up below the stage's, not below the most that fits: bytes are a + b w, so w limit /
 * bytes is no less than that.  They only nearly are where several stages share versions: a few go one
 * by one.
 */
static int lower(const struct pd_stage *stage, int64_t limit_bytes, int64_t bytes)
{
	double part = (double)limit_bytes / (double)bytes;

	return stage->warmup > FEW ? (int)(part * (stage->warmup - 1)) + 1 : stage->warmup - 1;
}

/* Takes warm-ups from each stage that does not fit; returns whether there was any. */
static bool take_back(struct pd_plan *plan, const struct pd_warmup_limits *limits)
{
	bool fewer = false;

	for (int s = 0; s < plan->stage_count; s++) {
		struct pd_stage *stage = &plan->stages[s];
		/* With vertical-sync, stages keep what the first one is ahead. */
		bool first = plan->weights == PD_WEIGHTS_VERTICAL_SYNC;

		if (stage->memory_bytes <= limits->limit_bytes)
			continue;
		if (!stage->warmup && first)
			stage = &plan->stages[0];
		if (stage->warmup > 0) {
			stage->warmup = lower(stage, limits->limit_bytes,
					      plan->stages[s].memory_bytes);
			fewer = true;
			/*
			 * It may fit without recomputing, which gains nothing with one microbatch
			 * in flight.
			 */
			if (limits->recompute ||
			    (!stage->warmup && plan->schedule == PD_SCHEDULE_1F1B))
				stage->recompute = false;
		}
	}
	return fewer;
}

/* Returns the schedule with as many warm-ups as fit, or NULL. */
static struct pd_schedule *fit(struct pd_plan *plan, struct pd_warmup_limits *limits)
{
	struct pd_error err;

	if (plan->weights == PD_WEIGHTS_2BW) {
		int64_t most = plan->microbatches / plan->stages[0].replicas;

		if (plan->stages[0].warmup > most)
			plan->stages[0].warmup = (int)most;
	}
	for (;;) {
		struct pd_schedule *schedule;
		bool fits, again = false;

		descend(plan);
		schedule = pd_schedule_new(plan, &err);
		if (!schedule)
			return NULL;
		pd_predict_memory(plan, schedule);
		fits = pd_candidate_fullest(plan, NULL) <= limits->limit_bytes;
		if (!fits && limits->recompute)
			again = pd_recompute_more(plan, schedule, limits->limit_bytes);
		if (fits)
			return schedule;
		pd_schedule_free(schedule);
		limits->tight = true;
		if (!again && !take_back(plan, limits))
			return NULL;
	}
}

bool pd_warmup_fit(struct pd_plan *plan, struct pd_warmup_limits *limits)
{
	struct pd_schedule *schedule = fit(plan, limits);

	pd_schedule_free(schedule);
	return schedule != NULL;
}

/* A stage's warm-up, and whether it recomputes. */
struct way {
	int warmup;
	bool recompute;
};

struct choice {
	struct pd_plan *plan;
	struct pd_warmup_limits *limits;
	int64_t best_ns;                /* the estimate, or what another has to be below */
	struct pd_expected expected;    /* of the best */
	struct way *best, *asked;       /* asked: which stages recompute with any warm-ups, and the
					   fewest that are tried */
	int steps;                      /* warm-ups that are given back, at most */
};

/* Lets only those stages recompute that do so with any warm-ups. */
static void recompute_asked(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++)
		choice->plan->stages[s].recompute = choice->asked[s].recompute;
}

/* Tries the plan's current warm-ups. */
static void try(struct choice *choice, bool settle_for_equal)
{
	struct pd_plan *plan = choice->plan;
	struct pd_schedule *schedule;
	struct pd_expected expected;
	int64_t ns;

	recompute_asked(choice);
	schedule = fit(plan, choice->limits);
	if (!schedule)
		return;
	expected = pd_flow_expect(schedule);
	ns = expected.estimate_ns;
	pd_schedule_free(schedule);
	if (choice->best_ns >= 0 && ns >= choice->best_ns + settle_for_equal)
		return;
	choice->best_ns = ns;
	choice->expected = expected;
	for (int s = 0; s < plan->stage_count; s++)
		choice->best[s] = (struct way){ plan->stages[s].warmup,
						plan->stages[s].recompute };
}

static void restore(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++) {
		choice->plan->stages[s].warmup = choice->best[s].warmup;
		choice->plan->stages[s].recompute = choice->best[s].recompute;
	}
}

static void give_back(struct choice *choice)
{
	struct pd_plan *plan = choice->plan;
	int steps = 0;

	for (int s = 0; s + 1 < plan->stage_count && choice->steps > 0; s++) {
		int64_t next;

		do {
			restore(choice);
			next = (int64_t)plan->stages[s + 1].warmup * plan->stages[s + 1].replicas;
			plan->stages[s].warmup--;
			if ((int64_t)plan->stages[s].warmup * plan->stages[s].replicas < next ||
			    plan->stages[s].warmup < choice->asked[s].warmup ||
			    steps++ >= choice->steps)
				break;
			try(choice, true);
		} while (choice->best[s].warmup == plan->stages[s].warmup);
	}
}

/* Gives the plan the least warm-ups for a period; tells whether they all fit. */
static bool fits_period(struct choice *choice, struct pd_window *window, int64_t period,
			bool together)
{
	struct pd_plan *plan = choice->plan;
	int64_t limit_bytes = choice->limits->limit_bytes;
	bool fits, again;

	recompute_asked(choice);
	do {
		struct pd_error err;
		struct pd_schedule *schedule;

		pd_window_pass(window, plan);
		pd_window_set_least(plan, window, period, together);
		schedule = pd_schedule_new(plan, &err);
		if (!schedule)
			return false;
		pd_predict_memory(plan, schedule);
		fits = pd_candidate_fullest(plan, NULL) <= limit_bytes;
		choice->limits->tight |= !fits;
		again = !fits && choice->limits->recompute &&
			pd_recompute_more(plan, schedule, limit_bytes);
		pd_schedule_free(schedule);
	} while (again);
	return fits;
}

/*
 * Tries the least warm-ups for the shortest period for which they all fit: from `low` to the best
 * that was tried, if any.  Between stages s and e there are (w_s + 1) r_s - w_e r_e minibatches
 * on their way (flow.c), so with as many in e as fit there may be hardly any.
 */
static void try_fitting(struct choice *choice, struct pd_window *window, int64_t low, bool together)
{
	bool any = choice->best_ns < 0;
	int64_t high = any ? pd_max64(low, 1) : choice->best_ns;

	while (!fits_period(choice, window, high, together)) {
		if (!any || high >= PD_COST_MAX / 2 || choice->plan->stages[0].warmup == 0)
			return;
		low = high;
		high *= 2;
	}
	while (high - low > low / PRECISION) {
		int64_t middle = low + (high - low) / 2;

		if (fits_period(choice, window, middle, together))
			high = middle;
		else
			low = middle + 1;
	}
	if (fits_period(choice, window, high, together))
		try(choice, false);
}

/*
 * Compares several choices by expected period; takes more than the usual warm-ups only if that is
 * worth the memory.
 */
static void compare_some(struct choice *choice, struct pd_window *window)
{
	struct pd_plan *plan = choice->plan;
	int64_t usual, period;

	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].warmup = pd_plan_warmup(plan, s);
	try(choice, false);
	if (choice->best_ns <= 0 || plan->stage_count == 1)
		return;
	usual = choice->best_ns;
	for (int s = 0; s < plan->stage_count; s++)
		plan->stages[s].warmup = pd_warmup_most(plan, s);
	choice->best_ns -= usual / PD_WARMUP_WORTH;
	try(choice, false);
	period = choice->best_ns;
	restore(choice);
	pd_window_pass(window, plan);
	if (period == usual - usual / PD_WARMUP_WORTH)
		choice->best_ns = usual;
	else
		for (int together = 0; together < 2; together++) {
			pd_window_set_least(plan, window, period, together);
			try(choice, true);
		}
	for (int together = 0; together < 2 && choice->limits->tight; together++)
		try_fitting(choice, window, pd_window_floor_ns(plan, window), together);
	restore(choice);
	pd_window_pass(window, plan);
	/* With fewer the estimate may be the same, but replays are slower. */
	pd_window_set_least(plan, window, choice->best_ns, false);
	for (int s = 0; s < plan->stage_count; s++)
		choice->asked[s].warmup = plan->stages[s].warmup;
	give_back(choice);
}

/* Makes the plan the best; returns false if none fits or is wanted. */
static bool choose(struct choice *choice, struct pd_window *window)
{
	struct pd_plan *plan = choice->plan;
	struct pd_warmup_limits *limits = choice->limits;
	int64_t each = plan->stage_count * pd_steady_microbatches(plan);

	if (limits->most_ns > 0 && pd_window_floor_ns(plan, window) > limits->most_ns)
		return false;
	choice->steps = (int)pd_min64(MOST_STEPS, WORK / each);
	if (choice->steps > 0) {
		compare_some(choice, window);
	} else {
		try_fitting(choice, window, pd_window_slowest_ns(plan, window), true);
	}
	restore(choice);
	return choice->best_ns >= 0 && pd_warmup_fit(plan, limits);
}

bool pd_warmup_choose(struct pd_plan *plan, struct pd_warmup_limits *limits,
		      struct pd_expected *expected_p, int64_t *work)
{
	struct pd_window window;
	struct choice choice = { .plan = plan, .limits = limits, .best_ns = -1 };
	size_t stages = (size_t)plan->stage_count;
	bool chosen;

	choice.best = pd_calloc(2 * stages, sizeof(*choice.best));
	choice.asked = choice.best + stages;
	for (size_t s = 0; s < stages; s++)
		choice.best[s].recompute = choice.asked[s].recompute = plan->stages[s].recompute;
	pd_window_init(&window, plan);
	chosen = choose(&choice, &window);
	*expected_p = choice.expected;
	/* the same for every plan, whatever is tried of it: what is left out buys nothing else */
	*work += plan->stage_count * (16 * pd_steady_in_flight(plan) + 64);
	pd_window_release(&window);
	free(choice.best);
	return chosen;
}
