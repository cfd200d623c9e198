/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/wiring.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

/* The way of a tensor from one stage to the next that uses it. */
struct hop {
	int from, to, tensor;
};

static int compare_hops(const void *a, const void *b)
{
	const struct hop *x = a, *y = b;

	PD_ORDER(x->from, y->from);
	PD_ORDER(x->to, y->to);
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/*
 * Layers, and so stages, are visited in order.  The users of a tensor come stage by stage, and each
 * gets it from the stage before.
 */
static struct hop *find_hops(const struct pd_plan *plan, size_t *count_p)
{
	const struct pd_profile *profile = plan->profile;
	int *last = pd_calloc((size_t)profile->layer_count, sizeof(*last));
	struct hop *hops = NULL;
	size_t capacity = 0, count = 0;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++) {
			const struct pd_profile_layer *layer = &profile->layers[l];

			last[l] = s;
			for (int i = 0; i < layer->input_count; i++) {
				int tensor = layer->inputs[i];

				if (last[tensor] == s)
					continue;
				hops = pd_grow(hops, &capacity, count + 1, sizeof(*hops));
				hops[count++] = (struct hop){ last[tensor], s, tensor };
				last[tensor] = s;
			}
		}
	}
	free(last);
	if (count > 0)
		qsort(hops, count, sizeof(*hops), compare_hops);
	*count_p = count;
	return hops;
}

/* Joins hops between the same stages, which are neighbours in the order, to links. */
static void make_links(struct pd_wiring *wiring, const struct pd_profile *profile,
		       const struct hop *hops, size_t count)
{
	wiring->links = pd_calloc(count, sizeof(*wiring->links));
	wiring->tensors_most = 1;
	for (size_t h = 0, end; h < count; h = end) {
		struct pd_link *link = &wiring->links[wiring->link_count++];

		for (end = h; end < count && hops[end].from == hops[h].from &&
		     hops[end].to == hops[h].to;)
			end++;
		link->from = hops[h].from;
		link->to = hops[h].to;
		link->tensor_count = (int)(end - h);
		if (link->tensor_count > wiring->tensors_most)
			wiring->tensors_most = link->tensor_count;
		link->tensors = pd_calloc(end - h, sizeof(*link->tensors));
		for (size_t i = h; i < end; i++) {
			link->tensors[i - h] = hops[i].tensor;
			link->bytes += profile->layers[hops[i].tensor].activation_bytes;
		}
	}
}

/*
 * Makes the lists of links per stage, which are ascending because links are sorted by (from, to).
 */
static void make_lists(struct pd_wiring *wiring)
{
	size_t stages = (size_t)wiring->stage_count;

	wiring->in_count = pd_calloc(stages, sizeof(*wiring->in_count));
	wiring->out_count = pd_calloc(stages, sizeof(*wiring->out_count));
	wiring->in = pd_calloc(stages, sizeof(*wiring->in));
	wiring->out = pd_calloc(stages, sizeof(*wiring->out));
	for (int k = 0; k < wiring->link_count; k++) {
		wiring->in_count[wiring->links[k].to]++;
		wiring->out_count[wiring->links[k].from]++;
	}
	for (size_t s = 0; s < stages; s++) {
		wiring->in[s] = pd_calloc((size_t)wiring->in_count[s], sizeof(**wiring->in));
		wiring->out[s] = pd_calloc((size_t)wiring->out_count[s], sizeof(**wiring->out));
		wiring->in_count[s] = wiring->out_count[s] = 0;
	}
	for (int k = 0; k < wiring->link_count; k++) {
		int from = wiring->links[k].from, to = wiring->links[k].to;

		wiring->in[to][wiring->in_count[to]++] = k;
		wiring->out[from][wiring->out_count[from]++] = k;
	}
}

static bool stage_loads(const struct pd_plan *plan, const struct pd_stage *stage)
{
	const struct pd_model *model = plan->profile->model;

	if (!model)
		return stage->first_layer == 0;
	for (int l = stage->first_layer; l < stage->first_layer + stage->layer_count; l++)
		for (int i = 0; i < model->layers[l].input_count; i++)
			if (model->layers[l].inputs[i] < model->input_count)
				return true;
	return false;
}

struct pd_wiring *pd_wiring_new(const struct pd_plan *plan)
{
	struct pd_wiring *wiring = pd_zalloc(sizeof(*wiring));
	struct hop *hops;
	size_t count;

	wiring->stage_count = plan->stage_count;
	hops = find_hops(plan, &count);
	make_links(wiring, plan->profile, hops, count);
	make_lists(wiring);
	free(hops);
	wiring->loads = pd_calloc((size_t)plan->stage_count, sizeof(*wiring->loads));
	for (int s = 0; s < plan->stage_count; s++)
		wiring->loads[s] = stage_loads(plan, &plan->stages[s]);
	return wiring;
}

void pd_wiring_free(struct pd_wiring *wiring)
{
	if (!wiring)
		return;
	for (int k = 0; k < wiring->link_count; k++)
		free(wiring->links[k].tensors);
	for (int s = 0; s < wiring->stage_count; s++) {
		free(wiring->in[s]);
		free(wiring->out[s]);
	}
	free(wiring->links);
	free(wiring->in_count);
	free(wiring->out_count);
	free(wiring->in);
	free(wiring->out);
	free(wiring->loads);
	free(wiring);
}

int64_t pd_wiring_in_bytes(const struct pd_wiring *wiring, int stage)
{
	int64_t bytes = 0;

	for (int i = 0; i < wiring->in_count[stage]; i++)
		bytes = pd_plus(bytes, wiring->links[wiring->in[stage][i]].bytes);
	return bytes;
}

int64_t pd_wiring_out_bytes(const struct pd_wiring *wiring, int stage)
{
	int64_t bytes = 0;

	for (int i = 0; i < wiring->out_count[stage]; i++)
		bytes = pd_plus(bytes, wiring->links[wiring->out[stage][i]].bytes);
	return bytes;
}

bool pd_wiring_skips(const struct pd_wiring *wiring)
{
	for (int l = 0; l < wiring->link_count; l++)
		if (wiring->links[l].to > wiring->links[l].from + 1)
			return true;
	return false;
}
