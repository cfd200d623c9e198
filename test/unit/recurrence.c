/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests how the recurrence of a pipeline is found.  For made-up plans, with links that are slow, shared
 * and far away, the period that is found is the one in the end; it is found for most plans, and early.
 * For records written by hand an operation that lasts for several turns has to be seen in as many turns.
 */
#include "small_profile.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "predict/cost.h"
#include "predict/replay.h"
#include "schedule/schedule.h"
#include "trace/recurrence.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLANS 400                      /* plans, unless the first argument gives a number */

static uint32_t drawn;

static int64_t draw(int64_t below)
{
	return pd_random(20, 0, 0, drawn++).v[0] % below;
}

static struct pd_profile *make_profile(void)
{
	struct pd_profile *profile = small_profile(draw(3) ? "a<x b<a c<b d<c e<d f<e"
							    : "a<x b<a c<ab d<c e<da f<eb");

	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		layer->forward_ns = 100 + draw(1000);
		layer->backward_ns = 100 + draw(2000);
		layer->update_ns = draw(4) ? 0 : draw(500);
		layer->activation_bytes = 8 * (1 + draw(100));
		layer->parameter_bytes = draw(3) ? 4 * draw(200) : 0;
	}
	return profile;
}

/* Chooses other weights than stashed ones, and maybe another schedule than 1f1b. */
static void choose_weights(struct pd_plan *plan)
{
	int64_t groups = 1;

	for (int s = 0; s < plan->stage_count; s++)
		groups *= plan->stages[s].replicas;
	plan->weights = draw(2) ? PD_WEIGHTS_FLUSH : draw(2) ? PD_WEIGHTS_2BW
							      : PD_WEIGHTS_VERTICAL_SYNC;
	if (plan->weights == PD_WEIGHTS_VERTICAL_SYNC)
		return;
	plan->microbatches = groups * (1 + draw(3));
	if (plan->weights == PD_WEIGHTS_FLUSH && draw(2))
		plan->schedule = draw(2) ? PD_SCHEDULE_GPIPE : PD_SCHEDULE_ZB_H1;
}

static struct pd_plan *make_plan(void)
{
	struct pd_profile *profile = make_profile();
	int stages = 1 + (int)draw(4), left = profile->layer_count, layers[4], replicas[4];
	struct pd_topology topology = { .levels = 1 + (int)draw(2) };
	struct pd_error err;
	struct pd_plan *plan;

	for (int s = 0; s < stages; s++) {
		layers[s] = s == stages - 1 ? left : 1 + (int)draw(left - (stages - s - 1));
		left -= layers[s];
		replicas[s] = draw(2) ? 1 : 1 + (int)draw(4);
	}
	topology.devices = 16;
	topology.level[0] = (struct pd_level){ .count = topology.levels == 1 ? 16 : 4,
		.bandwidth_bytes_per_s = 1000000000 * (1 + draw(20)) / 4,
		.latency_ns = draw(2) ? 0 : draw(2) ? draw(2000) : draw(100000) };
	topology.level[1] = (struct pd_level){ .count = 4,
		.bandwidth_bytes_per_s = 1000000000 * (1 + draw(4)) / 4, .latency_ns = draw(5000) };
	plan = pd_plan_new(profile, &topology, stages, layers, replicas, &err);
	if (!plan) {
		diag("%s", err.text);
		exit(1);
	}
	for (int s = stages - 2; s >= 0; s--) {
		const struct pd_stage *next = &plan->stages[s + 1];
		int64_t lead = (int64_t)next->warmup * next->replicas;

		plan->stages[s].warmup = (int)(pd_ceil_div(lead, replicas[s]) + draw(4));
	}
	if (draw(2))
		choose_weights(plan);
	return plan;
}

struct watch {
	const struct pd_plan *plan;
	struct pd_recurrence recurrence;
	int64_t total, *ends, known;
	double period_ns;               /* the period that was found, if said > 0 */
	int64_t said;                   /* microbatches after which it was found, or 0 */
};

static void retired(void *context, const struct pd_record *record)
{
	struct watch *watch = context;
	if ((record->op.kind != PD_OP_backward && record->op.kind != PD_OP_backward_weight) ||
	    record->op.stage != 0)
		return;
	watch->ends[record->op.microbatch] = record->end_ns;
	while (watch->known < watch->total && watch->ends[watch->known])
		watch->known++;
	if (!watch->said && pd_recurrence_found(&watch->recurrence, watch->known, record->end_ns, &watch->period_ns))
		watch->said = watch->known;
}

static void test_plans(int plans)
{
	int said = 0, settled = 0, wrong = 0, early = 0, refused = 0;

	for (int i = 0; i < plans; i++) {
		struct pd_plan *plan = make_plan();
		struct watch watch = { .plan = plan, .total = 4 * pd_steady_microbatches(plan) };
		struct pd_replay_options options = { .microbatches = watch.total,
						     .retired = retired, .context = &watch,
						     .recurrence = &watch.recurrence };
		struct pd_schedule *schedule;
		struct pd_steady steady;
		struct pd_error err;

		schedule = pd_schedule_new(plan, &err);
		refused += !schedule;
		pd_schedule_free(schedule);
		if (!schedule) {
			pd_plan_free(plan);
			continue;
		}
		watch.ends = pd_calloc((size_t)watch.total, sizeof(*watch.ends));
		pd_recurrence_init(&watch.recurrence, pd_steady_turn(plan));
		if (pd_replay_run(plan, &options, &err) < 0) {
			diag("%s", err.text);
			wrong++;
		} else if (pd_steady_of(plan, watch.ends, (size_t)watch.total, true, &steady) &&
			   steady.cycle > 0) {
			settled++;
			said += watch.said > 0;
			early += watch.said > 0 && watch.said < pd_steady_microbatches(plan) / 2;
			if (watch.said > 0 && fabs(watch.period_ns - steady.period_ns) > 1e-6) {
				diag("plan %d: %.3f was said with %" PRId64 " microbatches, it is %.3f",
				     i, watch.period_ns, watch.said, steady.period_ns);
				wrong++;
			}
		}
		pd_recurrence_release(&watch.recurrence);
		free(watch.ends);
		pd_plan_free(plan);
	}
	diag("%d of %d plans settle; %d are said to, %d early", settled, plans - refused, said, early);
	is_int(wrong, 0, "what is said of a plan is what comes of it");
	ok(settled > plans * 7 / 10 && said > settled * 95 / 100 && early > settled * 8 / 10,
	   "of most, and early");
}

/*
 * Notes a minibatch, one of which ends each 10 ns, and a transfer that began other_ns before it retires, which it
 * does just before; it took so long or, if it waits for what is before it, a nanosecond.
 */
static bool turn(struct pd_recurrence *recurrence, int64_t n, int64_t other_ns, bool waits, double *period_p)
{
	struct pd_record back = { .op = { .kind = PD_OP_backward, .microbatch = n, .link = -1 },
				  .start_ns = 10 * n, .end_ns = 10 * n + 10 };
	struct pd_record other = { .op = { .kind = PD_OP_send_activation, .microbatch = n },
				   .start_ns = 10 * n + 9 - other_ns, .end_ns = 10 * n + 9 };

	if (waits)
		other.end_ns = other.start_ns + 1;
	pd_recurrence_note(recurrence, &other, 1, 10 * n + 9);
	pd_recurrence_note(recurrence, &back, 1, back.end_ns);
	return pd_recurrence_found(recurrence, n + 1, back.end_ns, period_p);
}

/* Returns after how many turns a recurrence is found if the transfers take other_ns from the fifth turn
 * on, or 0 if it is not found. */
static int when(int64_t other_ns, bool waits, double *period_p)
{
	struct pd_recurrence recurrence;
	int at = 0;

	pd_recurrence_init(&recurrence, 1);
	for (int n = 0; n < 100 && !at; n++)
		if (turn(&recurrence, n, n < 4 ? n : other_ns, waits, period_p))
			at = n + 1;
	pd_recurrence_release(&recurrence);
	return at;
}

/* Does the same for numbers that tell states apart, which matter for longest_ns. */
static int when_added(int64_t longest_ns, double *period_p)
{
	struct pd_recurrence recurrence;
	int at = 0;

	pd_recurrence_init(&recurrence, 1);
	for (int n = 0; n < 100 && !at; n++) {
		pd_recurrence_add(&recurrence, n < 4 ? (uint64_t)n : 7, longest_ns);
		if (pd_recurrence_found(&recurrence, n + 1, 10 * n + 10, period_p))
			at = n + 1;
	}
	pd_recurrence_release(&recurrence);
	return at;
}

static void test_by_hand(void)
{
	struct pd_recurrence recurrence;
	double period = 0;
	int found = 0;

	is_int(when(8, false, &period), 6, "what lasts less than a turn has to be seen twice");
	ok(period == 10, "the period is that of the microbatches");
	is_int(when(48, false, &period), 10, "what lasts five turns, in five turns, and in five before");
	is_int(when(48, true, &period), 10, "and so does what ended long before it retires");
	ok(when_added(8, &period) == 6 && when_added(48, &period) == 10 && period == 10,
	   "and so do numbers of a state, which matter for as long");
	pd_recurrence_init(&recurrence, 1);
	for (int n = 0; n < 100; n++)
		found += turn(&recurrence, n, n, false, &period);
	is_int(found, 0, "what takes longer and longer never repeats itself");
	pd_recurrence_release(&recurrence);
	pd_recurrence_init(&recurrence, 1);
	for (int n = 0; n < 100 && !found; n++)
		found = turn(&recurrence, n, 3 + n % 3, false, &period) ? n + 1 : 0;
	is_int(found, 5, "three turns that follow each other");
	ok(period == 10, "are a period of three");
	pd_recurrence_release(&recurrence);
	pd_recurrence_init(&recurrence, 1);
	for (int n = found = 0; n < 10; n++)
		found += turn(&recurrence, 3 * n + 2, n, false, &period);
	is_int(found, 0, "turns that end with another one are no period of nothing");
	pd_recurrence_release(&recurrence);
	pd_recurrence_init(&recurrence, 0);
	for (int n = found = 0; n < 100; n++)
		found += turn(&recurrence, n, 8, false, &period);
	is_int(found, 0, "where there are no turns nothing repeats itself");
	pd_recurrence_release(&recurrence);
}

int main(int argc, char **argv)
{
	test_by_hand();
	test_plans(argc > 1 ? atoi(argv[1]) : PLANS);
	return done_testing();
}
