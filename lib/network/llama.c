/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama and what differs little from it: Mistral, Qwen 2 (biases of queries, keys and values) and
 * Qwen 3 (heads of queries and keys are normalised).  Layers have the names of their files on the
 * Hugging Face hub.
 */
#include "network/transformer.h"

#include <inttypes.h>
#include <stddef.h>

static bool has_bias(const struct pd_network_size *size, bool mlp, bool output)
{
	switch ((enum pd_network_bias)size->bias) {
	case PD_BIAS_NONE:
		return false;
	case PD_BIAS_QKV:
		return !mlp && !output;
	case PD_BIAS_ATTENTION:
		return !mlp;
	case PD_BIAS_MLP:
		return mlp;
	case PD_BIAS_ALL:
		return true;
	}
	return false;
}

static const char *rms(const struct pd_transformer *t, const char *name, const char *in)
{
	return pd_transformer_norm(t, "rmsnorm", name, in);
}

/* Queries, keys or values. */
static const char *projection(const struct pd_transformer *t, const char *attention, const char *part,
			      const char *in, int64_t heads)
{
	const char *name = pd_network_name(t->network, "%s.%s_proj", attention, part);

	return pd_transformer_linear(t, name, in, heads * pd_transformer_head_dim(t->size),
				     has_bias(t->size, false, false), t->size->deviation);
}

/* Normalises each head. */
static const char *head_norm(const struct pd_transformer *t, const char *attention, const char *part,
			     const char *in, int64_t heads)
{
	struct pd_network *n = t->network;
	int64_t head_dim = pd_transformer_head_dim(t->size);
	const char *name = pd_network_name(n, "%s.%s_norm", attention, part);

	in = pd_network_layer(n, "reshape", pd_network_name(n, "%s.heads", name), in, "{s:[I, I, I]}",
			      "shape", (json_int_t)t->size->sequence, (json_int_t)heads,
			      (json_int_t)head_dim);
	in = rms(t, name, in);
	return pd_network_layer(n, "reshape", pd_network_name(n, "%s.rows", name), in, "{s:[I, I]}",
				"shape", (json_int_t)t->size->sequence, (json_int_t)(heads * head_dim));
}

static json_t *rope(const struct pd_network_size *size)
{
	json_t *attributes = json_pack("{s:I, s:f}", "head_dim", (json_int_t)pd_transformer_head_dim(size),
				       "base", size->rope_base);

	if (size->rope_factor == 1)
		return attributes;
	pd_json_set(attributes, "factor", json_real(size->rope_factor));
	if (size->rope_original == 0)
		return attributes;
	pd_json_set(attributes, "low_freq_factor", json_real(size->rope_low));
	pd_json_set(attributes, "high_freq_factor", json_real(size->rope_high));
	pd_json_set(attributes, "original_positions", json_integer(size->rope_original));
	return attributes;
}

/* Queries or keys, which are rotated. */
static const char *rotated(const struct pd_transformer *t, const char *attention, const char *part,
			   const char *in, int64_t heads)
{
	const char *name = pd_network_name(t->network, "%s.%s_rope", attention, part);

	in = projection(t, attention, part, in, heads);
	if (t->size->qk_norm)
		in = head_norm(t, attention, part, in, heads);
	return pd_network_layer(t->network, "rope", name, in, "o", rope(t->size));
}

static const char *attention(const struct pd_transformer *t, const char *block, const char *in)
{
	const struct pd_network_size *size = t->size;
	const char *name = pd_network_name(t->network, "%s.self_attn", block);
	const char *qkv[3];

	qkv[0] = rotated(t, name, "q", in, size->heads);
	qkv[1] = rotated(t, name, "k", in, size->kv_heads);
	qkv[2] = projection(t, name, "v", in, size->kv_heads);
	in = pd_transformer_attention(t, name, qkv);
	return pd_transformer_linear(t, pd_network_name(t->network, "%s.o_proj", name), in, size->hidden,
				     has_bias(size, false, true), size->deviation);
}

static const char *mlp_linear(const struct pd_transformer *t, const char *mlp, const char *part,
			      const char *in, int64_t features)
{
	return pd_transformer_linear(t, pd_network_name(t->network, "%s.%s_proj", mlp, part), in, features,
				     has_bias(t->size, true, false), t->size->deviation);
}

static const char *mlp(const struct pd_transformer *t, const char *block, const char *in)
{
	const char *name = pd_network_name(t->network, "%s.mlp", block);
	int64_t inside = pd_transformer_feed_forward(t->size);
	const char *gate = mlp_linear(t, name, "gate", in, inside);
	const char *up = mlp_linear(t, name, "up", in, inside);

	gate = pd_transformer_activation(t, name, gate);
	in = pd_network_layer(t->network, "mul", pd_network_name(t->network, "%s.mul", name),
			      pd_network_name(t->network, "%s %s", gate, up), NULL);
	return mlp_linear(t, name, "down", in, t->size->hidden);
}

static const char *block(struct pd_transformer *t, int64_t number, const char *in)
{
	struct pd_network *n = t->network;
	const char *name = pd_network_name(n, "model.layers.%" PRId64, number), *branch;

	t->window = number >= t->size->window_from ? t->size->window : 0;
	branch = attention(t, name, rms(t, pd_network_name(n, "%s.input_layernorm", name), in));
	in = pd_transformer_sum(t, pd_network_name(n, "%s.self_attn.add", name), in, branch);
	branch = mlp(t, name, rms(t, pd_network_name(n, "%s.post_attention_layernorm", name), in));
	return pd_transformer_sum(t, pd_network_name(n, "%s.mlp.add", name), in, branch);
}

static int build_llama(struct pd_network *n, const struct pd_network_size *size,
		       struct pd_error *err)
{
	struct pd_transformer t = { n, size, .lengths = NULL };
	const char *at;

	if (pd_transformer_check("llama", size, err) < 0)
		return -1;
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = pd_transformer_tokens(&t, "model.embed_tokens");
	for (int64_t i = 0; i < size->layers; i++)
		at = block(&t, i, at);
	at = rms(&t, "model.norm", at);
	at = pd_transformer_classifier(&t, "lm_head", at, "model.embed_tokens", size->tied);
	pd_transformer_loss(&t, at);
	return 0;
}

const struct pd_family pd_family_llama = {
	"llama", "Llama, Mistral, Qwen", (const struct pd_preset[]){
		{ "llama-2-7b", "layers=32 hidden=4096 heads=32 kv-heads=32 head-dim=0 feed-forward=11008 "
		  "sequence=4096 window=0 window-from=0 vocabulary=32000 padding=-1 tied=false rope-base=10000 "
		  "rope-factor=1 rope-low=1 rope-high=4 rope-original=0 qk-norm=false bias=none activation=silu eps=1e-5 deviation=0.02 attention-dropout=0" },
		{ "llama-2-13b", "layers=40 hidden=5120 heads=40 kv-heads=40 feed-forward=13824" },
		{ "llama-3-8b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=128256 "
		  "rope-base=500000" },
		{ "llama-3.1-8b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=128256 "
		  "rope-base=500000 rope-factor=8 rope-original=8192" },
		{ "llama-3.2-1b", "layers=16 hidden=2048 kv-heads=8 feed-forward=8192 sequence=8192 "
		  "vocabulary=128256 tied=true rope-base=500000 rope-factor=32 rope-original=8192" },
		{ "tinyllama", "layers=22 hidden=2048 kv-heads=4 feed-forward=5632 sequence=2048" },
		{ "mistral-7b", "kv-heads=8 feed-forward=14336 sequence=8192 vocabulary=32768 "
		  "rope-base=1000000" },
		{ "qwen2.5-7b", "layers=28 hidden=3584 heads=28 kv-heads=4 feed-forward=18944 "
		  "vocabulary=152064 rope-base=1000000 bias=qkv eps=1e-6" },
		{ "qwen3-8b", "layers=36 kv-heads=8 head-dim=128 feed-forward=12288 vocabulary=151936 "
		  "rope-base=1000000 qk-norm=true eps=1e-6" },
		{ NULL } }, build_llama, pd_transformer_follow
};
