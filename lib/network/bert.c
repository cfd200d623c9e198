/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT, as it was published: each part of a block is followed by a sum and a normalisation.  Layers have
 * the names of its files on the Hugging Face hub.  --norm=pre is Megatron-LM's.
 */
#include "network/transformer.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/*
 * A layer with parameters of a block: its own, or, where all blocks share theirs, those of the
 * first,
 * whose layer has the same name but for the number.
 */
static void share(const struct pd_transformer *t, const char *name, int64_t number)
{
	json_t *layer = json_array_get(t->network->layers, json_array_size(t->network->layers) - 1);
	const char *dot = "bert.encoder.layer.";
	const char *rest = strchr(name + strlen(dot), '.');

	if (!t->size->shared || number == 0)
		return;
	json_object_del(layer, "init");
	pd_json_set(layer, "shares", json_sprintf("%s0%s", dot, rest));
}

static const char *block_linear(const struct pd_transformer *t, int64_t number, const char *name,
				const char *in,
				int64_t features)
{
	name = pd_transformer_linear(t, name, in, features, true, t->size->deviation);
	share(t, name, number);
	return name;
}

/* layernorm(x + dropout(linear(in))), of a part of a block. */
static const char *output(const struct pd_transformer *t, int64_t number, const char *part,
			  const char *x,
			  const char *in, double dropout)
{
	struct pd_network *n = t->network;
	const char *name = pd_network_name(n, "%s.output", part);

	in = block_linear(t, number, pd_network_name(n, "%s.dense", name), in, t->size->hidden);
	in = pd_network_dropout(n, pd_network_name(n, "%s.dropout", name), in, dropout);
	in = pd_transformer_sum(t, pd_network_name(n, "%s.add", name), x, in);
	in = pd_transformer_norm(t, "layernorm", pd_network_name(n, "%s.LayerNorm", name), in);
	share(t, in, number);
	return in;
}

static const char *attention(const struct pd_transformer *t, int64_t number, const char *part,
			     const char *in)
{
	static const char *const names[] = { "query", "key", "value" };
	const char *self = pd_network_name(t->network, "%s.self", part), *qkv[3];

	for (int i = 0; i < 3; i++)
		qkv[i] = block_linear(t, number, pd_network_name(t->network, "%s.%s", self,
			names[i]), in,
				      t->size->hidden);
	return output(t, number, part, in, pd_transformer_attention(t, self, qkv),
		      t->size->mlp_dropout ? 0 : t->size->dropout);
}

static const char *block(const struct pd_transformer *t, int64_t number, const char *in)
{
	const char *name = pd_network_name(t->network, "bert.encoder.layer.%" PRId64, number);
	const char *inside = pd_network_name(t->network, "%s.intermediate", name), *at;

	in = attention(t, number, pd_network_name(t->network, "%s.attention", name), in);
	at = block_linear(t, number, pd_network_name(t->network, "%s.dense", inside), in,
			  pd_transformer_feed_forward(t->size));
	return output(t, number, name, in, pd_transformer_activation(t, inside, at),
		      t->size->dropout);
}

static const char *embeddings(const struct pd_transformer *t)
{
	const struct pd_network_size *size = t->size;
	const char *at = pd_transformer_tokens(t, "bert.embeddings.word_embeddings");

	if (!size->untyped)
		at = pd_transformer_sum(t, "bert.embeddings.add", at,
					pd_transformer_embedding(t,
						"bert.embeddings.token_type_embeddings",
								 "types", size->types));
	at = pd_transformer_positions(t, "bert.embeddings.position_embeddings", at);
	at = pd_transformer_norm(t, "layernorm", "bert.embeddings.LayerNorm", at);
	at = pd_network_dropout(t->network, "bert.embeddings.dropout", at, size->dropout);
	return pd_transformer_embedding_features(size) == size->hidden && !size->shared ? at
		: pd_transformer_linear(t, "bert.embeddings_project", at, size->hidden, true,
					size->deviation);
}

static const char *first_place(const struct pd_transformer *t, const char *in)
{
	in = pd_network_layer(t->network, "slice", "bert.pooler.first", in, "{s:i, s:i, s:i}",
			      "dim", 1,
			      "start", 0, "end", 1);
	return pd_network_layer(t->network, "flatten", "bert.pooler.flatten", in, NULL);
}

/* The activation of the head, which may be another than that of blocks. */
static enum pd_network_activation head_activation(const struct pd_transformer *t,
						  enum pd_network_activation usual)
{
	int own = t->size->head_activation;

	return own == PD_NETWORK_UNSAID ? usual : (enum pd_network_activation)own;
}

static double head_dropout(const struct pd_transformer *t)
{
	return t->size->head_dropout >= 0 ? t->size->head_dropout : t->size->dropout;
}

/* Does the second sentence follow on the first?  Of the first place alone. */
static void next_sentence(const struct pd_transformer *t, const char *in)
{
	struct pd_network *n = t->network;

	in = first_place(t, in);
	in = pd_transformer_linear(t, "bert.pooler.dense", in, t->size->hidden, true, t->size->deviation);
	in = pd_network_layer(n, "tanh", "bert.pooler.tanh", in, NULL);
	in = pd_transformer_linear(t, "cls.seq_relationship", in, 2, true, t->size->deviation);
	pd_network_layer(n, "softmax_cross_entropy", "cls.seq_relationship.loss",
			 pd_network_name(n, "%s follows", in), NULL);
}

/* The tokens that were masked, whose labels are not -100. */
static void masked(const struct pd_transformer *t, const char *in)
{
	const char *transform = "cls.predictions.transform";

	in = pd_transformer_linear(t, "cls.predictions.transform.dense", in,
				   pd_transformer_embedding_features(t->size), true, t->size->deviation);
	in = pd_transformer_activation_of(t, head_activation(t, t->size->activation), transform,
					  in);
	in = pd_transformer_norm(t, "layernorm", "cls.predictions.transform.LayerNorm", in);
	in = pd_transformer_classifier(t, "cls.predictions.decoder", in, "bert.embeddings.word_embeddings",
				       !t->size->untied);
	pd_transformer_loss(t, pd_network_layer(t->network, "bias", "cls.predictions", in, NULL));
}

/* The class of a sample, read off its first place, or that of each token. */
static void classes(const struct pd_transformer *t, const char *in, bool of_tokens)
{
	double p = head_dropout(t);

	if (!of_tokens) {
		in = pd_network_dropout(t->network, "head.dropout", first_place(t, in),
					t->size->head_twice ? p : 0);
		in = pd_transformer_linear(t, "head.dense", in, t->size->hidden, true,
					   t->size->deviation);
		in = pd_transformer_activation_of(t, head_activation(t, PD_ACTIVATION_TANH), "head",
						  in);
	}
	in = pd_network_dropout(t->network, "classifier.dropout", in, p);
	in = pd_transformer_linear(t, "classifier", in, t->size->classes, true, t->size->deviation);
	pd_transformer_loss(t, in);
}

static void published(struct pd_network *n, const struct pd_network_size *size)
{
	const struct pd_transformer t = { n, size, .lengths = "length" };
	const char *at = embeddings(&t);

	for (int64_t i = 0; i < size->layers; i++)
		at = block(&t, i, at);
	if (size->head == PD_HEAD_SEQUENCE || size->head == PD_HEAD_TOKEN) {
		classes(&t, at, size->head == PD_HEAD_TOKEN);
		return;
	}
	if (size->head == PD_HEAD_PRETRAINING)
		next_sentence(&t, at);
	masked(&t, at);
}

static int build_bert(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	if (pd_transformer_check("bert", size, err) < 0)
		return -1;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	if (size->norm == PD_NORM_PRE && (size->head == PD_HEAD_SEQUENCE ||
					  size->head == PD_HEAD_TOKEN))
		return pd_error_input(err, "--head=%s: expected --norm=post",
				      pd_network_head_name[size->head]);
	if (!size->untyped)
		pd_network_input(n, "types", "i32", 1, size->sequence);
	pd_network_input(n, "length", "i32", 0);
	if (size->head == PD_HEAD_SEQUENCE)
		pd_network_input(n, "labels", "i32", 0);
	else
		pd_network_input(n, "labels", "i32", 1, size->sequence);
	if (size->head == PD_HEAD_PRETRAINING)
		pd_network_input(n, "follows", "i32", 0);
	if (size->norm == PD_NORM_POST)
		published(n, size);
	else
		pd_megatron_bert(n, size);
	return 0;
}

#define PUBLISHED "vocabulary=30522 padding=0 norm=post activation=gelu eps=1e-12"
const struct pd_family pd_family_bert = {
	"bert", "transformers that find masked tokens", (const struct pd_preset[]){
		{ "bert-336m", "layers=24 hidden=1024 heads=16 feed-forward=0 sequence=512 positions=0 "
		  "vocabulary=30592 types=2 classes=2 padding=-1 untied=false norm=pre "
		  "head=pretraining "
		  "activation=gelu-tanh eps=1e-5 deviation=0.02 dropout=0.1 attention-dropout=0.1" },
		{ "bert-2.2b", "layers=32 hidden=2304 heads=32" },
		{ "bert-3.8b", "layers=32 hidden=3072 heads=32" },
		{ "bert-base", "layers=12 hidden=768 heads=12 " PUBLISHED },
		{ "bert-large", PUBLISHED }, { NULL } }, build_bert, pd_transformer_follow
};
