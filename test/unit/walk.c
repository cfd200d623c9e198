/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what is expected of schedules with several stages on a rank against replays of random plans: uneven layers,
 * links of several speeds, replicas, groups of any number of microbatches.
 */
#include "small_profile.h"
#include "table.h"
#include "tap.h"

#include "base/rng.h"
#include "predict/judge.h"
#include "predict/predict.h"

#include <math.h>
#include <stdlib.h>

#define PLANS 24                /* of each kind */

static uint32_t drawn;

static int64_t draw(int64_t below)
{
	return pd_random(21, 0, 0, drawn++).v[0] % below;
}

static struct pd_profile *random_profile(void)
{
	struct pd_profile *profile = small_profile(sixteen);

	pd_profile_set_pairs(profile, draw(2) ? 0.8 : 0);
	for (int l = 0; l < profile->layer_count; l++) {
		struct pd_profile_layer *layer = &profile->layers[l];

		layer->forward_ns = 10000 + draw(5000);
		layer->backward_ns = 20000 + draw(10000);
		layer->update_ns = draw(500);
		layer->activation_bytes = 400 + draw(400);
		layer->parameter_bytes = 4 * draw(2000);
	}
	return profile;
}

static struct pd_plan *random_plan(enum pd_schedule_kind schedule, enum pd_weight_kind weights)
{
	int p = 2 + (int)draw(3), r = 1 + (int)draw(3), stages = 2 * p, layers[16] = { 0 }, replicas[16];
	struct pd_topology topology = { .devices = MOST_RANKS, .levels = 1, .level = {
		{ .count = MOST_RANKS, .bandwidth_bytes_per_s = INT64_C(100000000) * (1 + draw(20)) } } };
	struct pd_plan *plan;
	struct pd_error err;

	for (int l = 0; l < 16; l++)
		layers[l * stages / 16]++;
	for (int s = 0; s < stages; s++)
		replicas[s] = r;
	plan = pd_plan_new(random_profile(), &topology, stages, layers, replicas, &err);
	if (!plan) {
		diag("%s", err.text);
		exit(1);
	}
	plan->rank_count = p * r;
	use(plan, schedule, weights, r * (weights == PD_WEIGHTS_2BW ? 3 * p : 1 + draw(8 * p)));
	plan->agree = draw(4) == 0;
	return plan;
}

static void test_kind(enum pd_schedule_kind schedule, enum pd_weight_kind weights)
{
	double sum = 0, worst = 0;

	for (int n = 0; n < PLANS; n++) {
		struct pd_plan *plan = random_plan(schedule, weights);
		struct pd_expected expected;
		enum pd_period_kind from;
		struct pd_error err;
		int64_t period_ns;
		double off = 1;

		pd_predict_stages(plan);
		if (pd_judge_expect(plan, false, &expected, &err) == 0 &&
		    pd_judge_period(plan, &period_ns, &from, &err) == 0)
			off = fabs((double)expected.estimate_ns / (double)period_ns - 1);
		sum += off;
		worst = fmax(worst, off);
		pd_plan_free(plan);
	}
	ok(sum / PLANS < 0.05, "%s, %s: off by %.2f %% in the mean, at most by %.1f %%", pd_schedule_kind_name[schedule],
	   pd_weight_kind_name[weights], 100 * sum / PLANS, 100 * worst);
}

int main(void)
{
	for (int k = 0; k < PD_SCHEDULE_KINDS; k++)
		for (int w = 0; w < PD_WEIGHT_KINDS; w++) {
			enum pd_schedule_kind schedule = (enum pd_schedule_kind)k;

			if (pd_schedule_has(schedule, PD_FACT_SHARES) && !pd_schedule_has(schedule, PD_FACT_ORDERED) &&
			    pd_schedule_goes_with(schedule, (enum pd_weight_kind)w))
				test_kind(schedule, (enum pd_weight_kind)w);
		}
	return done_testing();
}
