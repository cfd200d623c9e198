/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention, which is one node from opset 23 on.  Heads lie side by side in our layers, and one that serves
 * several heads of queries is there once; masks are known by what they hide.
 */
#include "network/onnx/translate.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* What a mask hides. */
struct mask {
	bool causal;
	int64_t window;                 /* how many keys a query sees, the last ones; 0: all */
	int lengths;                    /* the input with the number of keys of each sample; -1: all are seen */
	const char *why;                /* it is none of these: the reason */
};

/* Does a mask show a key?  1, 0, or -1: it is neither. */
static int shows(const struct array *mask, int64_t i)
{
	double number = array_real(mask, i);

	if (mask->whole)
		return number != 0;
	return number == 0 ? 1 : number < -1e30 ? 0 : -1;
}

/*
 * Is a mask of queries and keys all that lengths (NULL: all keys) and, with `causal`, an order in time and a
 * window (0: none) hide?  Axes before these two are the samples, and perhaps more.
 */
static bool hides(const struct array *mask, const int64_t *lengths, int64_t batch, int64_t queries, int64_t keys,
		  bool causal, int64_t window)
{
	int64_t rows = mask->dims > 1 ? mask->size[mask->dims - 2] : 1, columns = mask->size[mask->dims - 1];
	int64_t samples = mask->dims > 2 ? mask->size[0] : 1, part = mask->elements / samples;

	if ((columns != keys && (columns != 1 || lengths || causal)) || (rows != queries && (rows != 1 || causal)) ||
	    (samples != batch && (samples != 1 || lengths)) || (causal && queries != keys))
		return false;
	for (int64_t i = 0; i < mask->elements; i++) {
		int64_t key = i % columns, query = i / columns % rows;
		bool seen = (!lengths || key < lengths[i / part]) && (!causal || key <= query) &&
			    (!window || key > query - window);

		if (shows(mask, i) != seen)
			return false;
	}
	return true;
}

/* Counts the keys that the last query sees: all of a window. */
static int64_t seen_last(const struct array *mask)
{
	int64_t columns = mask->size[mask->dims - 1], seen = 0;

	for (int64_t i = mask->elements - columns; i < mask->elements; i++)
		seen += shows(mask, i) == 1;
	return seen;
}

#define TRIALS 4

/* Sets the mask that an input of the network has where samples have these lengths. */
static struct array *padding(struct constants *room, const struct array *like, int64_t batch, int64_t keys,
			     int trial, int64_t *lengths)
{
	struct array *is = array_new(room, like, 2, (int64_t[]){ batch, keys });

	for (int64_t b = 0; is && b < batch; b++) {
		lengths[b] = trial == 0 ? keys : 1 + (b * 5 + trial * 3) % keys;
		for (int64_t k = 0; k < keys; k++)
			array_set(is, b * keys + k, k < lengths[b], k < lengths[b]);
	}
	return is;
}

/* Does a mask hide what is behind the length of a sample, if an input of the network says 1 before it? */
static bool by_lengths(struct graph *g, const struct value *mask, const struct value *input, int64_t queries,
		       int64_t keys, bool causal)
{
	const struct array like = { .whole = !pd_onnx_is_float(input->known->type),
				    .truth = input->known->type == PD_ONNX_BOOL };
	int64_t *lengths = pd_calloc((size_t)g->batch, sizeof(*lengths));
	bool found = true;

	for (int trial = 0; found && trial < TRIALS; trial++) {
		struct constants room = { .bytes = 0 };
		const struct array *is = padding(&room, &like, g->batch, keys, trial, lengths), *made;

		made = is ? graph_compute(g, &room, mask, input, is) : NULL;
		found = made && made->dims > 2 && hides(made, lengths, g->batch, queries, keys, causal, 0);
		pd_arena_release(&room.arena);
	}
	free(lengths);
	return found;
}

/* Adds an input with the length of each sample, in place of a mask. */
static int lengths_input(struct graph *g)
{
	const char *name = graph_find(g, "length") ? "mask_length" : "length";
	int input;

	for (int i = 0; i < g->layer_count; i++)
		if (!g->layers[i].kind && g->layers[i].name && strcmp(g->layers[i].name, name) == 0)
			return i;
	input = layer_add(g, NULL, NULL, 0, NULL, &(struct extent){ 0 }, NULL);
	g->layers[input].name = name;
	g->layers[input].whole = true;
	return input;
}

static void find_mask(struct graph *g, const struct value *value, int64_t queries, int64_t keys, struct mask *mask)
{
	mask->lengths = -1;
	for (int way = 0; value->constant && value->constant->dims > 0 && way < 3; way++) {
		mask->causal = way > 0;
		mask->window = way > 1 ? seen_last(value->constant) : 0;
		if (hides(value->constant, NULL, g->batch, queries, keys, mask->causal, mask->window))
			return;
	}
	for (size_t i = 0; !value->constant && i < 2 * g->onnx->inputs; i++) {
		const struct value *input = graph_find(g, g->onnx->input[i / 2].name);

		if (input->known->dims == 2 && input->known->size[1] == keys &&
		    by_lengths(g, value, input, queries, keys, i % 2)) {
			mask->causal = i % 2;
			mask->lengths = lengths_input(g);
			return;
		}
	}
	mask->why = "expected one that hides nothing, the future, what is behind a window, or behind the length of a "
		    "sample";
}

static const struct mask *mask_of(struct graph *g, struct value *value, int64_t queries, int64_t keys)
{
	struct mask *made;

	if (value->mask)
		return value->mask;
	made = pd_arena_take(&g->constants.arena, 1, sizeof(*made));
	find_mask(g, value, queries, keys, made);
	return value->mask = made;
}

/* Shows [B, H, T, d] as [B, T, H d], where heads that are repeated are there once; *heads_p: how many these are. */
static int side_by_side(const struct pd_onnx_node *node, const struct view *from, struct view *out,
			int64_t *heads_p, struct pd_error *err)
{
	bool room, repeated = false;

	if (from->axes != 4 || !view_counts(from, 0))
		return graph_error(node, err, "expected axes for samples, heads, positions and features");
	*out = (struct view){ .base = from->base, .offset = from->offset };
	*heads_p = 1;
	room = view_axis_of(out, from, 0) && view_axis_of(out, from, 2) && view_axis(out);
	for (int k = from->first[1]; room && k < from->first[2]; k++) {
		if (from->factor[k].stride == REPEATED) {
			repeated = true;
			continue;
		}
		if (repeated)
			return graph_error(node, err, "repeats all heads one after the other: expected each several times");
		*heads_p *= from->factor[k].size;
		room = view_factor(out, from->factor[k].size, from->factor[k].stride);
	}
	for (int k = from->first[3]; room && k < from->first[4]; k++)
		room = view_factor(out, from->factor[k].size, from->factor[k].stride);
	return room ? 0 : graph_error(node, err, "has too many axes");
}

static int check(const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t i = 4; i < node->inputs; i++)
		if (*node->input[i])
			return graph_error(node, err, "goes on with keys of earlier positions: expected all at once; "
					   "export with use_cache=False");
	if (number_of(node, "softcap", 0) != 0)
		return graph_error(node, err, "caps its scores (softcap): attention has no cap");
	return 0;
}

/* Places queries, keys and values, and counts their heads. */
static int place_heads(struct graph *g, const struct pd_onnx_node *node, const struct view *views[3],
		       int base[3], int64_t heads[3], struct pd_error *err)
{
	for (size_t i = 0; i < 3; i++) {
		struct extent sample;
		struct view shown;

		if ((i < 2 ? graph_scaled_view : graph_view)(g, node, i, &views[i], err) < 0 ||
		    side_by_side(node, views[i], &shown, &heads[i], err) < 0 ||
		    place(g, &shown, node, &base[i], &sample, err) < 0)
			return -1;
	}
	return heads[1] == heads[2] ? 0 : graph_error(node, err, "has other heads of values than of keys");
}

static json_t *attributes_of(const struct pd_onnx_node *node, const struct view *const views[3],
			     const int64_t heads[3], const struct mask *mask)
{
	json_t *attributes = json_pack("{s:I}", "heads", (json_int_t)heads[0]);
	double usual = 1 / sqrt((double)view_size(views[0], 3)), scale = number_of(node, "scale", usual);

	for (int i = 0; i < 2; i++)
		scale *= views[i]->scaled ? views[i]->by : 1;
	if (heads[1] != heads[0])
		pd_json_set(attributes, "kv_heads", json_integer(heads[1]));
	if (integer_of(node, "is_causal", 0) || (mask && mask->causal))
		pd_json_set(attributes, "causal", json_true());
	if (mask && mask->window > 0)
		pd_json_set(attributes, "window", json_integer(mask->window));
	if (fabs(scale - usual) > 1e-6 * usual)
		pd_json_set(attributes, "scale", json_real(shortest(scale)));
	return attributes;
}

int translate_attention(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	struct value *given = graph_in(g, node, 3);
	const struct mask *mask = NULL;
	const struct view *views[3];
	int base[4], layer;
	int64_t heads[3], queries, width;
	struct view out;

	if (check(node, err) < 0 || place_heads(g, node, views, base, heads, err) < 0)
		return -1;
	queries = view_size(views[0], 2);
	width = view_size(views[2], 3);
	if (given)
		mask = mask_of(g, given, queries, view_size(views[1], 2));
	if (mask && mask->why)
		return graph_error(node, err, "has a mask, %.100s: %s", given->name, mask->why);
	base[3] = mask && mask->lengths >= 0 ? mask->lengths : -1;
	layer = layer_add(g, "attention", node, base[3] >= 0 ? 4 : 3, base,
			  &(struct extent){ 2, { queries, heads[0] * width } },
			  attributes_of(node, views, heads, mask));
	out = (struct view){ .base = layer };
	view_axis(&out);
	view_factor(&out, g->batch, SAMPLES);
	view_axis(&out);
	view_factor(&out, heads[0], width);
	view_axis(&out);
	view_factor(&out, queries, heads[0] * width);
	view_axis(&out);
	view_factor(&out, width, 1);
	return graph_set(g, node, &out);
}
