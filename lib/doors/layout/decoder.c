/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/decoder.h"

#include "model/layer.h"

#include <string.h>

/* What of a network is looked at: its layers from `begin` to before `end`. */
struct part {
	const struct pd_profile *profile;
	int begin, end;
};

static const struct pd_layer *layer_of(const struct part *part, int l)
{
	return &part->profile->model->layers[l];
}

/* Returns the n-th layer of a kind, from 0; or -1. */
static int find_kind(const struct part *part, enum pd_layer_kind kind, int n)
{
	for (int l = part->begin; l < part->end; l++)
		if (layer_of(part, l)->kind == kind && n-- == 0)
			return l;
	return -1;
}

static int64_t count_parameters(const struct part *part)
{
	int64_t sum = 0;

	for (int l = part->begin; l < part->end; l++)
		if (layer_of(part, l)->shares < 0)
			sum += layer_of(part, l)->parameter_elements;
	return sum;
}

/* Tells whether a part has layers of no other kinds than these, up to PD_LAYER_KINDS. */
static bool has_only(const struct part *part, const enum pd_layer_kind *kinds)
{
	for (int l = part->begin; l < part->end; l++) {
		const enum pd_layer_kind *kind = kinds;

		while (*kind != PD_LAYER_KINDS && *kind != layer_of(part, l)->kind)
			kind++;
		if (*kind == PD_LAYER_KINDS)
			return false;
	}
	return true;
}

static bool are_alike(const struct part *a, const struct part *b)
{
	char a_text[PD_ATTRIBUTE_TEXT], b_text[PD_ATTRIBUTE_TEXT];

	if (a->end - a->begin != b->end - b->begin)
		return false;
	for (int i = 0; i < a->end - a->begin; i++) {
		const struct pd_layer *one = layer_of(a, a->begin + i), *other = layer_of(b, b->begin + i);
		const char *from = pd_kinds[one->kind].attributes;

		if (one->kind != other->kind || pd_layer_difference(one, other, &from, a_text, b_text))
			return false;
	}
	return true;
}

/* Tells whether all linear layers of a part have a bias, or none, and which. */
static bool read_bias(const struct part *part, bool *bias_p)
{
	int first = find_kind(part, PD_LAYER_linear, 0), l;

	if (first < 0)
		return false;
	*bias_p = layer_of(part, first)->bias;
	for (int n = 1; (l = find_kind(part, PD_LAYER_linear, n)) >= 0; n++)
		if (layer_of(part, l)->bias != *bias_p)
			return false;
	return true;
}

/* Reads attention and what is before it. */
static bool read_attention(const struct part *block, int attention, struct pd_decoder *d)
{
	const struct part before = { block->profile, block->begin, attention };
	const struct pd_layer *layer = layer_of(block, attention);
	enum pd_layer_kind kind = layer_of(block, block->begin)->kind;
	int rope = find_kind(&before, PD_LAYER_rope, 0);

	if (kind != PD_LAYER_layernorm && kind != PD_LAYER_rmsnorm)
		return false;
	d->norm = layer_of(block, block->begin);
	d->hidden = d->norm->output.size[d->norm->output.dims - 1];
	d->positions = layer->output.size[0];
	d->heads = layer->heads;
	d->kv_heads = layer->kv_heads;
	d->head_dim = layer->output.size[layer->output.dims - 1] / layer->heads;
	d->attention_dropout = layer->p;
	d->rope = rope < 0 ? NULL : layer_of(block, rope);
	d->qk_norm = find_kind(&before, kind, 1) >= 0;
	return layer->causal && layer->window == 0 && layer->relative_buckets == 0 && layer->output.dims == 2 &&
	       find_kind(block, PD_LAYER_attention, 1) < 0 && read_bias(&before, &d->qkv_bias);
}

/* Reads what is behind attention. */
static bool read_feed_forward(const struct part *block, int attention, struct pd_decoder *d)
{
	const struct part behind = { block->profile, attention + 1, block->end };
	int silu = find_kind(&behind, PD_LAYER_silu, 0), gelu = find_kind(&behind, PD_LAYER_gelu, 0);
	int curve = silu >= 0 ? silu : gelu, dropout = find_kind(&behind, PD_LAYER_dropout, 0);
	const struct pd_shape *shape;

	if (curve < 0 || (silu >= 0 && gelu >= 0))
		return false;
	shape = &layer_of(block, curve)->output;
	d->gated = find_kind(&behind, PD_LAYER_mul, 0) >= 0;
	d->feed_forward = shape->size[shape->dims - 1];
	d->dropout = dropout < 0 ? 0 : layer_of(block, dropout)->p;
	return d->gated == (silu >= 0) && read_bias(&behind, &d->bias);
}

/* Returns the parameters of a block of such sizes. */
static int64_t block_parameters(const struct pd_decoder *d)
{
	int64_t queries = d->heads * d->head_dim, sides = 2 * d->kv_heads * d->head_dim;
	int64_t in = d->gated ? 2 * d->feed_forward : d->feed_forward;
	int64_t norm = d->norm->kind == PD_LAYER_layernorm ? 2 : 1;

	return d->hidden * (2 * queries + sides + in + d->feed_forward) + 2 * norm * d->hidden +
	       (d->qk_norm ? 2 * norm * d->head_dim : 0) + (d->qkv_bias ? queries + sides : 0) +
	       (d->bias ? 2 * d->hidden + in : 0);
}

static bool read_block(const struct part *block, struct pd_decoder *d)
{
	static const enum pd_layer_kind kinds[] = {
		PD_LAYER_linear, PD_LAYER_layernorm, PD_LAYER_rmsnorm, PD_LAYER_rope, PD_LAYER_attention, PD_LAYER_add,
		PD_LAYER_mul, PD_LAYER_silu, PD_LAYER_gelu, PD_LAYER_dropout, PD_LAYER_reshape, PD_LAYER_slice,
		PD_LAYER_KINDS
	};
	int attention = find_kind(block, PD_LAYER_attention, 0);

	return attention > block->begin && has_only(block, kinds) && read_attention(block, attention, d) &&
	       read_feed_forward(block, attention, d) && count_parameters(block) == block_parameters(d);
}

/* Reads the embeddings before the blocks. */
static bool read_embeddings(const struct part *part, struct pd_decoder *d)
{
	static const enum pd_layer_kind kinds[] = {
		PD_LAYER_embedding, PD_LAYER_position_embedding, PD_LAYER_dropout, PD_LAYER_KINDS
	};
	int tokens = find_kind(part, PD_LAYER_embedding, 0), places = find_kind(part, PD_LAYER_position_embedding, 0);

	if (tokens < 0 || !has_only(part, kinds))
		return false;
	d->vocabulary = layer_of(part, tokens)->num_embeddings;
	d->learned_positions = places < 0 ? 0 : layer_of(part, places)->num_embeddings;
	return !layer_of(part, tokens)->numbered && (places < 0) == (d->rope != NULL) &&
	       count_parameters(part) == (d->vocabulary + d->learned_positions) * d->hidden;
}

/* Reads the norm and the head behind them. */
static bool read_head(const struct part *part, struct pd_decoder *d)
{
	static const enum pd_layer_kind kinds[] = {
		PD_LAYER_layernorm, PD_LAYER_rmsnorm, PD_LAYER_linear, PD_LAYER_softmax_cross_entropy, PD_LAYER_KINDS
	};
	int norm = find_kind(part, d->norm->kind, 0), head = find_kind(part, PD_LAYER_linear, 0);
	int64_t parameters = d->hidden * (d->norm->kind == PD_LAYER_layernorm ? 2 : 1);

	if (norm < 0 || head < norm || !has_only(part, kinds))
		return false;
	d->tied = layer_of(part, head)->shares >= 0;
	return layer_of(part, head)->out_channels == d->vocabulary && !layer_of(part, head)->bias &&
	       count_parameters(part) == parameters + (d->tied ? 0 : d->vocabulary * d->hidden);
}

bool pd_decoder_find(const struct pd_profile *profile, const struct pd_blocks *blocks,
		     struct pd_decoder *decoder_p)
{
	int first = blocks->decoder_first, last = first + blocks->decoder_count;
	struct part block;

	*decoder_p = (struct pd_decoder){ 0 };
	if (!profile->model || blocks->decoder_count == 0)
		return false;
	block = (struct part){ profile, blocks->first[first], blocks->first[first + 1] };
	if (!read_block(&block, decoder_p))
		return false;
	for (int m = first + 1; m < last; m++)
		if (!are_alike(&block, &(struct part){ profile, blocks->first[m], blocks->first[m + 1] }))
			return false;
	return read_embeddings(&(struct part){ profile, 0, block.begin }, decoder_p) &&
	       read_head(&(struct part){ profile, blocks->first[last], profile->layer_count }, decoder_p);
}
