/* SPDX-License-Identifier: Apache-2.0 */
/* Masks of attention, which are known by what they hide. */
#include "doors/onnx/attention.h"

#include "base/mem.h"

#include <stdlib.h>

/* Does a mask show a key?  1, 0, or -1: it is neither. */
static int shows(const struct array *mask, int64_t i)
{
	double number = array_real(mask, i);

	if (mask->whole)
		return number != 0;
	return number == 0 ? 1 : number <= -1e4 ? 0 : -1;
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
		struct constants room = { .most = g->constants.most };
		const struct array *is = padding(&room, &like, g->batch, keys, trial, lengths), *made;

		made = is ? graph_compute(g, &room, mask, input, is) : NULL;
		found = made && made->dims > 2 && hides(made, lengths, g->batch, queries, keys, causal, 0);
		constants_release(&room);
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
		    "sample, or a bias of relative positions as T5 has it";
}

const struct mask *mask_of(struct graph *g, struct value *value, int64_t queries, int64_t keys)
{
	struct mask *made;

	if (value->mask)
		return value->mask;
	made = pd_arena_take(&g->constants.arena, 1, sizeof(*made));
	find_mask(g, value, queries, keys, made);
	return value->mask = made;
}
