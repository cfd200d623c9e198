/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT and BERT as Megatron-LM has them, which PipeDream-2BW trains: blocks of 12 h^2 + 13 h parameters
 * that normalise first.  GPT-2 is this GPT.
 */
#include "network/transformer.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

static const char *attention(const struct pd_transformer *t, const char *block, const char *in,
			     double deviation)
{
	static const char *const parts[] = { "q", "k", "v" };
	struct pd_network *n = t->network;
	const struct pd_network_size *size = t->size;
	const char *qkv[3];

	for (int i = 0; i < 3; i++)
		qkv[i] = pd_transformer_linear(t, pd_network_name(n, "%s.attn.%s", block, parts[i]), in,
					       size->hidden, true, size->deviation);
	in = pd_transformer_attention(t, pd_network_name(n, "%s.attn", block), qkv);
	return pd_transformer_linear(t, pd_network_name(n, "%s.attn.proj", block), in, size->hidden, true,
				     deviation);
}

static const char *mlp(const struct pd_transformer *t, const char *block, const char *in, double deviation)
{
	const char *name = pd_network_name(t->network, "%s.mlp", block);

	in = pd_transformer_linear(t, pd_network_name(t->network, "%s.fc", name), in,
				   pd_transformer_feed_forward(t->size), true, t->size->deviation);
	in = pd_transformer_activation(t, name, in);
	return pd_transformer_linear(t, pd_network_name(t->network, "%s.proj", name), in, t->size->hidden,
				     true, deviation);
}

/* x + dropout(branch(layernorm(x))), for both branches. */
static const char *block(const struct pd_transformer *t, int64_t number, const char *in)
{
	static const struct {
		const char *name;
		const char *(*build)(const struct pd_transformer *t, const char *block, const char *in,
				     double deviation);
	} branches[] = { { "attn", attention }, { "mlp", mlp } };
	struct pd_network *n = t->network;
	const char *block_name = pd_network_name(n, "h.%" PRId64, number);
	double deviation = t->size->deviation / sqrt(2 * (double)t->size->layers);

	for (int i = 0; i < 2; i++) {
		const char *name = pd_network_name(n, "%s.%s", block_name, branches[i].name);
		const char *at = pd_transformer_norm(t, "layernorm",
						     pd_network_name(n, "%s.ln_%d", block_name, i + 1), in);

		at = branches[i].build(t, block_name, at, deviation);
		at = pd_network_dropout(n, pd_network_name(n, "%s.dropout", name), at, t->size->dropout);
		in = pd_transformer_sum(t, pd_network_name(n, "%s.add", name), in, at);
	}
	return in;
}

/* From the sum of embeddings to the last normalisation. */
static const char *blocks(const struct pd_transformer *t, const char *in)
{
	in = pd_transformer_positions(t, "wpe", in);
	in = pd_network_dropout(t->network, "dropout", in, t->size->dropout);
	for (int64_t i = 0; i < t->size->layers; i++) {
		struct pd_transformer here = *t;

		here.number = i;
		in = block(&here, i, in);
	}
	return pd_transformer_norm(t, "layernorm", "ln_f", in);
}

static int build_gpt(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	const struct pd_transformer t = { n, size, .lengths = NULL };
	const char *at;

	if (pd_transformer_check("gpt", size, err) < 0)
		return -1;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = blocks(&t, pd_transformer_tokens(&t, "wte"));
	pd_transformer_loss(&t, pd_transformer_classifier(&t, "head", at, "wte", !size->untied));
	return 0;
}

/* Does the second sentence follow on the first?  Of the first place alone. */
static void next_sentence(const struct pd_transformer *t, const char *in)
{
	struct pd_network *n = t->network;

	in = pd_network_layer(n, "slice", "first", in, "{s:i, s:i, s:i}", "dim", 1, "start", 0, "end", 1);
	in = pd_network_layer(n, "flatten", "first.flatten", in, NULL);
	in = pd_transformer_linear(t, "pooler", in, t->size->hidden, true, t->size->deviation);
	in = pd_network_layer(n, "tanh", "pooler.tanh", in, NULL);
	in = pd_transformer_linear(t, "next", in, 2, true, t->size->deviation);
	pd_network_layer(n, "softmax_cross_entropy", "next.loss", pd_network_name(n, "%s follows", in),
			 NULL);
}

/* The tokens that were masked, whose labels are not -100. */
static void masked(const struct pd_transformer *t, const char *in)
{
	in = pd_transformer_linear(t, "head.dense", in, t->size->hidden, true, t->size->deviation);
	in = pd_transformer_activation(t, "head", in);
	in = pd_transformer_norm(t, "layernorm", "head.ln", in);
	in = pd_transformer_classifier(t, "head", in, "wte", !t->size->untied);
	pd_transformer_loss(t, pd_network_layer(t->network, "bias", "head.bias", in, NULL));
}

void pd_megatron_bert(struct pd_network *network, const struct pd_network_size *size)
{
	const struct pd_transformer t = { network, size, .lengths = "length" };
	const char *at = pd_transformer_tokens(&t, "wte");

	at = pd_transformer_sum(&t, "embeddings", at,
				pd_transformer_embedding(&t, "wtt", "types", size->types));
	at = blocks(&t, at);
	if (size->head == PD_HEAD_PRETRAINING)
		next_sentence(&t, at);
	masked(&t, at);
}

const struct pd_family pd_family_gpt = {
	"gpt", "transformers that predict the next token", (const struct pd_preset[]){
		{ "gpt2", "layers=12 hidden=768 heads=12 feed-forward=0 sequence=1024 positions=0 "
		  "vocabulary=50257 untied=false activation=gelu-tanh eps=1e-5 deviation=0.02 "
		  "dropout=0.1 attention-dropout=0.1" },
		{ "gpt2-medium", "layers=24 hidden=1024 heads=16" },
		{ "gpt2-large", "layers=36 hidden=1280 heads=20" },
		{ "gpt2-xl", "layers=48 hidden=1600 heads=25" },
		{ "gpt-355m", "layers=24 hidden=1024 heads=16 sequence=512 vocabulary=50304" },
		{ "gpt-1.3b", "layers=24 hidden=2048 heads=16 sequence=512 vocabulary=50304" },
		{ "gpt-2.2b", "layers=32 hidden=2304 heads=32 sequence=512 vocabulary=50304" },
		{ "gpt-3.8b", "layers=32 hidden=3072 heads=32 sequence=512 vocabulary=50304" },
		{ "gpt-bytes", "layers=6 hidden=256 heads=8 sequence=256 vocabulary=256 "
		  "untied=true" },
		{ NULL } }, build_gpt, pd_transformer_follow
};
