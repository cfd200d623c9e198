/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/split.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_BETWEEN 64         /* layers of a pair and between its two */
#define LEAST_ROWS 16           /* of an embedding, or classes of a classifier, for each device that shares it */

struct finder {
	const struct pd_model *model;
	struct pd_split *split;
	int exit;                       /* the layer behind the features: linear, or the loss */
	int count, region[MOST_BETWEEN];
};

static const struct pd_layer *layer_of(const struct finder *f, int l)
{
	return &f->model->layers[l];
}

static bool is_in_region(const struct finder *f, int l)
{
	for (int r = 0; r < f->count; r++)
		if (f->region[r] == l)
			return true;
	return false;
}

/* Collects the layers between the exit and the linear layers before it, and these; false: there is another kind. */
static bool collect(struct finder *f, int tensor)
{
	int l = pd_model_producer(f->model, tensor);

	if (l < 0)
		return pd_model_dtype(f->model, tensor) == PD_I32;      /* lengths, labels */
	if (is_in_region(f, l))
		return true;
	if (f->split->layers[l].kind != PD_SPLIT_WHOLE || f->count == MOST_BETWEEN)
		return false;
	f->region[f->count++] = l;
	if (layer_of(f, l)->kind == PD_LAYER_linear)
		return true;
	if (!pd_cost_by_features(layer_of(f, l)))
		return false;
	for (int i = 0; i < layer_of(f, l)->input_count; i++)
		if (!collect(f, layer_of(f, l)->inputs[i]))
			return false;
	return true;
}

/* Tells whether nobody else uses what is in the region. */
static bool is_closed(const struct finder *f)
{
	const struct pd_uses *uses = &f->model->uses;

	for (int r = 0; r < f->count; r++) {
		int tensor = f->model->input_count + f->region[r];

		for (size_t u = uses->first[tensor]; u < uses->first[tensor + 1]; u++)
			if (uses->users[u] != f->exit && !is_in_region(f, uses->users[u]))
				return false;
	}
	return true;
}

static int check_divides(const struct finder *f, int l, const char *what, int64_t found, struct pd_error *err)
{
	if (found % f->split->devices == 0)
		return 0;
	return pd_error_input(err, "layer \"%.60s\" has %" PRId64 " %s, which %" PRId64 " devices cannot share out",
			      layer_of(f, l)->name, found, what, f->split->devices);
}

static int check_layer(const struct finder *f, int l, struct pd_error *err)
{
	const struct pd_layer *layer = layer_of(f, l);

	if (layer->kind == PD_LAYER_attention && check_divides(f, l, "heads", layer->heads, err) < 0)
		return -1;
	if (layer->kind == PD_LAYER_attention && check_divides(f, l, "heads of keys", layer->kv_heads, err) < 0)
		return -1;
	return check_divides(f, l, "features", pd_shape_width(&layer->output), err);
}

/* Linear layers that read the same input are one product: finds those beside each. */
static void join(struct finder *f)
{
	for (int r = 0; r < f->count; r++) {
		const struct pd_layer *layer = layer_of(f, f->region[r]);
		struct pd_split_layer *at = &f->split->layers[f->region[r]];
		double columns = 0;

		at->first = f->region[r];
		for (int k = 0; k < f->count && at->kind == PD_SPLIT_COLUMNS; k++) {
			const struct pd_layer *other = layer_of(f, f->region[k]);

			if (other->kind != PD_LAYER_linear || other->inputs[0] != layer->inputs[0])
				continue;
			columns += (double)pd_shape_width(&other->output);
			at->first = f->region[k] < at->first ? f->region[k] : at->first;
		}
		at->beside = columns > 0 ? columns / (double)pd_shape_width(&layer->output) : 1;
	}
}

static bool has_linear(const struct finder *f)
{
	for (int r = 0; r < f->count; r++)
		if (layer_of(f, f->region[r])->kind == PD_LAYER_linear)
			return true;
	return false;
}

static void take_exit(struct finder *f, enum pd_split_kind exit)
{
	for (int r = 0; r < f->count; r++)
		f->split->layers[f->region[r]].kind = layer_of(f, f->region[r])->kind == PD_LAYER_linear
			? PD_SPLIT_COLUMNS : PD_SPLIT_FEATURES;
	join(f);
	f->split->layers[f->exit].kind = exit;
}

/* Makes a layer the second of a pair, if it can be. */
static int try_pair(struct finder *f, int l, struct pd_error *err)
{
	f->exit = l;
	f->count = 0;
	if (f->split->layers[l].kind != PD_SPLIT_WHOLE || !collect(f, layer_of(f, l)->inputs[0]) || !is_closed(f) ||
	    !has_linear(f))
		return 0;
	for (int r = 0; r < f->count; r++)
		if (check_layer(f, f->region[r], err) < 0)
			return -1;
	take_exit(f, PD_SPLIT_ROWS);
	f->split->pairs++;
	return 0;
}

/* Shares out the classes before a loss, if there are many. */
static void try_loss(struct finder *f, int l)
{
	const struct pd_shape *classes = pd_model_shape(f->model, layer_of(f, l)->inputs[0]);

	f->exit = l;
	f->count = 0;
	if (classes->dims > 0 && pd_shape_width(classes) >= LEAST_ROWS * f->split->devices &&
	    collect(f, layer_of(f, l)->inputs[0]) && is_closed(f) && has_linear(f))
		take_exit(f, PD_SPLIT_FEATURES);
}

static int find_exits(struct finder *f, struct pd_error *err)
{
	for (int l = 0; l < f->model->layer_count; l++) {
		const struct pd_layer *layer = layer_of(f, l);

		if (layer->kind == PD_LAYER_linear && try_pair(f, l, err) < 0)
			return -1;
		if (layer->kind == PD_LAYER_softmax_cross_entropy)
			try_loss(f, l);
		if (layer->kind == PD_LAYER_embedding && layer->num_embeddings >= LEAST_ROWS * f->split->devices)
			f->split->layers[l].kind = PD_SPLIT_VOCABULARY;
	}
	if (f->split->pairs > 0)
		return 0;
	return pd_error_input(err, "model \"%.60s\" has no pair of linear layers that %" PRId64 " devices could share "
			      "out: expected two with nothing but activations, attention or dropout between them",
			      f->model->name, f->split->devices);
}

int pd_split_find(const struct pd_model *model, int64_t devices, bool sequence, struct pd_split *out_p,
		  struct pd_error *err)
{
	struct finder f = { .model = model, .split = out_p };

	*out_p = (struct pd_split){ devices, sequence && devices > 1, 0,
				    pd_calloc((size_t)model->layer_count, sizeof(*out_p->layers)) };
	for (int l = 0; l < model->layer_count; l++)
		out_p->layers[l] = (struct pd_split_layer){ PD_SPLIT_WHOLE, l, 1 };
	if (devices == 1 || find_exits(&f, err) == 0)
		return 0;
	pd_split_release(out_p);
	return -1;
}

void pd_split_release(struct pd_split *split)
{
	free(split->layers);
	split->layers = NULL;
}

/* Tells whether a layer that is not split can run on a part of the rows: it has no products but a linear layer's. */
static bool is_by_rows(const struct pd_model *model, int layer)
{
	const struct pd_cost_layer of = { .model = model, .layer = &model->layers[layer], .batch = 1, .dtype = PD_F32,
					  .share = PD_SHARE_ALL };
	struct pd_cost cost;

	pd_cost_count(&of, PD_COST_FORWARD, &cost);
	return of.layer->kind == PD_LAYER_linear || cost.product_count == 0;
}

struct pd_share pd_split_share(const struct pd_split *split, const struct pd_model *model, int layer)
{
	const struct pd_split_layer *at = &split->layers[layer];
	struct pd_share share = PD_SHARE_ALL;

	share.beside = at->beside;
	switch (at->kind) {
	case PD_SPLIT_COLUMNS:
		share.output = share.parameters = split->devices;
		break;
	case PD_SPLIT_ROWS:
		share.inputs = share.parameters = split->devices;
		break;
	case PD_SPLIT_FEATURES:
		share.inputs = share.output = share.parameters = split->devices;
		break;
	case PD_SPLIT_VOCABULARY:
		share.parameters = split->devices;
		break;
	case PD_SPLIT_WHOLE:
		share.rows = split->sequence && is_by_rows(model, layer) ? split->devices : 1;
		break;
	}
	return share;
}
