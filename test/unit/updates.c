/* SPDX-License-Identifier: Apache-2.0 */
/*
 * updates [PLANS [OPERATIONS]]: tests what is said of a whole update against replays of random plans, of 1 to 4,096
 * microbatches and 1 to 1,024 devices, whose replays have at most so many operations: estimates, and the form by which
 * shorter updates tell what a long one takes.  No period is below what the busiest rank or link takes.
 */
#include "made_up.h"
#include "table.h"
#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"
#include "predict/predict.h"
#include "predict/judge.h"
#include "predict/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define PLANS 40
#define OPERATIONS 400000
#define MOST_STAGES 32

static uint32_t drawn;

static int64_t draw(int64_t below)
{
	return pd_random(49, 0, 0, drawn++).v[0] % below;
}

/* Returns a number from least to most, all magnitudes alike. */
static int64_t magnitude(double least, double most)
{
	return llround(least * pow(most / least, (double)draw(1 << 20) / (1 << 20)));
}

static struct pd_profile *random_profile(int layers)
{
	json_t *list = json_array();
	int64_t ns = magnitude(5e4, 2e6), parameters = magnitude(1e5, 1e8), activations = magnitude(1e4, 8e6);
	bool updates = draw(2);

	for (int l = 0; l < layers; l++) {
		int64_t forward = ns * (70 + draw(60)) / 100, weight = forward * (80 + draw(40)) / 100;
		char name[16], before[16];

		snprintf(name, sizeof(name), "l%d", l);
		snprintf(before, sizeof(before), "l%d", l - 1);
		pd_json_add(list, json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", name, "inputs",
			l ? json_pack("[s]", before) : json_array(), "forward_ns", (json_int_t)forward, "backward_ns",
			(json_int_t)(forward + weight), "backward_input_ns", (json_int_t)forward, "backward_weight_ns",
			(json_int_t)weight, "activation_bytes", (json_int_t)(activations / 4 * 4), "parameter_bytes",
			(json_int_t)(draw(6) ? parameters / 4 * 4 : 0), "update_ns",
			(json_int_t)(updates ? parameters / 400 : 0)));
	}
	return made_up_profile(list);
}

static struct pd_topology random_topology(void)
{
	struct pd_topology topology = { .devices = 1024, .levels = 2 };

	topology.level[0] = (struct pd_level){ .count = 8, .bandwidth_bytes_per_s = magnitude(1e10, 4e11),
					       .latency_ns = draw(10000) };
	topology.level[1] = (struct pd_level){ .count = 128, .bandwidth_bytes_per_s = magnitude(2e9, 5e10),
					       .latency_ns = draw(30000) };
	return topology;
}

/* Draws how a plan is scheduled: by any kind with any of its weights that update in groups, but for given orders. */
static void draw_kind(enum pd_schedule_kind *kind_p, enum pd_weight_kind *weights_p)
{
	do {
		*kind_p = (enum pd_schedule_kind)draw(PD_SCHEDULE_KINDS);
		*weights_p = draw(4) ? PD_WEIGHTS_FLUSH : PD_WEIGHTS_2BW;
	} while (!pd_schedule_goes_with(*kind_p, *weights_p) || pd_schedule_has(*kind_p, PD_FACT_ORDERED) ||
		 pd_schedule_has(*kind_p, PD_FACT_ALONE));
}

static struct pd_plan *random_plan(void)
{
	enum pd_schedule_kind kind;
	enum pd_weight_kind weights;
	int layers[MOST_STAGES], replicas[MOST_STAGES], stages, p, r = 1 << draw(7), lanes = 1, count = 0;
	struct pd_topology topology = random_topology();
	struct pd_plan *plan;
	struct pd_error err;
	bool shares, alike;

	draw_kind(&kind, &weights);
	shares = pd_schedule_has(kind, PD_FACT_SHARES);
	p = shares ? 2 + (int)draw(7) : 1 + (int)draw(16);
	stages = shares ? 2 * p : p;
	alike = shares || draw(2);
	for (int s = 0; s < stages; s++) {
		layers[s] = 1 + (int)draw(3);
		replicas[s] = alike ? r : 1 << draw(4);
		lanes = replicas[s] > lanes ? replicas[s] : lanes;
		count += layers[s];
	}
	plan = pd_plan_new(random_profile(count), &topology, stages, layers, replicas, &err);
	if (!plan) {
		diag("%s", err.text);
		exit(1);
	}
	if (shares)
		plan->rank_count = p * r;
	use(plan, kind, weights, lanes * pd_max(magnitude(1, 4096) / lanes, weights == PD_WEIGHTS_2BW ? 3 * p : 1));
	pd_predict_stages(plan);
	return plan;
}

/* How far something is off. */
struct off {
	int count;
	double sum, worst;
};

static void add(struct off *off, double ns, double replayed_ns, const struct pd_plan *plan, const char *what)
{
	double part = fabs(ns / replayed_ns - 1);

	off->count++;
	off->sum += part;
	off->worst = fmax(off->worst, part);
	if (part > 0.02)
		diag("%s of %s, %s: %d stages, %d ranks, %" PRId64 " microbatches: off by %.1f %%, %.0f of %.0f ns", what,
		     pd_schedule_kind_name[plan->schedule], pd_weight_kind_name[plan->weights], plan->stage_count,
		     plan->rank_count, plan->microbatches, 100 * (ns / replayed_ns - 1), ns, replayed_ns);
}

static void is_near(const struct off *off, double mean, double worst, const char *what)
{
	ok(off->count > 0 && off->sum / off->count < mean && off->worst < worst,
	   "%s: off by %.2f %% in the mean of %d plans, at most by %.1f %%", what, 100 * off->sum / off->count, off->count,
	   100 * off->worst);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : PLANS, below = 0, wrong = 0;
	int64_t most = argc > 2 ? atoll(argv[2]) : OPERATIONS;
	struct off estimates = { 0 }, forms = { 0 }, told = { 0 };

	for (int n = 0; n < count;) {
		struct pd_plan *plan = random_plan();
		struct pd_schedule *schedule;
		struct pd_expected expected;
		enum pd_period_kind from = PD_PERIOD_ESTIMATE;
		struct pd_error err;
		int64_t replayed_ns = 0, form_ns = 0, told_ns = 0;
		bool fits = pd_replay_length(plan, most) > 0 && (schedule = pd_schedule_new(plan, &err));

		if (fits)
			pd_schedule_free(schedule);
		if (fits && pd_judge_expect(plan, false, &expected, &err) == 0 &&
		    pd_judge_period(plan, &replayed_ns, &from, &err) == 0 &&
		    pd_judge_whole(plan, most, &replayed_ns, &from, &err) == 0 && from == PD_PERIOD_REPLAY) {
			add(&estimates, (double)expected.estimate_ns, (double)replayed_ns, plan, "estimate");
			if (pd_judge_form(plan, most, &form_ns, &err) == 0 && form_ns > 0)
				add(&forms, (double)form_ns, (double)replayed_ns, plan, "form");
			if (pd_judge_form(plan, pd_replay_work(plan, 2 * plan->microbatches) / 2, &told_ns, &err) == 0 &&
			    told_ns > 0)
				add(&told, (double)told_ns, (double)replayed_ns, plan, "form of half");
			below += replayed_ns < pd_judge_least_ns(plan) || expected.estimate_ns < pd_judge_least_ns(plan);
			n++;
		} else if (fits) {
			wrong++;
			n++;
		}
		pd_plan_free(plan);
	}
	is_int(wrong, 0, "all plans are replayed whole");
	is_int(below, 0, "no period is below what the busiest rank or link takes");
	is_near(&forms, 0.002, 0.02, "the form, by replays of shorter updates");
	is_near(&told, 0.002, 0.02, "the form, by replays that take half of what a whole one takes");
	is_near(&estimates, 0.045, 0.56, "estimates");
	return done_testing();
}
