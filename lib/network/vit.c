/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vision transformers (Dosovitskiy et al. 2021): patches of an image are tokens, in front of which a
 * learned one gathers what the classifier reads.  Blocks normalise first.  Layers have the names of
 * their files on the Hugging Face hub, but for the parameters that are tensors there.
 */
#include "network/transformer.h"

#include <inttypes.h>
#include <stddef.h>

static const char *dense(const struct pd_transformer *t, const char *part, const char *in, int64_t features)
{
	return pd_transformer_linear(t, pd_network_name(t->network, "%s.dense", part), in, features, true,
				     t->size->deviation);
}

/* x + dropout(linear(in)), of a part of a block. */
static const char *output(const struct pd_transformer *t, const char *part, const char *x, const char *in)
{
	struct pd_network *n = t->network;
	const char *name = pd_network_name(n, "%s.output", part);

	in = dense(t, name, in, t->size->hidden);
	in = pd_network_dropout(n, pd_network_name(n, "%s.dropout", name), in, t->size->dropout);
	return pd_transformer_sum(t, pd_network_name(n, "%s.add", name), x, in);
}

static const char *attention(const struct pd_transformer *t, const char *part, const char *in)
{
	static const char *const names[] = { "query", "key", "value" };
	const char *self = pd_network_name(t->network, "%s.attention", part), *qkv[3];

	for (int i = 0; i < 3; i++)
		qkv[i] = pd_transformer_linear(t, pd_network_name(t->network, "%s.%s", self, names[i]), in,
					       t->size->hidden, !t->size->no_qkv_bias, t->size->deviation);
	return pd_transformer_attention(t, self, qkv);
}

static const char *block(const struct pd_transformer *t, int64_t number, const char *in)
{
	struct pd_network *n = t->network;
	const char *name = pd_network_name(n, "vit.encoder.layer.%" PRId64, number);
	const char *part = pd_network_name(n, "%s.attention", name), *inside, *at;

	at = pd_transformer_norm(t, "layernorm", pd_network_name(n, "%s.layernorm_before", name), in);
	in = output(t, part, in, attention(t, part, at));
	inside = pd_network_name(n, "%s.intermediate", name);
	at = pd_transformer_norm(t, "layernorm", pd_network_name(n, "%s.layernorm_after", name), in);
	at = dense(t, inside, at, pd_transformer_feed_forward(t->size));
	return output(t, name, in, pd_transformer_activation(t, inside, at));
}

/* The learned token, and behind it a token for each patch. */
static const char *tokens(const struct pd_transformer *t)
{
	struct pd_network *n = t->network;
	const struct pd_network_size *size = t->size;
	int64_t side = size->size / size->patch;
	const char *begins = pd_network_name(n, "normal(%g)", size->deviation), *at, *first;

	at = pd_network_layer(n, "conv2d", "vit.embeddings.patch_embeddings.projection", "image",
			      "{s:I, s:I, s:I, s:{s:s}}", "out_channels", (json_int_t)size->hidden, "kernel",
			      (json_int_t)size->patch, "stride", (json_int_t)size->patch, "init", "weight",
			      begins);
	at = pd_network_layer(n, "reshape", "vit.embeddings.patches", at, "{s:[I, I]}", "shape",
			      (json_int_t)size->hidden, (json_int_t)(side * side));
	at = pd_network_layer(n, "transpose", "vit.embeddings.rows", at, "{s:i, s:i}", "dim0", 1, "dim1", 2);
	first = pd_network_layer(n, "parameter", "vit.embeddings.cls_token", "image", "{s:[i, I], s:{s:s}}",
				 "shape", 1, (json_int_t)size->hidden, "init", "weight", begins);
	at = pd_network_layer(n, "concat", "vit.embeddings.concat", pd_network_name(n, "%s %s", first, at),
			      NULL);
	at = pd_transformer_positions(t, "vit.embeddings.position_embeddings", at);
	return pd_network_dropout(n, "vit.embeddings.dropout", at, size->dropout);
}

static int build_vit(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	const struct pd_transformer t = { n, size, .sees_all = true };
	const char *at;

	if (pd_transformer_check("vit", size, err) < 0)
		return -1;
	if (size->size % size->patch != 0)
		return pd_error_input(err, "--patch=%" PRId64 ": vit expects a divisor of its images' --size, %"
				      PRId64, size->patch, size->size);
	pd_network_input(n, "image", "f32", 3, size->channels, size->size, size->size);
	pd_network_input(n, "label", "i32", 0);
	at = tokens(&t);
	for (int64_t i = 0; i < size->layers; i++)
		at = block(&t, i, at);
	at = pd_transformer_norm(&t, "layernorm", "vit.layernorm", at);
	at = pd_network_layer(n, "slice", "first", at, "{s:i, s:i, s:i}", "dim", 1, "start", 0, "end", 1);
	at = pd_network_layer(n, "flatten", "flatten", at, NULL);
	at = pd_transformer_linear(&t, "classifier", at, size->classes, true, size->deviation);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s label", at), NULL);
	return 0;
}

const struct pd_family pd_family_vit = {
	"vit", "vision transformers", (const struct pd_preset[]){
		{ "vit-b-16", "layers=12 hidden=768 heads=12 feed-forward=0 channels=3 size=224 patch=16 "
		  "classes=1000 activation=gelu eps=1e-6 deviation=0.02 dropout=0 attention-dropout=0" },
		{ "vit-l-16", "layers=24 hidden=1024 heads=16" },
		{ "vit-h-14", "layers=32 hidden=1280 heads=16 patch=14" },
		{ NULL } }, build_vit, pd_transformer_follow
};
