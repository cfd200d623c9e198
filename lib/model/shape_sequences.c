/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of layers of sequences. */
#include "model/infer.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>

/* Rows of features, and a length for each sample, which is at most so many rows. */
static int need_sequences(const struct infer *w, int sequences, int64_t longest)
{
	char text[PD_SHAPE_TEXT];

	for (int i = 0; i < sequences; i++)
		if (infer_input(w, i)->dims != 2)
			return infer_error(w, "needs sequences (positions x features), found %s",
					pd_shape_text(infer_input(w, i), text));
	return w->layer->input_count == sequences ? 0 : infer_needs_lengths(w, sequences, longest);
}

/* Do heads divide what they share? */
static int need_heads(const struct infer *w)
{
	const struct pd_layer *layer = w->layer;
	int64_t queries = w->in->size[1], keys = infer_input(w, 1)->size[1];
	int64_t values = infer_input(w, 2)->size[1];

	if (queries % layer->heads)
		return infer_error(w, "has %" PRId64 " heads: expected a divisor of its queries' %" PRId64
				" features", layer->heads, queries);
	if (layer->heads % layer->kv_heads)
		return infer_error(w, "has %" PRId64 " heads of keys and values: expected a divisor of "
				"its %" PRId64 " heads", layer->kv_heads, layer->heads);
	if (keys != queries / layer->heads * layer->kv_heads)
		return infer_error(w, "has keys of %" PRId64 " features: expected %" PRId64 ", as many "
				"for each head as its queries have", keys,
				queries / layer->heads * layer->kv_heads);
	if (values % layer->kv_heads)
		return infer_error(w, "has values of %" PRId64 " features: expected a multiple of its %"
				PRId64 " heads of keys and values", values, layer->kv_heads);
	return 0;
}

/* A bias of scores by how far a key is from the query. */
static int add_relative_bias(const struct infer *w)
{
	const struct pd_layer *layer = w->layer;
	int64_t half = layer->causal ? layer->relative_buckets : layer->relative_buckets / 2;

	if (layer->relative_buckets == 0)
		return 0;
	if (half < 2 || (!layer->causal && layer->relative_buckets % 2))
		return infer_error(w, "has relative_buckets %" PRId64 ": expected %s", layer->relative_buckets,
				layer->causal ? "2 or more" : "an even number from 4 on, half of them for keys "
				"behind the query");
	if (layer->max_distance <= half / 2)
		return infer_error(w, "has max_distance %" PRId64 ": expected more than the %" PRId64 " distances that "
				"have a bucket each", layer->max_distance, half / 2);
	return infer_parameter(w, "weight", 2, (int64_t[]){ layer->relative_buckets, layer->heads });
}

int infer_attention(const struct infer *w)
{
	const struct pd_shape *keys = infer_input(w, 1), *values = infer_input(w, 2);
	struct pd_layer *layer = w->layer;
	int64_t draws;

	if (need_sequences(w, 3, keys->size[0]) < 0)
		return -1;
	if (keys->size[0] != values->size[0])
		return infer_error(w, "has %" PRId64 " keys and %" PRId64 " values: expected as many",
				keys->size[0], values->size[0]);
	if (need_heads(w) < 0)
		return -1;
	if (layer->window > 0 && !layer->causal)
		return infer_error(w, "has a window of %" PRId64 ": expected \"causal\": true, since a window "
				"ends at the query", layer->window);
	layer->output = (struct pd_shape){ 2, { w->in->size[0] } };
	/* at most 2^30 heads of 2^30 features */
	layer->output.size[1] = values->size[1] / layer->kv_heads * layer->heads;
	if (layer->scale == 0)
		layer->scale = 1 / sqrt((double)(w->in->size[1] / layer->heads));
	if (layer->p > 0 && (!pd_mul(layer->heads * w->in->size[0], keys->size[0], &draws) ||
			     draws >= PD_MAX_ELEMENTS))
		return infer_error(w, "has 2^40 or more probabilities in a sample, too many for "
				"dropout");
	return add_relative_bias(w);
}

int infer_additive_attention(const struct infer *w)
{
	const struct pd_shape *keys = infer_input(w, 1);
	struct pd_layer *layer = w->layer;
	int64_t square[2];

	if (need_sequences(w, 2, keys->size[0]) < 0)
		return -1;
	if (keys->size[1] != w->in->size[1])
		return infer_error(w, "has keys of %" PRId64 " features: expected %" PRId64
				", as its queries have", keys->size[1], w->in->size[1]);
	square[0] = square[1] = w->in->size[1];
	layer->output = *w->in;
	if (infer_uniform(w, "query_weight", 2, square, square[0]) < 0 ||
	    infer_uniform(w, "key_weight", 2, square, square[0]) < 0 ||
	    infer_uniform(w, "weight", 1, square, square[0]) < 0 ||
	    infer_parameter(w, "scale", 1, (int64_t[]){ 1 }) < 0 ||
	    infer_parameter(w, "bias", 1, square) < 0)
		return -1;
	layer->parameters[3].value = 1 / sqrtf((float)square[0]);
	return 0;
}

/*
 * Rows by position among numbers other than the padding: as many as there are positions, and behind
 * it.
 */
static int need_numbered(const struct infer *w)
{
	const struct pd_layer *layer = w->layer;
	int64_t most = w->in->dims == 1 ? layer->num_embeddings - 1 - w->in->size[0] : -1;

	if (layer->weight_dropout > 0)
		return infer_error(w, "is numbered and has weight_dropout: expected one of the "
				      "two");
	return layer->padding_idx >= 0 && layer->padding_idx <= most ? 0 :
	       infer_error(w, "is numbered: expected an input of one dimension, a padding_idx, "
			      "and behind it an "
			   "embedding for each position");
}

int infer_embedding(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	char text[PD_SHAPE_TEXT];

	if (w->in->dims == PD_MAX_DIMS)
		return infer_error(w, "needs an input of fewer than %d dimensions, found %s",
				PD_MAX_DIMS, pd_shape_text(w->in, text));
	if (layer->padding_idx >= layer->num_embeddings)
		return infer_error(w, "has padding_idx %" PRId64 ": expected one below its %" PRId64
				" embeddings", layer->padding_idx, layer->num_embeddings);
	if (layer->numbered && need_numbered(w) < 0)
		return -1;
	layer->output = *w->in;
	layer->output.size[layer->output.dims++] = layer->embedding_dim;
	layer->index_limit = layer->numbered ? 0 : layer->num_embeddings;
	if (infer_parameter(w, "weight", 2,
			  (int64_t[]){ layer->num_embeddings, layer->embedding_dim }) < 0)
		return -1;
	layer->parameters[0].zero_row = layer->padding_idx;
	return 0;
}

static int need_positions(const struct infer *w)
{
	char text[PD_SHAPE_TEXT];

	return w->in->dims >= 2 ? 0 : infer_error(w, "needs an input of two dimensions or more "
					       "(positions first, features last), found %s",
					       pd_shape_text(w->in, text));
}

int infer_position_embedding(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	struct pd_shape weight = *w->in;

	layer->output = *w->in;
	if (need_positions(w) < 0)
		return -1;
	if (layer->num_embeddings == 0)         /* left out */
		layer->num_embeddings = layer->start + w->in->size[0];
	if (layer->num_embeddings - layer->start < w->in->size[0])
		return infer_error(w, "has %" PRId64 " embeddings from %" PRId64 " on: expected "
										 "at least its %"
				   PRId64 " positions", layer->num_embeddings - layer->start, layer->start,
				   w->in->size[0]);
	weight.size[0] = layer->num_embeddings;
	return infer_parameter(w, "weight", weight.dims, weight.size);
}

int infer_rope(const struct infer *w)
{
	struct pd_layer *layer = w->layer;
	int64_t width;

	layer->output = *w->in;
	if (need_positions(w) < 0)
		return -1;
	width = pd_shape_width(w->in);
	if (layer->head_dim == 0)       /* left out */
		layer->head_dim = width;
	if (layer->high_freq_factor <= layer->low_freq_factor)
		return infer_error(w, "has high_freq_factor %g: expected more than its low_freq_factor, %g",
				layer->high_freq_factor, layer->low_freq_factor);
	if (layer->head_dim % 2 || width % layer->head_dim)
		return infer_error(w, "has head_dim %" PRId64 ": expected an even divisor of its "
							      "%" PRId64
				   " features", layer->head_dim, width);
	if (layer->rotary_dim == 0)     /* left out */
		layer->rotary_dim = layer->head_dim;
	return layer->rotary_dim % 2 == 0 && layer->rotary_dim <= layer->head_dim ? 0 :
	       infer_error(w, "has rotary_dim %" PRId64 ": expected an even number up to its "
							"head_dim, %"
			   PRId64, layer->rotary_dim, layer->head_dim);
}

/* Adds a parameter of one direction; each begins as in PyTorch. */
static int add_gates(const struct infer *w, const char *name, int dims, int64_t columns)
{
	int64_t hidden = w->layer->hidden_size;

	return infer_uniform(w, name, dims, (int64_t[]){ 4 * hidden, columns }, hidden);
}

static int add_direction(const struct infer *w, const char *const names[4])
{
	const struct pd_layer *layer = w->layer;

	if (add_gates(w, names[0], 2, w->in->size[1]) < 0 ||
	    add_gates(w, names[1], 2, layer->hidden_size) < 0)
		return -1;
	for (int64_t b = 0; b < layer->biases; b++)
		if (add_gates(w, names[2 + b], 1, 0) < 0)
			return -1;
	return 0;
}

int infer_lstm(const struct infer *w)
{
	static const char *const names[2][4] = {
		{ "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0" },
		{ "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
		  "bias_hh_l0_reverse" },
	};
	struct pd_layer *layer = w->layer;
	int64_t size[] = { layer->lanes, layer->hidden_size };
	char text[PD_SHAPE_TEXT];

	if (w->in->dims != 2)
		return infer_error(w, "needs an input of two dimensions (steps x features), found %s",
				pd_shape_text(w->in, text));
	if (layer->lanes > 0 && layer->bidirectional)
		return infer_error(w, "has lanes and is bidirectional: expected one of the two, since "
				"the reversed direction begins at the end");
	if (!layer->bias)
		layer->biases = 0;
	layer->output = (struct pd_shape){ 2, { w->in->size[0],
						layer->hidden_size * (layer->bidirectional ? 2 : 1) } };
	layer->index_least = layer->input_count > 1;
	if ((layer->input_count > 1 && infer_needs_lengths(w, 1, w->in->size[0]) < 0) ||
	    add_direction(w, names[0]) < 0 ||
	    (layer->bidirectional && add_direction(w, names[1]) < 0))
		return -1;
	return layer->lanes == 0 ? 0 : infer_state(w, "hidden", 2, size) < 0 ||
					infer_state(w, "cell", 2, size) < 0 ? -1 : 0;
}

