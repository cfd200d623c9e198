/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes a plan of a network with branches: a layer goes over a cut with the layers that it needs,
 * or that need it.
 */
#include "planner/search/refine.h"

#include "base/mem.h"
#include "plan/order.h"

#include <stdlib.h>
#include <string.h>

#define MOST_MOVED 8            /* layers that go over a cut together */
#define UNUSED_VIEWS 128        /* most unused views of the profile */

/*
 * Gathers a layer of stage `from`, and what of that stage has to go with it to the adjacent stage
 * `to`.
 */
static int gather(const struct climb *climb, int layer, int from, int to, bool *goes)
{
	const struct shape *at = &climb->at;
	const struct pd_profile_layer *layers = at->profile->layers;
	int first = from > 0 ? at->ends[from - 1] : 0, end = at->ends[from], count = 1;

	memset(goes, 0, (size_t)at->profile->layer_count * sizeof(*goes));
	goes[layer] = true;
	for (int l = layer + 1; l < end && to > from; l++) {
		for (int i = 0; i < layers[l].input_count; i++)
			goes[l] |= goes[layers[l].inputs[i]];
		count += goes[l];
	}
	for (int l = layer; l >= first && to < from; l--)
		for (int i = 0; goes[l] && i < layers[l].input_count; i++) {
			int input = layers[l].inputs[i];

			if (input >= first && !goes[input]) {
				goes[input] = true;
				count++;
			}
		}
	return count;
}

/*
 * Tells whether layers that share parameters, and sums of gradients, stay whole; stage is by the
 * task's layers.
 */
static bool may_be(const struct pd_profile *profile, const int *stage)
{
	int tensor, user;

	for (int l = 0; profile->model && l < profile->layer_count; l++) {
		int shares = profile->model->layers[l].shares;

		if (shares >= 0 && stage[l] != stage[shares])
			return false;
	}
	return pd_order_keeps_sums(profile, stage, &tensor, &user);
}

/*
 * Makes the shape in which those layers have gone to a stage; returns false if this is not allowed.
 */
static bool carry_over(struct climb *climb, const bool *goes, int to)
{
	const struct pd_task *task = climb->contest->task;
	struct shape *trial = &climb->trial;
	int n = task->profile->layer_count, next = 0;
	int *stage = pd_calloc(2 * (size_t)n, sizeof(*stage)), *order = stage + n;
	int *place = pd_views_order(task->views, trial->profile);
	bool good;

	for (int l = 0, s = 0; l < n; l++) {
		while (l >= trial->ends[s])
			s++;
		stage[place ? place[l] : l] = goes[l] ? to : s;
	}
	good = may_be(task->profile, stage);
	for (int s = 0; s < trial->count && good; s++) {
		for (int l = 0; l < n; l++)
			if (stage[l] == s)
				order[next++] = l;
		trial->ends[s] = next;
	}
	if (good)
		trial->profile = pd_views_get(task->views, order);
	free(place);
	free(stage);
	return good;
}

static bool uses_view(const void *user, const struct pd_profile *view)
{
	const struct climb *climb = user;
	const struct pd_contest *contest = climb->contest;

	if (climb->at.profile == view || climb->best.profile == view)
		return true;
	for (size_t i = 0; i < contest->count; i++)
		if (contest->entries[i].plan->profile == view)
			return true;
	return false;
}

/*
 * Frees views, since most changes are not entered, and an order of a thousand layers takes hundreds
 * of kilobytes.
 */
static void forget_views(struct climb *climb)
{
	struct pd_views *views = climb->contest->task->views;

	if (views->count <= climb->views + UNUSED_VIEWS)
		return;
	pd_views_sweep(views, climb->contest->views, uses_view, climb);
	climb->views = views->count;
}

void pd_refine_branches(struct climb *climb, int s)
{
	const struct shape *at = &climb->at;
	const struct pd_task *task = climb->contest->task;
	int begin = s > 0 ? at->ends[s - 1] : 0;
	bool *goes;

	if (s + 1 >= at->count || !task->views || !task->views->many)
		return;
	goes = pd_calloc((size_t)at->profile->layer_count, sizeof(*goes));
	for (int l = begin; l < at->ends[s + 1]; l++) {
		bool back = l >= at->ends[s];
		int count, side;

		if (climb->contest->work >= climb->most_work)
			break;
		count = gather(climb, l, s + back, s + !back, goes);
		side = back ? l + 1 - at->ends[s] : at->ends[s] - l;
		if (count < side && count <= MOST_MOVED && carry_over(climb, goes, s + !back)) {
			pd_refine_consider(climb);
			forget_views(climb);
		}
	}
	free(goes);
}
