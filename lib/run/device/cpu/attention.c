/* SPDX-License-Identifier: Apache-2.0 */
/* attention: see attention.h.  The slot keeps one number for each query and head. */
#include "run/device/cpu/attention.h"

#include "base/mem.h"
#include "base/rng.h"
#include "run/device/cpu/cpu.h"
#include "run/device/cpu/floats.h"

#include <string.h>

enum { Q, K, V, LENGTHS };              /* inputs */

/* Where the samples' parts of the gradient of the bias begin in the scratch of backward. */
static size_t parts_offset(const struct pd_attention *a)
{
	return pd_align(pd_attention_room(a, true));
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	struct pd_attention *a;

	l->out = pd_cpu_plain(l->net, &layer->output);
	if (layer->parameter_count > 0) {
		l->parameter[0] = pd_layout_plain(l->net->engine, 2, layer->parameters[0].size);
		l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) * (size_t)layer->parameter_elements);
	}
	if (!l->inside)
		return 0;
	l->own = a = pd_zalloc(sizeof(*a));
	*a = (struct pd_attention){
		.dtype = l->net->dtype, .batch = l->net->batch,
		.heads = layer->heads, .kv_heads = layer->kv_heads,
		.queries = l->in_shape[Q]->size[0], .keys = l->in_shape[K]->size[0],
		.width = l->in_shape[Q]->size[1] / layer->heads,
		.value_width = l->in_shape[V]->size[1] / layer->kv_heads,
		.causal = layer->causal, .window = layer->window, .scale = (float)layer->scale, .p = (float)layer->p,
		.seed = l->net->seed,
		.stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index),
		.relative = pd_relative_of(layer),
		.threads = ((struct pd_cpu_device *)l->net->base.device)->threads,
	};
	l->extra_bytes = sizeof(float) * (size_t)(a->batch * a->heads * a->queries);
	l->forward_bytes = pd_attention_room(a, false);
	l->backward_bytes = parts_offset(a) + sizeof(float) * (size_t)(a->batch * layer->parameter_elements);
	return 0;
}

static struct pd_attention_pass pass_of(const struct pd_compiled_layer *l,
					const struct pd_pass *pass)
{
	return (struct pd_attention_pass){
		.q = l->src[Q], .k = l->src[K], .v = l->src[V],
		.lengths = l->layer->input_count > LENGTHS ? l->src[LENGTHS] : NULL,
		.bias = l->layer->parameter_count > 0 ? l->parameters[0] : NULL,
		.o = l->dst, .logs = l->extra, .room = l->temporary,
		.first_sample = pass->first_sample,
		.drops = l->layer->p > 0 && !pass->evaluate,
	};
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_attention_pass what = pass_of(l, pass);

	pd_attention_forward(l->own, &what);
	return 0;
}

/* Adds up the samples' gradients of the bias, by head and bucket, in their order, and turns them. */
static void add_samples(const struct pd_attention *a, float *sum, float *parts)
{
	int64_t buckets = a->relative.buckets;

	for (int64_t sample = 1; sample < a->batch; sample++)
		pd_floats_add(parts, parts + sample * a->heads * buckets, a->heads * buckets);
	for (int64_t b = 0; b < buckets; b++)
		for (int64_t head = 0; head < a->heads; head++)
			sum[b * a->heads + head] = parts[head * buckets + b];
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_attention_pass what = pass_of(l, pass);

	if (pass->part == PD_BACKWARD_WEIGHT) {
		if (what.bias)
			memcpy(l->diff_parameters[0], l->split, sizeof(float) * (size_t)l->layer->parameter_elements);
		return 0;
	}
	if (what.bias)
		what.d_bias = (float *)((char *)l->temporary + parts_offset(l->own));
	what.d_o = l->diff_dst;
	what.dq = l->diff_src[Q];
	what.dk = l->diff_src[K];
	what.dv = l->diff_src[V];
	if (what.dq || what.dk || what.dv || what.d_bias)
		pd_attention_backward(l->own, &what);
	if (what.d_bias)
		add_samples(l->own, pass->part == PD_BACKWARD_INPUT ? l->split : l->diff_parameters[0],
			    what.d_bias);
	return 0;
}

const struct pd_compiled_kind pd_cpu_attention = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
