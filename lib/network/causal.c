/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transformers that predict the next token, as Llama has them and with what other networks of the
 * Hugging Face hub have otherwise: the traits of option.def.  Layers have Llama's names whatever
 * the
 * network; doors/huggingface/config_name.def has those of other networks' files.
 */
#include "network/transformer.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* ---- what parts have in common ---- */

static const char *times(const struct pd_transformer *t, const char *name, const char *in,
			 double factor)
{
	return factor == 1 ? in : pd_network_layer(t->network, "affine", name, in, "{s:f}", "times",
						   factor);
}

/* The normalisation NAME of a block. */
static const char *block_norm(const struct pd_transformer *t, const char *block, const char *name,
			      const char *in)
{
	return pd_transformer_norm_of(t, pd_network_name(t->network, "%s.%s", block, name), in,
				      t->size->hidden,
				      2);
}

static const char *part_linear(const struct pd_transformer *t, const char *part, const char *name,
			       const char *in,
			       int64_t features, enum pd_network_bias bias)
{
	return pd_transformer_linear(t, pd_network_name(t->network, "%s.%s_proj", part, name), in,
				     features,
				     t->size->bias & bias, t->size->deviation);
}

/* Rows as heads, or heads as rows. */
static const char *as_heads(const struct pd_transformer *t, const char *name, const char *in,
			    int64_t heads,
			    int64_t features)
{
	return pd_network_layer(t->network, "reshape", pd_network_name(t->network, "%s.heads",
		name), in,
				"{s:[I, I, I]}", "shape", (json_int_t)t->size->sequence, (json_int_t)heads,
				(json_int_t)features);
}

static const char *as_rows(const struct pd_transformer *t, const char *name, const char *in,
			   int64_t features)
{
	return pd_network_layer(t->network, "reshape", pd_network_name(t->network, "%s.rows", name),
				in,
				"{s:[I, I]}", "shape", (json_int_t)t->size->sequence, (json_int_t)features);
}

/* ---- queries, keys and values ---- */

/* Each head is normalised, and has a row of the weight. */
static const char *norm_by_heads(const struct pd_transformer *t, const char *name, const char *in,
				 int64_t heads)
{
	struct pd_network *n = t->network;
	const char *kind = t->size->norm_kind == PD_NORM_RMS ? "rmsnorm" : "layernorm", *weight;

	weight = pd_network_layer(n, "parameter", name, in, "{s:[i, I, I], s:{s:s}}", "shape", 1,
				  (json_int_t)heads, (json_int_t)pd_transformer_head_dim(t->size), "init",
				  "weight", "1");
	in = pd_network_layer(n, kind, pd_network_name(n, "%s.plain", name), in, "{s:f, s:b}",
			      "eps",
			      t->size->eps, "elementwise_affine", 0);
	return pd_network_layer(n, "mul", pd_network_name(n, "%s.mul", name), pd_network_name(n,
		"%s %s", in, weight),
				NULL);
}

static const char *head_norm(const struct pd_transformer *t, const char *attention,
			     const char *part,
			     const char *in, int64_t heads)
{
	int64_t head_dim = pd_transformer_head_dim(t->size);
	const char *name = pd_network_name(t->network, "%s.%s_norm", attention, part);

	if (t->size->qk_norm_over == PD_QK_NORM_ROW)
		return pd_transformer_norm_of(t, name, in, heads * head_dim, 2);
	in = as_heads(t, name, in, heads, head_dim);
	in = t->size->qk_norm_over == PD_QK_NORM_HEADS ? norm_by_heads(t, name, in, heads)
		: pd_transformer_norm_of(t, name, in, head_dim, 3);
	return as_rows(t, name, in, heads * head_dim);
}

static json_t *rope(const struct pd_transformer *t)
{
	const struct pd_network_size *size = t->size;
	int64_t head_dim = pd_transformer_head_dim(size);
	bool local = t->window > 0 && size->rope_local_base > 0;
	json_t *attributes = json_pack("{s:I, s:f}", "head_dim", (json_int_t)head_dim, "base",
				       local ? size->rope_local_base : size->rope_base);

	if (size->rope_features > 0)
		pd_json_set(attributes, "rotary_dim", json_integer(size->rope_features));
	else if (size->rope_part < 1)
		pd_json_set(attributes, "rotary_dim",
			    json_integer((int64_t)((double)head_dim * size->rope_part)));
	if (size->rope_interleaved)
		pd_json_set(attributes, "interleaved", json_true());
	if (size->rope_factor == 1 || local)
		return attributes;
	pd_json_set(attributes, "factor", json_real(size->rope_factor));
	if (size->rope_original == 0)
		return attributes;
	pd_json_set(attributes, "low_freq_factor", json_real(size->rope_low));
	pd_json_set(attributes, "high_freq_factor", json_real(size->rope_high));
	pd_json_set(attributes, "original_positions", json_integer(size->rope_original));
	return attributes;
}

/* Queries or keys: normalised and rotated, where they are. */
static const char *placed(const struct pd_transformer *t, const char *attention, const char *part,
			  const char *in, int64_t heads)
{
	if (t->size->qk_norm)
		in = head_norm(t, attention, part, in, heads);
	return !t->is_rotated ? in
		: pd_network_layer(t->network, "rope", pd_network_name(t->network, "%s.%s_rope",
			attention, part),
				   in, "o", rope(t));
}

static const char *clipped(const struct pd_transformer *t, const char *attention, const char *part,
			   const char *in)
{
	double most = t->size->clip_qkv;

	return most == 0 ? in : pd_network_layer(t->network, "clamp",
						 pd_network_name(t->network, "%s.%s_clip",
							 attention, part), in,
						 "{s:f, s:f}", "min", -most, "max", most);
}

static const char *projection(const struct pd_transformer *t, const char *attention,
			      const char *part,
			      const char *in, int64_t heads)
{
	in = part_linear(t, attention, part, in, heads * pd_transformer_head_dim(t->size),
			 PD_BIAS_QKV);
	return clipped(t, attention, part, in);
}

/* Some features of each group of heads, as rows. */
static const char *of_group(const struct pd_transformer *t, const char *attention, const char *part,
			    const char *groups, int64_t start, int64_t features)
{
	const char *name = pd_network_name(t->network, "%s.%s_part", attention, part);

	groups = pd_network_layer(t->network, "slice", name, groups, "{s:i, s:I, s:I}", "dim", 3,
				  "start",
				  (json_int_t)start, "end", (json_int_t)(start + features));
	return as_rows(t, name, groups, t->size->kv_heads * features);
}

/*
 * One linear layer, whose features are, for each head of keys, its queries, the key and the value.
 */
static void grouped(const struct pd_transformer *t, const char *attention, const char *in,
		    const char *qkv[3])
{
	static const char *const parts[] = { "q", "k", "v" };
	const struct pd_network_size *size = t->size;
	int64_t head_dim = pd_transformer_head_dim(size), queries = size->heads / size->kv_heads * head_dim;
	int64_t all = queries + 2 * head_dim;

	in = part_linear(t, attention, "qkv", in, size->kv_heads * all, PD_BIAS_QKV);
	in = as_heads(t, pd_network_name(t->network, "%s.qkv", attention), in, size->kv_heads, all);
	for (int i = 0; i < 3; i++)
		qkv[i] = of_group(t, attention, parts[i], in,
				  i == 0 ? 0 : queries + (i - 1) * head_dim,
				  i == 0 ? queries : head_dim);
}

static const char *attention(const struct pd_transformer *t, const char *block, const char *in)
{
	const struct pd_network_size *size = t->size;
	const char *name = pd_network_name(t->network, "%s.self_attn", block);
	const char *qkv[3];

	if (size->grouped_qkv)
		grouped(t, name, in, qkv);
	else {
		qkv[0] = projection(t, name, "q", in, size->heads);
		qkv[1] = projection(t, name, "k", in, size->kv_heads);
		qkv[2] = projection(t, name, "v", in, size->kv_heads);
	}
	qkv[0] = placed(t, name, "q", qkv[0], size->heads);
	qkv[1] = placed(t, name, "k", qkv[1], size->kv_heads);
	return part_linear(t, name, "o", pd_transformer_attention(t, name, qkv), size->hidden,
			   PD_BIAS_OUTPUT);
}

/* ---- a block ---- */

static const char *mlp(const struct pd_transformer *t, const char *block, const char *in)
{
	const char *name = pd_network_name(t->network, "%s.mlp", block);
	int64_t inside = pd_transformer_feed_forward(t->size);
	const char *gate, *up;

	if (t->size->plain_mlp) {
		up = part_linear(t, name, "up", in, inside, PD_BIAS_MLP);
		in = pd_transformer_activation(t, name, up);
	} else {
		gate = part_linear(t, name, "gate", in, inside, PD_BIAS_MLP);
		up = part_linear(t, name, "up", in, inside, PD_BIAS_MLP);
		gate = pd_transformer_activation(t, name, gate);
		in = pd_network_layer(t->network, "mul", pd_network_name(t->network, "%s.mul",
			name),
				      pd_network_name(t->network, "%s %s", gate, up), NULL);
	}
	return part_linear(t, name, "down", in, t->size->hidden, PD_BIAS_MLP);
}

typedef const char *block_part(const struct pd_transformer *t, const char *block, const char *in);

/* What a part adds: of its normalised input, its output normalised, where the block has these. */
static const char *branch(const struct pd_transformer *t, const char *block, block_part *part,
			  const char *in)
{
	bool first = part == attention;
	const char *called = first ? "self_attn" : "mlp";
	enum pd_network_block kind = t->size->block;

	if (kind == PD_BLOCK_PRE || kind == PD_BLOCK_BOTH || kind == PD_BLOCK_PARALLEL_TWO)
		in = block_norm(t, block, first ? "input_layernorm" : "post_attention_layernorm",
				in);
	in = part(t, block, in);
	if (kind == PD_BLOCK_OUTPUT || kind == PD_BLOCK_BOTH)
		in = block_norm(t, block, first ? "post_self_attn_layernorm" : "post_mlp_layernorm",
				in);
	in = pd_network_dropout(t->network, pd_network_name(t->network, "%s.%s.dropout", block,
							    called), in,
				first && t->size->mlp_dropout ? 0 : t->size->dropout);
	return times(t, pd_network_name(t->network, "%s.%s.times", block, called), in,
		     t->size->residual_times);
}

static const char *sum(const struct pd_transformer *t, const char *block, block_part *part,
		       const char *x,
		       const char *in)
{
	bool first = part == attention;

	in = pd_transformer_sum(t, pd_network_name(t->network, "%s.%s.add", block,
						   first ? "self_attn" : "mlp"), x,
				in);
	return t->size->block != PD_BLOCK_POST ? in
		: block_norm(t, block, first ? "input_layernorm" : "post_attention_layernorm", in);
}

/* Both parts have the same input. */
static const char *parallel(const struct pd_transformer *t, const char *block, const char *in)
{
	const char *at = t->size->block == PD_BLOCK_PARALLEL ? block_norm(t, block,
		"input_layernorm", in) : in;
	const char *first = branch(t, block, attention, at), *second = branch(t, block, mlp, at);

	return pd_transformer_sum(t, pd_network_name(t->network, "%s.add", block),
				  pd_network_name(t->network, "%s %s", in, first), second);
}

/* Every so many layers one has none. */
static bool has_window(const struct pd_network_size *size, int64_t number)
{
	if (size->window <= 0 || number < size->window_from)
		return false;
	if (size->windows.is_said)
		return pd_layer_set_has(&size->windows, number);
	return size->window_every == 0 || (number + 1) % size->window_every != 0;
}

/* Every so many layers one is not, or all that see every position are not. */
static bool is_rotated(const struct pd_network_size *size, int64_t number)
{
	if (size->learned || (size->unrotated_full && !has_window(size, number)))
		return false;
	if (size->unrotated.is_said)
		return !pd_layer_set_has(&size->unrotated, number);
	return size->unrotated_every == 0 || (number + 1) % size->unrotated_every != 0;
}

static const char *add_block(struct pd_transformer *t, int64_t number, const char *in)
{
	const struct pd_network_size *size = t->size;
	const char *name = pd_network_name(t->network, "model.layers.%" PRId64, number);

	t->window = has_window(size, number) ? size->window : 0;
	t->is_rotated = is_rotated(size, number);
	if (size->block == PD_BLOCK_PARALLEL || size->block == PD_BLOCK_PARALLEL_TWO)
		return parallel(t, name, in);
	in = sum(t, name, attention, in, branch(t, name, attention, in));
	return sum(t, name, mlp, in, branch(t, name, mlp, in));
}

/* ---- the network ---- */

static const char *embedded(const struct pd_transformer *t)
{
	const struct pd_network_size *size = t->size;
	const char *at = pd_transformer_tokens(t, "model.embed_tokens");
	double factor = size->embedding_root ? sqrt((double)size->hidden) : size->embedding_times;

	at = times(t, "model.embed_tokens.times", at, factor);
	if (size->learned)
		at = pd_transformer_positions(t, "model.embed_positions", at);
	return pd_network_dropout(t->network, "model.embed_tokens.dropout", at,
				  size->embedding_dropout);
}

/* cap tanh(x / cap) */
static const char *capped(const struct pd_transformer *t, const char *name, const char *in,
			  double cap)
{
	if (cap == 0)
		return in;
	in = times(t, pd_network_name(t->network, "%s.divided", name), in, 1 / cap);
	in = pd_network_layer(t->network, "tanh", pd_network_name(t->network, "%s.tanh", name), in,
			      NULL);
	return times(t, pd_network_name(t->network, "%s.capped", name), in, cap);
}

static const char *logits(const struct pd_transformer *t, const char *in)
{
	const struct pd_network_size *size = t->size;

	in = pd_transformer_classifier(t, "lm_head", in, "model.embed_tokens", size->tied);
	if (size->head_bias)
		in = pd_network_layer(t->network, "bias", "lm_head.plus", in, NULL);
	in = times(t, "lm_head.times", in, size->logits_times);
	return capped(t, "lm_head", in, size->logits_cap);
}

int pd_causal_build(struct pd_network *n, const struct pd_network_size *size, struct pd_error *err)
{
	struct pd_transformer t = { n, size, .lengths = NULL };
	const char *at;

	if (pd_transformer_check("llama", size, err) < 0)
		return -1;
	if (size->rope_longest > 0 && size->sequence > size->rope_longest)
		return pd_error_input(err, "--sequence=%" PRId64 ": the angles of dynamically "
								 "scaled rotary "
				      "positions change beyond %" PRId64 " tokens, which is not "
									 "computed here",
				      size->sequence, size->rope_longest);
	pd_network_input(n, "tokens", "i32", 1, size->sequence);
	pd_network_input(n, "labels", "i32", 1, size->sequence);
	at = embedded(&t);
	for (int64_t i = 0; i < size->layers; i++)
		at = add_block(&t, i, at);
	if (size->block != PD_BLOCK_POST)
		at = pd_transformer_norm_of(&t, "model.norm", at, size->hidden, 2);
	pd_transformer_loss(&t, logits(&t, at));
	return 0;
}
