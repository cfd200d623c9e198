/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/exchange.h"

#include <math.h>

#define NEAR 1024               /* layers that are one product lie no further apart */
#define LOSS_SUMS 3             /* over the parts of the classes: the largest, exponentials, the label's */

struct exchange {
	const struct pd_estimate *how;
	const struct pd_split *split;
	const struct pd_model *model;
	struct pd_layer_ns *times;
};

/* Returns how long `devices` take until each has so many bytes of all, or its part of a sum of so many. */
static double gather_ns(const struct pd_estimate *how, const struct pd_group_link *link,
			double devices, double bytes)
{
	double bandwidth = (double)link->bandwidth_bytes_per_s * how->sheet->link.efficiency;

	return (double)link->latency_ns + 1e9 * (devices - 1) / devices * bytes / bandwidth;
}

/* The same until each that shares layers has all of the sum, over the links that a gather takes
 * twice. */
static double sum_ns(const struct pd_estimate *how, double devices, double bytes)
{
	const struct pd_group_link *link = &how->group.tensor_link;

	return 2 * gather_ns(how, link, devices, bytes) - (double)link->latency_ns;
}

/* Returns what is left of an exchange that goes on while a device computes. */
static double behind_ns(const struct pd_estimate *how, double ns, double computing_ns)
{
	return how->sheet->overlap_cost * fmin(ns, computing_ns) + fmax(0, ns - computing_ns);
}

static double tensor_bytes(const struct exchange *x, int tensor)
{
	return (double)x->how->batch_size * (double)pd_shape_elements(pd_model_shape(x->model, tensor)) *
	       (double)pd_dtype_bytes(x->how->dtype);
}

/* Returns the time of the exchange that completes a tensor: a sum, or half of one with sequence parallelism. */
static double whole_ns(const struct exchange *x, double bytes)
{
	double devices = (double)x->split->devices;

	return x->split->sequence ? gather_ns(x->how, &x->how->group.tensor_link, devices, bytes)
				  : sum_ns(x->how, devices, bytes);
}

/* Returns the time of a part of the layers that are one product with a layer. */
static double product_ns(const struct exchange *x, int first, enum pd_cost_part part)
{
	double ns = 0;

	for (int l = first; l < x->model->layer_count && l < first + NEAR; l++)
		if (x->split->layers[l].kind == PD_SPLIT_COLUMNS && x->split->layers[l].first == first)
			ns += x->times[l].part[part];
	return ns;
}

/* Before the first of a pair: its input is whole, and so becomes that one's gradient. */
static void add_columns(const struct exchange *x, int l)
{
	int tensor = x->model->layers[l].inputs[0];
	double input_ns = product_ns(x, l, PD_COST_INPUT), weight_ns = product_ns(x, l, PD_COST_WEIGHT);
	double ns = whole_ns(x, tensor_bytes(x, tensor)), behind = 0;

	if (pd_model_needs_gradient(x->model, tensor))
		behind = behind_ns(x->how, ns, weight_ns);
	if (x->split->sequence) {
		x->times[l].part[PD_COST_FORWARD] += ns;
		behind += behind_ns(x->how, ns, input_ns);
	}
	x->times[l].part[PD_COST_INPUT] += behind;
}

/* Behind the second of a pair, or an embedding: its output is a sum of parts. */
static void add_rows(const struct exchange *x, int l)
{
	double ns = whole_ns(x, tensor_bytes(x, x->model->input_count + l));
	bool rows = x->split->layers[l].kind == PD_SPLIT_ROWS;

	x->times[l].part[PD_COST_FORWARD] += ns;
	if (x->split->sequence)
		x->times[l].part[rows ? PD_COST_INPUT : PD_COST_WEIGHT] += ns;
}

static void add_loss(const struct exchange *x, int l)
{
	const struct pd_shape *classes = pd_model_shape(x->model, x->model->layers[l].inputs[0]);
	double bytes = (double)x->how->batch_size * (double)pd_shape_rows(classes) * sizeof(float);

	x->times[l].part[PD_COST_FORWARD] += LOSS_SUMS * sum_ns(x->how, (double)x->split->devices, bytes);
}

void pd_exchange_add(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
		     struct pd_layer_ns *times)
{
	const struct exchange x = { how, split, model, times };

	for (int l = 0; l < model->layer_count && split->devices > 1; l++) {
		const struct pd_split_layer *at = &split->layers[l];

		if (at->kind == PD_SPLIT_COLUMNS && at->first == l)
			add_columns(&x, l);
		if (at->kind == PD_SPLIT_ROWS || at->kind == PD_SPLIT_VOCABULARY)
			add_rows(&x, l);
		if (model->layers[l].kind == PD_LAYER_softmax_cross_entropy && at->kind == PD_SPLIT_FEATURES)
			add_loss(&x, l);
	}
}

/* Returns how long a layer's weights, or gradients, of so many bytes each take; small ones travel with others. */
static double weights_ns(const struct exchange *x, int l, double each)
{
	struct pd_share share = pd_split_share(x->split, x->model, l);
	double parameters = (double)x->model->layers[l].parameter_elements / (double)share.parameters;
	const struct pd_group_link *link = &x->how->group.sharded_link;
	double ns = gather_ns(x->how, link, (double)x->how->group.sharded, each * parameters);
	double latency_ns = (double)link->latency_ns;

	return ns > 2 * latency_ns ? ns : fmax(0, ns - latency_ns);
}

/* A device computes, and its link is busy beside; both know when they are free. */
struct clock {
	double computing_ns, link_ns;
};

/* Computes a layer when its weights, which take so long, have come; returns what that takes longer. */
static double wait_ns(const struct exchange *x, struct clock *clock, double gather, double scatter, double layer_ns)
{
	double exposed;

	clock->link_ns += gather;
	exposed = fmax(0, clock->link_ns - clock->computing_ns);
	clock->computing_ns += exposed + layer_ns;
	return exposed + x->how->sheet->overlap_cost * fmax(0, gather + scatter - exposed);
}

void pd_exchange_shard(const struct pd_estimate *how, const struct pd_split *split, const struct pd_model *model,
		       struct pd_layer_ns *times)
{
	const struct exchange x = { how, split, model, times };
	double weight_bytes = (double)pd_dtype_bytes(how->dtype), scatter = 0;
	struct clock clock = { 0, 0 };

	for (int l = 0; l < model->layer_count; l++)
		times[l].part[PD_COST_FORWARD] += wait_ns(&x, &clock, weights_ns(&x, l, weight_bytes), 0,
							  times[l].part[PD_COST_FORWARD]);
	clock = (struct clock){ 0, 0 };
	for (int l = model->layer_count - 1; l >= 0; l--) {
		double ns = times[l].part[PD_COST_INPUT] + times[l].part[PD_COST_WEIGHT], last = scatter;

		scatter = pd_layer_learns(&model->layers[l]) ? weights_ns(&x, l, sizeof(float)) : 0;
		times[l].part[PD_COST_INPUT] += wait_ns(&x, &clock, weights_ns(&x, l, weight_bytes), last, ns);
		clock.link_ns += last;          /* of the layer behind, which was computed meanwhile */
	}
	times[0].part[PD_COST_INPUT] += fmax(0, fmax(clock.link_ns, clock.computing_ns) + scatter - clock.computing_ns);
}
