/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what transformers of all families are made of. */
#pragma once

#include "network/builder.h"

/* A transformer that is being built. */
struct pd_transformer {
	struct pd_network *network;
	const struct pd_network_size *size;
	const char *lengths;            /* input, or NULL */
	bool sees_all;                  /* attention is causal unless it does, or has lengths */
	/* of the block that is being built */
	int64_t window;                 /* of its attention; 0: none */
	bool is_rotated;                /* it has rotary positions */
	int64_t number;                 /* from 0; where attention's scale depends on it */
};

/* Heads keep their features, and their share of the heads of keys and values, as far as these divide. */
void pd_transformer_follow(struct pd_network_sizes *sizes);
/* Refuses sizes that do not fit each other. */
int pd_transformer_check(const char *family, const struct pd_network_size *size, struct pd_error *err);
/* The features of a head, and those inside a feed-forward part. */
int64_t pd_transformer_head_dim(const struct pd_network_size *size);
int64_t pd_transformer_feed_forward(const struct pd_network_size *size);
int64_t pd_transformer_embedding_features(const struct pd_network_size *size);

/* These add a layer, as pd_network_layer() does.  Weights begin normal, with the deviation. */
const char *pd_transformer_linear(const struct pd_transformer *t, const char *name, const char *in,
				  int64_t features, bool bias, double deviation);
const char *pd_transformer_embedding(const struct pd_transformer *t, const char *name, const char *in,
				     int64_t count);
/* The embedding of tokens, in which one may be padding. */
const char *pd_transformer_tokens(const struct pd_transformer *t, const char *name);
const char *pd_transformer_positions(const struct pd_transformer *t, const char *name, const char *in);
const char *pd_transformer_sum(const struct pd_transformer *t, const char *name, const char *a,
			       const char *b);
/* A normalisation of kind layernorm or rmsnorm. */
const char *pd_transformer_norm(const struct pd_transformer *t, const char *kind, const char *name,
				const char *in);
/* That of the size's norm_kind, over the last of `dims` axes, which has so many features. */
const char *pd_transformer_norm_of(const struct pd_transformer *t, const char *name, const char *in,
				   int64_t features, int dims);
/* Each of its layers is called "PREFIX.KIND". */
const char *pd_transformer_activation(const struct pd_transformer *t, const char *prefix, const char *in);
const char *pd_transformer_activation_of(const struct pd_transformer *t,
					 enum pd_network_activation activation,
					 const char *prefix, const char *in);
/* Of queries, keys and values. */
const char *pd_transformer_attention(const struct pd_transformer *t, const char *name,
				     const char *const qkv[3]);
/* The classifier of tokens, without bias: with the embedding's weight, or with one of its own. */
const char *pd_transformer_classifier(const struct pd_transformer *t, const char *name, const char *in,
				      const char *embedding, bool tied);
/* The loss, which is called so too, of the input "labels". */
void pd_transformer_loss(const struct pd_transformer *t, const char *in);

/* Builds a causal transformer with the size's traits. */
int pd_causal_build(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err);
/* BERT that normalises first, as Megatron-LM has it. */
void pd_megatron_bert(struct pd_network *network, const struct pd_network_size *size);
