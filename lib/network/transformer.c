/* SPDX-License-Identifier: Apache-2.0 */
/* Queries, keys and values are layers of their own, so that a planner sees them. */
#include "network/transformer.h"

#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define MOST_BLOCK_LAYERS 50            /* a block has no more layers */

static int64_t nearest_multiple(int64_t of, int64_t to)
{
	int64_t half = of / 2;

	return to < of ? of : (to + half) / of * of;
}

/* Returns the most heads, up to `most`, for so many features: each has an even number where that can be. */
static int64_t heads_for(int64_t hidden, int64_t most, int64_t kv_heads)
{
	int64_t even = hidden % 2 == 0 ? 2 : 1, heads = most < kv_heads ? kv_heads : most;

	while (heads > 1 && (hidden % (even * heads) != 0 || heads % kv_heads != 0))
		heads--;
	return heads;
}

static void follow_dropout(struct pd_network_sizes *sizes)
{
	const struct pd_network_size *preset = &sizes->preset, *given = &sizes->given;

	if (given->dropout >= 0 && given->attention_dropout < 0 &&
	    preset->attention_dropout == preset->dropout)
		sizes->size.attention_dropout = given->dropout;
}

void pd_transformer_follow(struct pd_network_sizes *sizes)
{
	const struct pd_network_size *preset = &sizes->preset, *given = &sizes->given;
	struct pd_network_size *size = &sizes->size;
	bool kv = preset->kv_heads != PD_NETWORK_UNSAID, kv_given = given->kv_heads != PD_NETWORK_UNSAID;
	int64_t kv_heads = kv_given ? size->kv_heads : 1, share = kv ? preset->heads / preset->kv_heads : 1;
	int64_t even = kv ? 2 : 1;      /* what is rotated has an even number of features */

	follow_dropout(sizes);
	if (given->heads == PD_NETWORK_UNSAID && given->hidden != PD_NETWORK_UNSAID)
		size->heads = heads_for(size->hidden, size->hidden * preset->heads / preset->hidden,
					kv_heads);
	else if (given->heads == PD_NETWORK_UNSAID)
		size->heads = nearest_multiple(kv_heads, preset->heads);
	if (given->hidden == PD_NETWORK_UNSAID && size->head_dim <= 0)
		size->hidden = nearest_multiple(even * size->heads, preset->hidden);
	while (size->heads % share != 0)
		share--;
	if (kv && !kv_given)
		size->kv_heads = size->heads / share;
	if (preset->feed_forward != PD_NETWORK_UNSAID && given->feed_forward == PD_NETWORK_UNSAID)
		size->feed_forward = (int64_t)ceil((double)preset->feed_forward / (double)preset->hidden *
						   (double)size->hidden);
}

int pd_transformer_check(const char *family, const struct pd_network_size *size, struct pd_error *err)
{
	int64_t most = PD_MAX_LAYERS / MOST_BLOCK_LAYERS;

	if (size->layers > most)
		return pd_error_input(err, "--layers=%" PRId64 ": %s expects at most %" PRId64,
				      size->layers, family, most);
	if (size->head_dim <= 0 && size->hidden % size->heads != 0)
		return pd_error_input(err, "--heads=%" PRId64 ": %s expects a divisor of its %" PRId64
				      " hidden features", size->heads, family, size->hidden);
	if (size->kv_heads != PD_NETWORK_UNSAID && size->heads % size->kv_heads != 0)
		return pd_error_input(err, "--kv-heads=%" PRId64 ": %s expects a divisor of its %" PRId64
				      " heads", size->kv_heads, family, size->heads);
	return 0;
}

int64_t pd_transformer_head_dim(const struct pd_network_size *size)
{
	return size->head_dim > 0 ? size->head_dim : size->hidden / size->heads;
}

int64_t pd_transformer_feed_forward(const struct pd_network_size *size)
{
	return size->feed_forward > 0 ? size->feed_forward : 4 * size->hidden;
}

static const char *begins(const struct pd_transformer *t, double deviation)
{
	return pd_network_name(t->network, "normal(%g)", deviation);
}

const char *pd_transformer_linear(const struct pd_transformer *t, const char *name, const char *in,
				  int64_t features, bool bias, double deviation)
{
	const char *init = begins(t, deviation);

	return bias ? pd_network_layer(t->network, "linear", name, in, "{s:I, s:{s:s}}", "out_features",
				       (json_int_t)features, "init", "weight", init)
		    : pd_network_layer(t->network, "linear", name, in, "{s:I, s:b, s:{s:s}}",
				       "out_features", (json_int_t)features, "bias", 0, "init", "weight",
				       init);
}

int64_t pd_transformer_embedding_features(const struct pd_network_size *size)
{
	return size->embedding_features > 0 ? size->embedding_features : size->hidden;
}

/* The attributes of an embedding of so many rows. */
static json_t *rows(const struct pd_transformer *t, int64_t count)
{
	return json_pack("{s:I, s:I, s:{s:s}}", "num_embeddings", (json_int_t)count, "embedding_dim",
			 (json_int_t)pd_transformer_embedding_features(t->size), "init", "weight", begins(t, t->size->deviation));
}

const char *pd_transformer_embedding(const struct pd_transformer *t, const char *name, const char *in,
				     int64_t count)
{
	return pd_network_layer(t->network, "embedding", name, in, "o", rows(t, count));
}

const char *pd_transformer_tokens(const struct pd_transformer *t, const char *name)
{
	json_t *attributes = rows(t, t->size->vocabulary);

	if (t->size->padding >= 0)
		pd_json_set(attributes, "padding_idx", json_integer(t->size->padding));
	return pd_network_layer(t->network, "embedding", name, "tokens", "o", attributes);
}

/* As transformers computes them: padding is not counted, and has a row of its own. */
static const char *numbered(const struct pd_transformer *t, const char *name, const char *in)
{
	struct pd_network *n = t->network;
	json_t *attributes = rows(t, t->size->positions);

	pd_json_set(attributes, "padding_idx", json_integer(t->size->padding));
	pd_json_set(attributes, "numbered", json_true());
	return pd_transformer_sum(t, pd_network_name(n, "%s.add", name), in,
				  pd_network_layer(n, "embedding", name, "tokens", "o",
						   attributes));
}

static const char *plain_positions(const struct pd_transformer *t, const char *name, const char *in)
{
	json_t *attributes = json_pack("{s:{s:s}}", "init", "weight", begins(t, t->size->deviation));

	if (t->size->positions > 0)
		pd_json_set(attributes, "num_embeddings", json_integer(t->size->positions));
	if (t->size->positions_from > 0)
		pd_json_set(attributes, "start", json_integer(t->size->positions_from));
	return pd_network_layer(t->network, "position_embedding", name, in, "o", attributes);
}

const char *pd_transformer_positions(const struct pd_transformer *t, const char *name,
				     const char *in)
{
	if (t->size->numbered)
		return numbered(t, name, in);
	return plain_positions(t, name, in);
}

const char *pd_transformer_sum(const struct pd_transformer *t, const char *name, const char *a,
			       const char *b)
{
	return pd_network_layer(t->network, "add", name, pd_network_name(t->network, "%s %s", a, b), NULL);
}

/* rmsnorm whose weight is what the factor has more than 1, of inputs [positions x features]. */
static const char *norm_from_1(const struct pd_transformer *t, const char *name, const char *in,
			       int64_t features, int dims)
{
	struct pd_network *n = t->network;
	const char *weight = dims == 2
		? pd_network_layer(n, "parameter", name, in, "{s:[i, I], s:{s:s}}", "shape", 1,
				   (json_int_t)features, "init", "weight", "0")
		: pd_network_layer(n, "parameter", name, in, "{s:[i, i, I], s:{s:s}}", "shape", 1,
				   1,
				   (json_int_t)features, "init", "weight", "0");

	weight = pd_network_layer(n, "affine", pd_network_name(n, "%s.times", name), weight,
				  "{s:i}", "plus", 1);
	in = pd_network_layer(n, "rmsnorm", pd_network_name(n, "%s.root", name), in, "{s:f, s:b}",
			      "eps",
			      t->size->eps, "elementwise_affine", 0);
	return pd_network_layer(n, "mul", pd_network_name(n, "%s.mul", name),
				pd_network_name(n, "%s %s", in, weight), NULL);
}

const char *pd_transformer_norm_of(const struct pd_transformer *t, const char *name, const char *in,
				   int64_t features, int dims)
{
	switch ((enum pd_network_norm_kind)t->size->norm_kind) {
	case PD_NORM_RMS:
		return pd_transformer_norm(t, "rmsnorm", name, in);
	case PD_NORM_RMS_1:
		return norm_from_1(t, name, in, features, dims);
	case PD_NORM_LAYER:
		return pd_transformer_norm(t, "layernorm", name, in);
	case PD_NORM_LAYER_SCALE:
		return pd_network_layer(t->network, "layernorm", name, in, "{s:f, s:b}", "eps",
					t->size->eps,
					"bias", 0);
	case PD_NORM_LAYER_PLAIN:
		return pd_network_layer(t->network, "layernorm", name, in, "{s:f, s:b}", "eps",
					t->size->eps,
					"elementwise_affine", 0);
	}
	return in;
}

const char *pd_transformer_norm(const struct pd_transformer *t, const char *kind, const char *name,
				const char *in)
{
	return pd_network_layer(t->network, kind, name, in, "{s:f}", "eps", t->size->eps);
}

/* Layers one behind the other, the last of which may multiply what came in. */
struct activation_step {
	const char *kind, *attributes;
};

static const struct activation_step *activation_steps(enum pd_network_activation activation)
{
	static const struct activation_step steps[][4] = {
		[PD_ACTIVATION_RELU] = { { "relu", NULL } },
		[PD_ACTIVATION_GELU] = { { "gelu", NULL } },
		[PD_ACTIVATION_GELU_TANH] = { { "gelu", "{\"approximate\": \"tanh\"}" } },
		[PD_ACTIVATION_SILU] = { { "silu", NULL } },
		[PD_ACTIVATION_TANH] = { { "tanh", NULL } },
		[PD_ACTIVATION_SIGMOID] = { { "sigmoid", NULL } },
		[PD_ACTIVATION_RELU6] = { { "relu6", NULL } },
		[PD_ACTIVATION_LEAKY_RELU] = { { "leaky_relu", NULL } },
		[PD_ACTIVATION_HARDSWISH] = { { "hardswish", NULL } },
		[PD_ACTIVATION_RELU2] = { { "relu", NULL }, { "pow", "{\"exponent\": 2}" } },
		[PD_ACTIVATION_QUICK_GELU] = { { "affine", "{\"times\": 1.702}" }, { "sigmoid",
			NULL },
					       { "mul", NULL } },
		[PD_ACTIVATION_GELU_10] = { { "gelu", NULL }, { "clamp",
			"{\"min\": -10, \"max\": 10}" } },
		[PD_ACTIVATION_MISH] = { { "softplus", NULL }, { "tanh", NULL }, { "mul", NULL } },
		/* (x - mu) / (sigma sqrt(2)) of MEGA (Ma et al. 2022) */
		[PD_ACTIVATION_LAPLACE] = {
			{ "affine", "{\"times\": 2.5066313040019734, \"plus\": "
									    "-1.7724565484788235}" },
			{ "erf", NULL }, { "affine", "{\"times\": 0.5, \"plus\": 0.5}" } },
		[PD_ACTIVATION_SQRT_SOFTPLUS] = { { "softplus", NULL }, { "pow",
			"{\"exponent\": 0.5}" } },
		[PD_ACTIVATION_LINEAR] = { { NULL, NULL } },
	};

	return steps[activation];
}

const char *pd_transformer_activation(const struct pd_transformer *t, const char *prefix, const char *in)
{
	return pd_transformer_activation_of(t, t->size->activation, prefix, in);
}

const char *pd_transformer_activation_of(const struct pd_transformer *t,
					 enum pd_network_activation activation,
					 const char *prefix, const char *in)
{
	const struct activation_step *step = activation_steps(activation);
	const char *at = in;

	for (int s = 0; s < 4 && step[s].kind; s++) {
		bool joins = strcmp(step[s].kind, "mul") == 0;
		const char *name = s == 0 ? pd_network_name(t->network, "%s.%s", prefix,
							    step[s].kind)
				   : pd_network_name(t->network, "%s.act%d_%s", prefix, s,
						     step[s].kind);
		json_t *attributes = step[s].attributes ? json_loads(step[s].attributes, 0,
			NULL) : json_object();

		at = pd_network_layer(t->network, step[s].kind, name,
				      joins ? pd_network_name(t->network, "%s %s", in,
					      at) : at, "o", attributes);
	}
	return at;
}

const char *pd_transformer_attention(const struct pd_transformer *t, const char *name,
				     const char *const qkv[3])
{
	const struct pd_network_size *size = t->size;
	json_t *attributes = json_pack("{s:I}", "heads", (json_int_t)size->heads);
	double scale = size->attention_scale;
	const char *inputs = pd_network_name(t->network, "%s %s %s%s%s", qkv[0], qkv[1], qkv[2],
					     t->lengths ? " " : "", t->lengths ? t->lengths : "");

	if (size->kv_heads != PD_NETWORK_UNSAID)
		pd_json_set(attributes, "kv_heads", json_integer(size->kv_heads));
	if (!t->lengths && !t->sees_all)
		pd_json_set(attributes, "causal", json_true());
	if (t->window > 0 && t->window < size->sequence)
		pd_json_set(attributes, "window", json_integer(t->window));
	if (size->inverse_layer)
		scale = (scale > 0 ? scale : 1 / sqrt((double)pd_transformer_head_dim(size))) /
			(double)(t->number + 1);
	if (scale > 0)
		pd_json_set(attributes, "scale", json_real(scale));
	if (size->attention_dropout > 0)
		pd_json_set(attributes, "dropout", json_real(size->attention_dropout));
	return pd_network_layer(t->network, "attention", name, inputs, "o", attributes);
}

const char *pd_transformer_classifier(const struct pd_transformer *t, const char *name, const char *in,
				      const char *embedding, bool tied)
{
	if (!tied)
		return pd_transformer_linear(t, name, in, t->size->vocabulary, false, t->size->deviation);
	return pd_network_layer(t->network, "linear", name, in, "{s:I, s:b, s:s}", "out_features",
				(json_int_t)t->size->vocabulary, "bias", 0, "shares", embedding);
}

void pd_transformer_loss(const struct pd_transformer *t, const char *in)
{
	pd_network_layer(t->network, "softmax_cross_entropy", "loss",
			 pd_network_name(t->network, "%s labels", in), NULL);
}
