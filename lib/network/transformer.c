/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transformers.  GPT and BERT are those of Megatron-LM, which PipeDream-2BW trains: blocks of
 * 12 h^2 + 13 h parameters that normalise first.  Queries, keys and values are layers of their own,
 * so that a planner sees them.  Llama has the names of its files on the Hugging Face hub.
 */
#include "network/builder.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#define DEVIATION 0.02                  /* of the first weights */

/* Everything that GPT and BERT have in common. */
struct megatron {
	struct pd_network *network;
	const struct pd_network_size *size;
	const char *lengths;            /* input, or NULL: attention is causal */
};

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

/* Heads keep their features, and their share of the heads of keys and values, as far as these divide. */
static void follow_heads(struct pd_network_sizes *sizes)
{
	const struct pd_network_size *preset = &sizes->preset, *given = &sizes->given;
	struct pd_network_size *size = &sizes->size;
	bool kv = preset->kv_heads != PD_NETWORK_UNSAID, kv_given = given->kv_heads != PD_NETWORK_UNSAID;
	int64_t kv_heads = kv_given ? size->kv_heads : 1, share = kv ? preset->heads / preset->kv_heads : 1;
	int64_t even = kv ? 2 : 1;      /* what is rotated has an even number of features */

	if (given->heads == PD_NETWORK_UNSAID && given->hidden != PD_NETWORK_UNSAID)
		size->heads = heads_for(size->hidden, size->hidden / (preset->hidden / preset->heads),
					kv_heads);
	else if (given->heads == PD_NETWORK_UNSAID)
		size->heads = nearest_multiple(kv_heads, preset->heads);
	if (given->hidden == PD_NETWORK_UNSAID)
		size->hidden = nearest_multiple(even * size->heads, preset->hidden);
	while (size->heads % share != 0)
		share--;
	if (kv && !kv_given)
		size->kv_heads = size->heads / share;
	if (preset->feed_forward != PD_NETWORK_UNSAID && given->feed_forward == PD_NETWORK_UNSAID)
		size->feed_forward = (int64_t)ceil((double)preset->feed_forward / (double)preset->hidden *
						   (double)size->hidden);
}

static int check_heads(const char *family, const struct pd_network_size *size, struct pd_error *err)
{
	if (size->hidden % size->heads != 0)
		return pd_error_input(err, "--heads=%" PRId64 ": %s expects a divisor of its %" PRId64
				      " hidden features", size->heads, family, size->hidden);
	return 0;
}

static const char *linear(struct pd_network *n, const char *name, const char *in, int64_t features,
			  bool bias, double deviation)
{
	const char *begins = pd_network_name(n, "normal(%g)", deviation);

	return bias ? pd_network_layer(n, "linear", name, in, "{s:I, s:{s:s}}", "out_features",
				       (json_int_t)features, "init", "weight", begins)
		    : pd_network_layer(n, "linear", name, in, "{s:I, s:b, s:{s:s}}", "out_features",
				       (json_int_t)features, "bias", 0, "init", "weight", begins);
}

static const char *embedding(struct pd_network *n, const char *name, const char *in, int64_t count,
			     int64_t features)
{
	return pd_network_layer(n, "embedding", name, in, "{s:I, s:I, s:{s:s}}", "num_embeddings",
				(json_int_t)count, "embedding_dim", (json_int_t)features, "init",
				"weight", pd_network_name(n, "normal(%g)", DEVIATION));
}

static const char *sum(struct pd_network *n, const char *name, const char *a, const char *b)
{
	return pd_network_layer(n, "add", name, pd_network_name(n, "%s %s", a, b), NULL);
}

/* The classifier of tokens: the embedding's weight, or one of its own. */
static const char *classifier(struct pd_network *n, const char *name, const char *in,
			      const char *embedding_name, const struct pd_network_size *size)
{
	if (size->untied)
		return linear(n, name, in, size->vocabulary, false, DEVIATION);
	return pd_network_layer(n, "linear", name, in, "{s:I, s:b, s:s}", "out_features",
				(json_int_t)size->vocabulary, "bias", 0, "shares", embedding_name);
}

/* ---- GPT and BERT ---- */

static const char *megatron_attention(const struct megatron *m, const char *block, const char *in,
				      double deviation)
{
	static const char *const parts[] = { "q", "k", "v" };
	struct pd_network *n = m->network;
	const struct pd_network_size *size = m->size;
	const char *qkv[3], *inputs;
	json_t *more = json_pack("{s:I}", "heads", (json_int_t)size->heads);

	for (int i = 0; i < 3; i++)
		qkv[i] = linear(n, pd_network_name(n, "%s.attn.%s", block, parts[i]), in,
				size->hidden, true, DEVIATION);
	inputs = pd_network_name(n, "%s %s %s%s%s", qkv[0], qkv[1], qkv[2], m->lengths ? " " : "",
				 m->lengths ? m->lengths : "");
	if (!m->lengths)
		pd_json_set(more, "causal", json_true());
	if (size->dropout > 0)
		pd_json_set(more, "dropout", json_real(size->dropout));
	in = pd_network_layer(n, "attention", pd_network_name(n, "%s.attn", block), inputs, "o", more);
	return linear(n, pd_network_name(n, "%s.attn.proj", block), in, size->hidden, true, deviation);
}

static const char *megatron_mlp(const struct megatron *m, const char *block, const char *in,
				double deviation)
{
	struct pd_network *n = m->network;

	in = linear(n, pd_network_name(n, "%s.mlp.fc", block), in, m->size->hidden * 4, true,
		    DEVIATION);
	in = pd_network_layer(n, "gelu", pd_network_name(n, "%s.mlp.gelu", block), in, "{s:s}",
			      "approximate", "tanh");
	return linear(n, pd_network_name(n, "%s.mlp.proj", block), in, m->size->hidden, true,
		      deviation);
}

/* x + dropout(branch(layernorm(x))), for both branches. */
static const char *megatron_block(const struct megatron *m, int64_t number, const char *in)
{
	static const struct {
		const char *name;
		const char *(*build)(const struct megatron *m, const char *block, const char *in,
				     double deviation);
	} branches[] = { { "attn", megatron_attention }, { "mlp", megatron_mlp } };
	struct pd_network *n = m->network;
	const char *block = pd_network_name(n, "h.%" PRId64, number);
	double deviation = DEVIATION / sqrt(2 * (double)m->size->layers);

	for (int i = 0; i < 2; i++) {
		const char *name = branches[i].name;
		const char *at = pd_network_layer(n, "layernorm",
						  pd_network_name(n, "%s.ln_%d", block, i + 1), in,
						  NULL);

		at = branches[i].build(m, block, at, deviation);
		at = pd_network_dropout(n, pd_network_name(n, "%s.%s.dropout", block, name), at,
					m->size->dropout);
		in = sum(n, pd_network_name(n, "%s.%s.add", block, name), in, at);
	}
	return in;
}

/* From the sum of embeddings to the last normalisation. */
static const char *megatron_blocks(const struct megatron *m, const char *in)
{
	struct pd_network *n = m->network;

	in = pd_network_layer(n, "position_embedding", "wpe", in, "{s:{s:s}}", "init", "weight",
			      pd_network_name(n, "normal(%g)", DEVIATION));
	in = pd_network_dropout(n, "dropout", in, m->size->dropout);
	for (int64_t i = 0; i < m->size->layers; i++)
		in = megatron_block(m, i, in);
	return pd_network_layer(n, "layernorm", "ln_f", in, NULL);
}

static int build_gpt(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	const struct megatron m = { n, size, NULL };
	const char *at;

	if (check_heads("gpt", size, err) < 0)
		return -1;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = embedding(n, "wte", "tokens", size->vocabulary, size->hidden);
	at = classifier(n, "head", megatron_blocks(&m, at), "wte", size);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", at), NULL);
	return 0;
}

/* Does the second sentence follow on the first?  Of the first place alone. */
static void bert_next_sentence(struct pd_network *n, const char *in, int64_t hidden)
{
	in = pd_network_layer(n, "slice", "first", in, "{s:i, s:i, s:i}", "dim", 1, "start", 0, "end", 1);
	in = pd_network_layer(n, "flatten", "first.flatten", in, NULL);
	in = linear(n, "pooler", in, hidden, true, DEVIATION);
	in = pd_network_layer(n, "tanh", "pooler.tanh", in, NULL);
	in = linear(n, "next", in, 2, true, DEVIATION);
	pd_network_layer(n, "softmax_cross_entropy", "next.loss",
			 pd_network_name(n, "%s follows", in), NULL);
}

/* The tokens that were masked, whose labels are not -100. */
static void bert_masked(struct pd_network *n, const char *in, const struct pd_network_size *size)
{
	in = linear(n, "head.dense", in, size->hidden, true, DEVIATION);
	in = pd_network_layer(n, "gelu", "head.gelu", in, "{s:s}", "approximate", "tanh");
	in = pd_network_layer(n, "layernorm", "head.ln", in, NULL);
	in = pd_network_layer(n, "bias", "head.bias", classifier(n, "head", in, "wte", size), NULL);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", in), NULL);
}

static int build_bert(struct pd_network *n, const struct pd_network_size *size,
		      struct pd_error *err)
{
	const struct megatron m = { n, size, "length" };
	const char *at;

	if (check_heads("bert", size, err) < 0)
		return -1;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "types", "i32", 1, size->sequence);
	pd_network_input(n, "length", "i32", 0);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	pd_network_input(n, "follows", "i32", 0);
	at = sum(n, "embeddings", embedding(n, "wte", "tokens", size->vocabulary, size->hidden),
		 embedding(n, "wtt", "types", 2, size->hidden));
	at = megatron_blocks(&m, at);
	bert_next_sentence(n, at, size->hidden);
	bert_masked(n, at, size);
	return 0;
}

/* ---- Llama ---- */

static const char *rms(struct pd_network *n, const char *name, const char *in)
{
	return pd_network_layer(n, "rmsnorm", name, in, "{s:f}", "eps", 1e-5);
}

/* A projection, rotated where the heads have so many features. */
static const char *llama_projection(struct pd_network *n, const char *block, const char *part,
				    const char *in, int64_t features, int64_t head_dim, double base)
{
	in = linear(n, pd_network_name(n, "%s.self_attn.%s_proj", block, part), in, features, false,
		    DEVIATION);
	if (head_dim == 0)
		return in;
	return pd_network_layer(n, "rope", pd_network_name(n, "%s.self_attn.%s_rope", block, part), in,
				"{s:I, s:f}", "head_dim", (json_int_t)head_dim, "base", base);
}

static const char *llama_attention(struct pd_network *n, const struct pd_network_size *size,
				   const char *block, const char *in)
{
	int64_t head_dim = size->hidden / size->heads, kv = head_dim * size->kv_heads;
	const char *q = llama_projection(n, block, "q", in, size->hidden, head_dim, size->rope_base);
	const char *k = llama_projection(n, block, "k", in, kv, head_dim, size->rope_base);
	const char *v = llama_projection(n, block, "v", in, kv, 0, 0);

	in = pd_network_layer(n, "attention", pd_network_name(n, "%s.self_attn", block),
			      pd_network_name(n, "%s %s %s", q, k, v), "{s:I, s:I, s:b}", "heads",
			      (json_int_t)size->heads, "kv_heads", (json_int_t)size->kv_heads,
			      "causal", 1);
	return linear(n, pd_network_name(n, "%s.self_attn.o_proj", block), in, size->hidden, false,
		      DEVIATION);
}

static const char *llama_mlp(struct pd_network *n, const struct pd_network_size *size,
			     const char *block, const char *in)
{
	const char *gate = linear(n, pd_network_name(n, "%s.mlp.gate_proj", block), in,
				  size->feed_forward, false, DEVIATION);
	const char *up = linear(n, pd_network_name(n, "%s.mlp.up_proj", block), in,
				size->feed_forward, false, DEVIATION);

	gate = pd_network_layer(n, "silu", pd_network_name(n, "%s.mlp.silu", block), gate, NULL);
	in = pd_network_layer(n, "mul", pd_network_name(n, "%s.mlp.mul", block),
			      pd_network_name(n, "%s %s", gate, up), NULL);
	return linear(n, pd_network_name(n, "%s.mlp.down_proj", block), in, size->hidden, false,
		      DEVIATION);
}

static int build_llama(struct pd_network *n, const struct pd_network_size *size,
		       struct pd_error *err)
{
	const char *at;

	if (check_heads("llama", size, err) < 0)
		return -1;
	if (size->heads % size->kv_heads != 0)
		return pd_error_input(err, "--kv-heads=%" PRId64 ": llama expects a divisor of its %" PRId64
				      " heads", size->kv_heads, size->heads);
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = embedding(n, "model.embed_tokens", "tokens", size->vocabulary, size->hidden);
	for (int64_t i = 0; i < size->layers; i++) {
		const char *block = pd_network_name(n, "model.layers.%" PRId64, i), *branch;

		branch = rms(n, pd_network_name(n, "%s.input_layernorm", block), at);
		branch = llama_attention(n, size, block, branch);
		at = sum(n, pd_network_name(n, "%s.self_attn.add", block), at, branch);
		branch = rms(n, pd_network_name(n, "%s.post_attention_layernorm", block), at);
		branch = llama_mlp(n, size, block, branch);
		at = sum(n, pd_network_name(n, "%s.mlp.add", block), at, branch);
	}
	at = linear(n, "lm_head", rms(n, "model.norm", at), size->vocabulary, false, DEVIATION);
	pd_network_layer(n, "softmax_cross_entropy", "loss", pd_network_name(n, "%s labels", at), NULL);
	return 0;
}

const struct pd_family pd_family_gpt = {
	"gpt", "transformers that predict the next token", (const struct pd_preset[]){
		{ "gpt2", "layers=12 hidden=768 heads=12 sequence=1024 vocabulary=50257 "
		  "untied=false dropout=0.1" },
		{ "gpt-355m", "layers=24 hidden=1024 heads=16 sequence=512 vocabulary=50304" },
		{ "gpt-1.3b", "layers=24 hidden=2048 heads=16 sequence=512 vocabulary=50304" },
		{ "gpt-2.2b", "layers=32 hidden=2304 heads=32 sequence=512 vocabulary=50304" },
		{ "gpt-3.8b", "layers=32 hidden=3072 heads=32 sequence=512 vocabulary=50304" },
		{ "gpt-bytes", "layers=6 hidden=256 heads=8 sequence=256 vocabulary=256 "
		  "untied=true" },
		{ NULL } }, build_gpt, follow_heads
};
const struct pd_family pd_family_bert = {
	"bert", "transformers that find masked tokens", (const struct pd_preset[]){
		{ "bert-336m", "layers=24 hidden=1024 heads=16 sequence=512 vocabulary=30592 "
		  "untied=false dropout=0.1" },
		{ "bert-2.2b", "layers=32 hidden=2304 heads=32" },
		{ "bert-3.8b", "layers=32 hidden=3072 heads=32" }, { NULL } }, build_bert, follow_heads
};
const struct pd_family pd_family_llama = {
	"llama", "Llama", (const struct pd_preset[]){
		{ "llama-2-7b", "layers=32 hidden=4096 heads=32 kv-heads=32 feed-forward=11008 "
		  "sequence=4096 vocabulary=32000 rope-base=10000" },
		{ "llama-2-13b", "layers=40 hidden=5120 heads=40 kv-heads=40 feed-forward=13824" },
		{ "llama-3-8b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=128256 "
		  "rope-base=500000" },
		{ "tinyllama", "layers=22 hidden=2048 kv-heads=4 feed-forward=5632 sequence=2048" },
		{ NULL } }, build_llama, follow_heads
};
