/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/range.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "predict/judge.h"
#include "predict/predict.h"
#include "profile/spread.h"

#include <math.h>
#include <stdlib.h>

#define SEED 1
#define RANGE_WORK 100000 /* operations of a replay; where that is too little estimates say it */
#define LINK_STREAM (UINT64_C(1) << 32)  /* behind those of all layers */

static const struct pd_spread unknown;

/* A plan whose profile can be changed; the original's times are in `of`. */
struct changed {
	const struct pd_plan *of;
	struct pd_plan plan;
	struct pd_profile kinds[PD_MAX_KINDS], *others[PD_MAX_KINDS];
};

static void change(struct changed *changed, const struct pd_plan *plan, int64_t processors, int64_t threads)
{
	size_t bytes = (size_t)plan->profile->layer_count * sizeof(struct pd_profile_layer);

	*changed = (struct changed){ .of = plan, .plan = *plan };
	for (int k = 0; k < pd_plan_kinds(plan); k++) {
		struct pd_profile *profile = &changed->kinds[k];

		*profile = *pd_profile_of_kind(plan->profile, k);
		profile->layers = pd_memdup(profile->layers, bytes);
		if (threads > 0)
			profile->device_threads = threads;
		if (k > 0)
			changed->others[k - 1] = profile;
	}
	changed->kinds[0].others = changed->others;
	changed->plan.profile = &changed->kinds[0];
	changed->plan.stages = pd_memdup(plan->stages, (size_t)plan->stage_count * sizeof(*plan->stages));
	if (processors > 0)
		changed->plan.topology.processors = processors;
}

static void release(struct changed *changed)
{
	for (int k = 0; k < pd_plan_kinds(changed->of); k++)
		free(changed->kinds[k].layers);
	free(changed->plan.stages);
}

/* Leaves -1, a time that was not measured. */
static int64_t scaled(int64_t ns, double factor)
{
	double value = (double)ns * factor;

	return ns <= 0 ? ns : value < (double)PD_MAX_TIME_NS ? llround(value) : PD_MAX_TIME_NS;
}

/* Gives a layer its original times, times a factor for each part. */
static void scale_layer(struct changed *changed, int kind, int l, const double factors[PD_TIMEDS])
{
	const struct pd_profile_layer *was = &pd_profile_of_kind(changed->of->profile, kind)->layers[l];
	struct pd_profile_layer *layer = &changed->kinds[kind].layers[l];

	layer->forward_ns = scaled(was->forward_ns, factors[PD_TIMED_FORWARD]);
	layer->backward_ns = scaled(was->backward_ns, factors[PD_TIMED_BACKWARD]);
	layer->backward_input_ns = scaled(was->backward_input_ns, factors[PD_TIMED_BACKWARD]);
	layer->backward_weight_ns = scaled(was->backward_weight_ns, factors[PD_TIMED_BACKWARD]);
	layer->update_ns = scaled(was->update_ns, factors[PD_TIMED_UPDATE]);
	layer->update_apart_ns = scaled(was->update_apart_ns, factors[PD_TIMED_UPDATE]);
}

/* Gives all times the lower or the higher end of what those of a kind of device have in common. */
static void scale_all(struct changed *changed, bool high)
{
	for (int k = 0; k < pd_plan_kinds(changed->of); k++) {
		struct pd_spread all = pd_spread_common(&changed->kinds[k]);
		double factor = high ? all.high : all.low;
		const double factors[PD_TIMEDS] = { factor, factor, factor };

		for (int l = 0; l < changed->kinds[k].layer_count; l++)
			scale_layer(changed, k, l, factors);
	}
}

/* Returns a number that is nearly of a normal distribution: a sum of four, the same on every machine. */
static double normal(const struct pd_random4 *r)
{
	double sum = 0;

	for (int i = 0; i < 4; i++)
		sum += (double)pd_unit(r->v[i]);
	return (sum - 2) * sqrt(3);
}

/* Returns a factor with this spread, by a number of a normal distribution. */
static double drawn(struct pd_spread spread, double deviations)
{
	double side = deviations < 0 ? 1 - spread.low : spread.high - 1;

	return fmax(1 / (1 + spread.high), 1 + side * deviations / PD_SPREAD_DEVIATIONS);
}

/* Has transfers take so many times as long on links that the profile has measured. */
static void slow_links(struct changed *changed, double factor)
{
	const struct pd_topology *was = &changed->of->topology;

	for (int k = 0; k < was->levels; k++) {
		struct pd_level *level = &changed->plan.topology.level[k];

		if (was->level[k].bandwidth_bytes_per_s <= 0 ||
		    was->level[k].bandwidth_bytes_per_s != changed->kinds[0].link_bandwidth_bytes_per_s)
			continue;
		level->bandwidth_bytes_per_s = llround((double)was->level[k].bandwidth_bytes_per_s / factor);
		level->latency_ns = scaled(was->level[k].latency_ns, factor);
	}
}

/* Draws the time of such links in a sample. */
static void draw_link(struct changed *changed, uint32_t sample)
{
	struct pd_random4 r = pd_random(SEED, LINK_STREAM, sample, 0);

	if (changed->kinds[0].link_spread.high > 0)
		slow_links(changed, drawn(changed->kinds[0].link_spread, normal(&r)));
}

/* Draws what is each layer's own on a kind of device in a sample. */
static void draw(struct changed *changed, int kind, uint32_t sample)
{
	const struct pd_profile *profile = &changed->kinds[kind];

	for (int l = 0; l < profile->layer_count; l++) {
		double factors[PD_TIMEDS];

		for (int part = 0; part < PD_TIMEDS; part++) {
			struct pd_random4 r = pd_random(SEED + (uint64_t)kind, (uint64_t)pd_profile_number(profile, l),
							sample, (uint32_t)part);

			factors[part] = drawn(pd_spread_own(&profile->layers[l], (enum pd_timed)part),
					      normal(&r));
		}
		scale_layer(changed, kind, l, factors);
	}
}

/* Sets the period with the times that the profile has now, of which those of stages are sums. */
static int period_of(struct pd_plan *plan, double *period_ns_p)
{
	enum pd_period_kind from;
	int64_t period_ns, work = 0;
	struct pd_error err;

	pd_predict_times(plan);
	if (pd_judge_rival(plan, RANGE_WORK, PD_NEVER, &period_ns, &from, &work, &err) < 0)
		return -1;
	*period_ns_p = (double)period_ns;
	return 0;
}

/* Sets what the causes in common make of the period. */
static int common(struct changed *changed, double usual_ns, struct pd_spread *out_p)
{
	double low_ns, high_ns;

	scale_all(changed, false);
	if (period_of(&changed->plan, &low_ns) < 0)
		return -1;
	scale_all(changed, true);
	if (period_of(&changed->plan, &high_ns) < 0)
		return -1;
	*out_p = (struct pd_spread){ fmin(1, low_ns / usual_ns), fmax(1, high_ns / usual_ns) };
	return 0;
}

static bool any_own(const struct pd_profile *profile)
{
	for (int k = 0; k < profile->other_count; k++)
		if (any_own(profile->others[k]))
			return true;
	for (int l = 0; l < profile->layer_count; l++)
		for (int part = 0; part < PD_TIMEDS; part++)
			if (profile->layers[l].spreads[part].high > 0)
				return true;
	return profile->link_spread.high > 0;
}

/* Sets what is each layer's own makes of the period. */
static int own(struct changed *changed, double usual_ns, struct pd_spread *out_p)
{
	double parts[PD_RANGE_SAMPLES], mean = 0, squares = 0, side;

	for (int k = 0; k < PD_RANGE_SAMPLES; k++) {
		for (int kind = 0; kind < pd_plan_kinds(changed->of); kind++)
			draw(changed, kind, (uint32_t)k);
		draw_link(changed, (uint32_t)k);
		if (period_of(&changed->plan, &parts[k]) < 0)
			return -1;
		parts[k] /= usual_ns;
		mean += parts[k] / PD_RANGE_SAMPLES;
	}
	for (int k = 0; k < PD_RANGE_SAMPLES; k++)
		squares += (parts[k] - mean) * (parts[k] - mean);
	side = PD_SPREAD_DEVIATIONS * sqrt(squares / (PD_RANGE_SAMPLES - 1));
	*out_p = (struct pd_spread){ fmin(1, mean - side), fmax(1, mean + side) };
	return 0;
}

struct pd_spread pd_plan_range(const struct pd_plan *plan, int64_t processors, int64_t threads)
{
	struct pd_spread together = { 1, 1 }, apart = { 1, 1 };
	struct changed changed;
	double usual_ns;
	int status;

	for (int k = 0; k < pd_plan_kinds(plan); k++)
		if (!pd_profile_has_spread(pd_profile_of_kind(plan->profile, k)))
			return unknown;
	change(&changed, plan, processors, threads);
	status = period_of(&changed.plan, &usual_ns);
	if (status == 0 && usual_ns <= 0)
		status = -1;
	if (status == 0)
		status = common(&changed, usual_ns, &together);
	if (status == 0 && any_own(plan->profile) && pd_judge_work(plan) <= PD_JUDGE_WORK / PD_RANGE_SAMPLES)
		status = own(&changed, usual_ns, &apart);
	release(&changed);
	return status < 0 ? unknown : pd_spread_both(together, apart);
}
