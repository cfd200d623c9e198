/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of a network of equal decoder blocks, such as GPT and Llama, by which other systems build it. */
#pragma once

#include "doors/layout/blocks.h"

struct pd_decoder {
	int64_t hidden, heads, kv_heads, head_dim, feed_forward;
	int64_t vocabulary, positions;  /* positions: of a sample */
	int64_t learned_positions;      /* rows of a position embedding; 0: it has none */
	const struct pd_layer *norm;    /* the first: layernorm or rmsnorm */
	const struct pd_layer *rope;    /* NULL: it has none */
	bool gated;                     /* silu(gate) * up, else GELU */
	bool bias, qkv_bias;            /* of all linear layers of a block but queries', keys' and values'; of these */
	bool qk_norm;                   /* queries and keys are normalised */
	bool tied;                      /* the head has the embedding's weight */
	double attention_dropout, dropout;
};

/*
 * Tells whether a network is: an embedding of tokens, perhaps one of positions; equal blocks that normalise first,
 * each causal attention over all positions and a feed-forward network; a norm, a linear head and the loss.  Every
 * parameter is counted, so that nothing else is in it.
 */
bool pd_decoder_find(const struct pd_profile *profile, const struct pd_blocks *blocks,
		     struct pd_decoder *decoder_p);
