/* SPDX-License-Identifier: Apache-2.0 */
/* The published rules for the version that a microbatch sees; serial.c states them. */
#include "serial.h"

const struct pd_stage *serial_stage_of(const struct pd_plan *plan, const struct tensor *v)
{
	return &plan->stages[pd_plan_stage_of_layer(plan, v->named->layer)];
}

int64_t serial_group(const struct pd_plan *plan, const struct pd_stage *stage)
{
	return plan->microbatches > 1 || plan->weights == PD_WEIGHTS_2BW ||
	       plan->weights == PD_WEIGHTS_FLUSH || plan->schedule == PD_SCHEDULE_NF1B
		? plan->microbatches : stage->replicas;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Returns how many forwards a replica is ahead of its backwards at microbatch b.  While an eager start-up
 * lasts (SOSP 2019, figure 4), each stage runs the first stage's forwards as far as they arrive before
 * the first gradient: 3 for each rank behind it, shared by its replicas.
 */
static int64_t ahead(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b)
{
	const struct pd_stage *first = &plan->stages[0];
	int64_t all = first->warmup * (int64_t)first->replicas, behind = 0;

	if (plan->startup == PD_STARTUP_FRUGAL || b >= all + first->replicas)
		return stage->warmup;
	for (int s = 0; s < plan->stage_count; s++)
		behind += plan->stages[s].replicas;
	for (const struct pd_stage *at = first;; at++) {
		int64_t r = at->replicas, come;

		behind -= r;
		come = 3 * behind < all ? 3 * behind / r : all / r;
		all = (come > at->warmup ? come : at->warmup) * r;
		if (at == stage)
			return all / r;
	}
}

/* Returns how many updates a stage has made before its forward of microbatch b. */
static int64_t updates_before(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b)
{
	int64_t warmup = plan->schedule == PD_SCHEDULE_NONE ? 0 : ahead(plan, stage, b);

	if (plan->schedule == PD_SCHEDULE_NF1B)
		return b / plan->microbatches - warmup;
	return floor_div(b / stage->replicas - warmup,
			 serial_group(plan, stage) / stage->replicas);
}

/* Returns the version that a stage sees in updates since the pipeline was empty, negative if older. */
static int64_t rule(const struct pd_plan *plan, const struct pd_stage *stage, int64_t b,
		    bool backward)
{
	int64_t group = serial_group(plan, stage), own = updates_before(plan, stage, b), tag;

	switch (plan->weights) {
	case PD_WEIGHTS_VERTICAL_SYNC:
		tag = floor_div(updates_before(plan, &plan->stages[0], b) *
				serial_group(plan, &plan->stages[0]), group);
		return tag < own ? tag : own;
	case PD_WEIGHTS_2BW:
		return b / group - 1;
	case PD_WEIGHTS_FLUSH:
		return b / group;
	case PD_WEIGHTS_LATEST:
		return backward ? b / group : own;
	default:
		return own;
	}
}

size_t serial_version(const struct trainer *t, const struct tensor *v, int64_t b,
			   bool backward)
{
	const struct pd_stage *stage = serial_stage_of(t->plan, v);
	int64_t newest = b / serial_group(t->plan, stage), back = rule(t->plan, stage, b, backward);
	int64_t seen;

	if (asked.mutation == VERSION)        /* the next version, or the one before if there is none */
		back += back < newest ? 1 : -1;
	if (asked.mutation == LATEST)
		back = newest;
	seen = (int64_t)v->origin + back;
	return seen > (int64_t)v->floor ? (size_t)seen : v->floor;
}

int64_t serial_lateness(const struct pd_plan *plan, const struct pd_stage *stage)
{
	int64_t group = serial_group(plan, stage), forwards = stage->warmup * (int64_t)stage->replicas;

	if (plan->schedule == PD_SCHEDULE_NF1B)
		return stage->warmup;
	return forwards / group + (forwards % group > 0);
}

bool serial_corrects(const struct trainer *t, const struct tensor *v)
{
	return asked.discrepancy >= 0 && serial_lateness(t->plan, serial_stage_of(t->plan, v)) > 0;
}

bool serial_has_tied_weights(const struct trainer *t)
{
	bool shares = false;

	for (int l = 0; l < t->model->layer_count; l++)
		shares |= t->model->layers[l].shares >= 0;
	return shares && (t->plan->weights == PD_WEIGHTS_2BW ||
			  t->plan->weights == PD_WEIGHTS_FLUSH);
}

