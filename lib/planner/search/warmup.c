/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm-ups as a choice.
 *
 * Published planners take the warm-up of a stage as given, one minibatch for each rank behind
 * it: enough to keep all busy if transfers took no time and replicas did not wait for each
 * other.  They do, and more minibatches in flight hide it, at the price of the memory that they
 * take.
 *
 * The fewest with which a period is possible follow from windows (price/cycle.h), for replicas that
 * begin together and for others.  Both are tried, what SOSP 2019 takes too, and the estimate
 * decides; then warm-ups are given back one at a time as long as that costs nothing.
 *
 * Where memory is tight more is not always better: a stage that has room for few admits nothing new
 * while those behind it hold as many.  So the least warm-ups for the shortest period for which they
 * fit are tried, too.
 */
#include "planner/search/warmup.h"

#include "base/mem.h"
#include "memory/again.h"
#include "memory/buckets.h"
#include "planner/search/candidate.h"
#include "planner/search/recompute.h"
#include "predict/cost.h"
#include "predict/cycle.h"
#include "predict/flow.h"
#include "predict/links.h"
#include "predict/predict.h"
#include "schedule/schedule.h"
#include "trace/steady.h"

#include <stdlib.h>
#include <string.h>

#define MOST_STEPS 16           /* warm-ups that are given back, at most */
#define FEW 8                   /* warm-ups that are taken back one by one */
#define PRECISION 256           /* of the period for which warm-ups fit: one part in this */
#define HOPELESS 4              /* other warm-ups rarely make a plan faster by such a part */
#define WORK 1000000            /* of estimates for one plan: stages times minibatches */

#define MOST_LAST 2             /* warm-ups of the last stage */

/*
 * Returns the most warm-ups of the last stage.  They make room for inputs that are on their way: where a link's
 * latency is of the order of what the stage takes, one at a time is too few.
 */
static int most_of_last(const struct pd_plan *plan)
{
	const struct pd_stage *last = &plan->stages[plan->stage_count - 1], *before = last - 1;
	int64_t pass_ns = (last->forward_ns + last->backward_ns) / last->replicas, latency_ns;

	if (plan->stage_count == 1 || !pd_schedule_has(plan->schedule, PD_FACT_LEADS))
		return 0;
	latency_ns = pd_topology_transfer_ns(&plan->topology, before->ranks[0], last->ranks[0], 0);
	if (2 * latency_ns < pass_ns || latency_ns == 0)
		return 0;
	return (int)pd_min(pd_ceil_div(latency_ns, pd_max(pass_ns, 1)), MOST_LAST);
}

int pd_warmup_most_last(const struct pd_plan *plan)
{
	int replicas = plan->stages[plan->stage_count - 1].replicas;
	bool groups = pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) && plan->microbatches > replicas;

	return (int)pd_max(most_of_last(plan), groups && plan->stage_count > 1);
}

int pd_warmup_most(const struct pd_plan *plan, int stage)
{
	int64_t behind = 0, r = plan->stages[stage].replicas, last = most_of_last(plan);

	for (int s = stage + 1; s < plan->stage_count; s++)
		behind += plan->stages[s].replicas;
	if (behind == 0)
		return (int)last;
	return (int)pd_ceil_div(2 * behind + last * plan->stages[plan->stage_count - 1].replicas, r) + 1;
}

/* The times of the windows. */
struct window {
	int64_t *pass_ns, *update_ns, *transfer_ns;     /* per stage: t, A, C */
	int64_t *once_ns;       /* t where only those recompute that must */
	int64_t *sends_ns;      /* the part of A in which a replica sends, at least */
	int64_t busiest_ns;     /* the busiest link's */
};

static void window_pass(struct window *window, const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++)
		window->pass_ns[s] = plan->stages[s].forward_ns + pd_plan_again_ns(plan, s) +
				     plan->stages[s].backward_ns;
}

/*
 * Returns the least time for which a replica sends for an update, if each of its minibatches has
 * one.
 */
static int64_t own_sends_ns(const struct pd_plan *plan, int s)
{
	const struct pd_stage *stage = &plan->stages[s];
	struct pd_sum_delay *delays;
	struct pd_sum sum;
	int64_t least = INT64_MAX;

	if (stage->replicas == 1 || plan->microbatches > 1 ||
	    !pd_weights_have(plan->weights, PD_WEIGHTS_STASHES))
		return 0;
	delays = pd_calloc((size_t)stage->replicas, sizeof(*delays));
	sum = pd_plan_stage_sum(plan, s);
	pd_sum_delays(&sum, delays);
	for (int i = 0; i < stage->replicas; i++)
		least = pd_min(least, pd_max(delays[i].sends_ns, delays[i].rest_ns));
	free(delays);
	return least;
}

static void window_init(struct window *window, const struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_wiring_new(plan);
	size_t stages = (size_t)plan->stage_count;
	bool defers;

	window->pass_ns = pd_calloc(5 * stages, sizeof(int64_t));
	window->update_ns = window->pass_ns + stages;
	window->transfer_ns = window->update_ns + stages;
	window->once_ns = window->transfer_ns + stages;
	window->sends_ns = window->once_ns + stages;
	/* Sums are beside the next forward (lib/schedule/tick.c). */
	defers = pd_weights_have(plan->weights, PD_WEIGHTS_BEHIND) && !pd_plan_agrees(plan);
	window->busiest_ns = pd_links_busiest_ns(plan, wiring);
	window_pass(window, plan);
	memcpy(window->once_ns, window->pass_ns, stages * sizeof(int64_t));
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		window->sends_ns[s] = own_sends_ns(plan, s);
		window->update_ns[s] = defers ? pd_max(0, stage->allreduce_ns - stage->forward_ns)
					      : stage->allreduce_ns;
		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
			window->update_ns[s] += pd_profile_shared_ns(plan->profile, plan->profile->layers[l].update_ns,
								     stage->replicas);
		window->transfer_ns[s] = pd_stage_way_ns(plan, wiring, s);
	}
	pd_wiring_free(wiring);
}

static void window_release(struct window *window)
{
	free(window->pass_ns);
}

static void window_set_least(struct pd_plan *plan, const struct window *window, int64_t period,
			 bool together)
{
	int64_t behind = 0, lead = 0;

	for (int s = plan->stage_count - 1; s >= 0; s--) {
		struct pd_stage *stage = &plan->stages[s];
		int64_t r = stage->replicas, back, need, warmup;
		int most = pd_warmup_most(plan, s);

		back = pd_window_back_ns(window->pass_ns[s], window->transfer_ns[s], behind);
		need = pd_window_lead(back, window->update_ns[s], period,
				      together && window->update_ns[s] > 0 ? 1 : r);
		need = s == plan->stage_count - 1 ? 0 : pd_max(need, lead);
		warmup = pd_ceil_div(need, r);
		if (warmup > most)
			warmup = pd_max(most, pd_ceil_div(lead, r));
		stage->warmup = (int)warmup;
		lead = warmup * r;
		behind = pd_window_behind_ns(lead, pd_max(period, 1), window->pass_ns[s], back);
	}
}

static int64_t window_floor_ns(const struct pd_plan *plan, const struct window *window)
{
	int64_t most = window->busiest_ns;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max(most, (window->once_ns[s] + window->sends_ns[s]) /
			      plan->stages[s].replicas);
	return most;
}

static int64_t window_slowest_ns(const struct pd_plan *plan, const struct window *window)
{
	int64_t most = 0;

	for (int s = 0; s < plan->stage_count; s++)
		most = pd_max(most, pd_ceil_div(window->pass_ns[s] + window->update_ns[s],
						plan->stages[s].replicas));
	return most;
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

	for (int s = 0; s < plan->stage_count && !limits->request->equal; s++) {
		struct pd_stage *stage = &plan->stages[s];
		/* With tags, stages keep what the first one is ahead. */
		bool first = pd_weights_have(plan->weights, PD_WEIGHTS_TAGS);

		int64_t limit_bytes = pd_stage_limit(plan, s, limits->limit_bytes);

		if (stage->memory_bytes <= limit_bytes)
			continue;
		if (!stage->warmup && first)
			stage = &plan->stages[0];
		if (stage->warmup > 0) {
			stage->warmup = lower(stage, limit_bytes, plan->stages[s].memory_bytes);
			fewer = true;
			/*
			 * It may fit without recomputing, which gains nothing with one microbatch
			 * in flight.
			 */
			if (limits->recompute ||
			    (!stage->warmup && pd_schedule_has(plan->schedule, PD_FACT_LEADS) &&
			     pd_plan_segment_count(plan, (int)(stage - plan->stages)) == 1))
				stage->recompute = false;
		}
	}
	return fewer;
}

bool pd_warmup_schedule(struct pd_plan *plan, struct pd_warmup_limits *limits,
			struct pd_schedule **schedule_p)
{
	enum pd_fit how;

	do {
		limits->capped |= pd_candidate_lower_leads(plan);
		how = pd_recompute_step(plan, limits->request, limits->limit_bytes, limits->recompute,
					schedule_p);
		limits->tight |= how == PD_TOO_LARGE || how == PD_CHANGED;
	} while (how == PD_CHANGED || (how == PD_TOO_LARGE && take_back(plan, limits)));
	return how == PD_FITS;
}

bool pd_warmup_fit(struct pd_plan *plan, struct pd_warmup_limits *limits)
{
	struct pd_schedule *schedule = NULL;
	bool fits = pd_warmup_schedule(plan, limits, &schedule);

	pd_schedule_free(schedule);
	return fits;
}

/* A stage's warm-up, and whether it recomputes. */
struct way {
	int warmup;
	bool recompute;
};

struct choice {
	struct pd_plan *plan;
	struct pd_schedule *schedule;   /* of the plan as it was tried last; or NULL */
	int64_t busiest_ns;             /* the busiest link's */
	struct pd_warmup_limits *limits;
	int64_t best_ns;                /* the estimate, or what another has to be below */
	struct pd_expected expected;    /* of the best */
	int *best_segment, *asked_segment;   /* plan->segment with these; NULL: it has none */
	struct way *best, *asked;       /* asked: which stages recompute with any warm-ups, and the
					   fewest that are tried */
	int steps;                      /* warm-ups that are given back, at most */
};

static void copy_segment(const struct choice *choice, int *to, const int *from)
{
	if (to && from)
		memcpy(to, from, (size_t)choice->plan->profile->layer_count * sizeof(*to));
}

/* Lets only those stages recompute that do so with any warm-ups. */
static void recompute_asked(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++)
		choice->plan->stages[s].recompute = choice->asked[s].recompute;
	copy_segment(choice, choice->plan->segment, choice->asked_segment);
}

/* Tries the plan's current warm-ups. */
static void try(struct choice *choice, bool settle_for_equal)
{
	struct pd_plan *plan = choice->plan;
	struct pd_expected expected;
	bool same = choice->best_ns >= 0, fits;

	recompute_asked(choice);
	fits = pd_warmup_schedule(plan, choice->limits, &choice->schedule);
	for (int s = 0; s < plan->stage_count && same; s++)
		same = plan->stages[s].warmup == choice->best[s].warmup &&
		       plan->stages[s].recompute == choice->best[s].recompute;
	if (fits && !same) {
		expected = pd_flow_expect(choice->schedule, false, choice->busiest_ns);
		pd_effort_spend(choice->limits->effort, expected.steps);
	}
	if (!fits || same || (choice->best_ns >= 0 &&
				  expected.estimate_ns >= choice->best_ns + settle_for_equal))
		return;
	choice->best_ns = expected.estimate_ns;
	choice->expected = expected;
	for (int s = 0; s < plan->stage_count; s++)
		choice->best[s] = (struct way){ plan->stages[s].warmup,
						plan->stages[s].recompute };
	copy_segment(choice, choice->best_segment, plan->segment);
}

static void restore(struct choice *choice)
{
	for (int s = 0; s < choice->plan->stage_count; s++) {
		choice->plan->stages[s].warmup = choice->best[s].warmup;
		choice->plan->stages[s].recompute = choice->best[s].recompute;
	}
	copy_segment(choice, choice->plan->segment, choice->best_segment);
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
static bool fits_period(struct choice *choice, struct window *window, int64_t period,
			bool together)
{
	struct pd_warmup_limits *limits = choice->limits;
	enum pd_fit how;

	recompute_asked(choice);
	do {
		window_pass(window, choice->plan);
		window_set_least(choice->plan, window, period, together);
		how = pd_recompute_step(choice->plan, limits->request, limits->limit_bytes,
					limits->recompute, &choice->schedule);
		limits->tight |= how == PD_TOO_LARGE || how == PD_CHANGED;
	} while (how == PD_CHANGED);
	return how == PD_FITS;
}

/*
 * Tries the least warm-ups for the shortest period for which they all fit: from `low` to the best
 * that was tried, if any.  Between stages s and e there are (w_s + 1) r_s - w_e r_e minibatches
 * on their way (flow.c), so with as many in e as fit there may be hardly any.
 */
static void try_fitting(struct choice *choice, struct window *window, int64_t low, bool together)
{
	bool any = choice->best_ns < 0;
	int64_t high = any ? pd_max(low, 1) : choice->best_ns;

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
static void compare_some(struct choice *choice, struct window *window)
{
	const struct pd_warmup_limits *limits = choice->limits;
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
	if (limits->most_ns > 0 && period - period / HOPELESS > limits->most_ns)
		return;
	window_pass(window, plan);
	if (period == usual - usual / PD_WARMUP_WORTH)
		choice->best_ns = usual;
	else
		for (int together = 0; together < 2; together++) {
			window_set_least(plan, window, period, together);
			try(choice, true);
		}
	for (int together = 0; together < 2 && (limits->tight || limits->capped);
	     together++)
		try_fitting(choice, window, window_floor_ns(plan, window), together);
	restore(choice);
	window_pass(window, plan);
	/* With fewer the estimate may be the same, but replays are slower. */
	window_set_least(plan, window, choice->best_ns, false);
	for (int s = 0; s < plan->stage_count; s++)
		choice->asked[s].warmup = plan->stages[s].warmup;
	give_back(choice);
}

/* Makes the plan the best; returns false if none fits or is wanted. */
static bool choose(struct choice *choice, struct window *window)
{
	struct pd_plan *plan = choice->plan;
	struct pd_warmup_limits *limits = choice->limits;
	int64_t each = plan->stage_count * pd_steady_microbatches(plan);

	if (limits->most_ns > 0 && window_floor_ns(plan, window) > limits->most_ns)
		return false;
	choice->steps = (int)pd_min(MOST_STEPS, WORK / each);
	if (choice->steps > 0) {
		compare_some(choice, window);
	} else {
		try_fitting(choice, window, window_slowest_ns(plan, window), true);
	}
	restore(choice);
	return choice->best_ns >= 0 && pd_warmup_schedule(plan, limits, &choice->schedule);
}

bool pd_warmup_choose(struct pd_plan *plan, struct pd_warmup_limits *limits,
		      struct pd_expected *expected_p, int64_t *work)
{
	struct window window;
	struct choice choice = { .plan = plan, .limits = limits, .best_ns = -1 };
	size_t stages = (size_t)plan->stage_count, layers = (size_t)plan->profile->layer_count;
	bool chosen;

	choice.best = pd_calloc(2 * stages, sizeof(*choice.best));
	choice.asked = choice.best + stages;
	for (size_t s = 0; s < stages; s++)
		choice.best[s].recompute = choice.asked[s].recompute = plan->stages[s].recompute;
	if (plan->segment) {
		choice.best_segment = pd_memdup(plan->segment, layers * sizeof(*plan->segment));
		choice.asked_segment = pd_memdup(plan->segment, layers * sizeof(*plan->segment));
	}
	window_init(&window, plan);
	choice.busiest_ns = window.busiest_ns;
	chosen = choose(&choice, &window);
	*expected_p = choice.expected;
	/* the same for every plan, whatever is tried of it: what is left out buys nothing else */
	*work += plan->stage_count * (16 * pd_steady_in_flight(plan) + 64);
	window_release(&window);
	pd_schedule_free(choice.schedule);
	free(choice.best);
	free(choice.best_segment);
	free(choice.asked_segment);
	return chosen;
}
