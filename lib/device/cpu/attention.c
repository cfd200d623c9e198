/* SPDX-License-Identifier: Apache-2.0 */
/* attention: see attention.h.  The slot keeps one number for each query and head. */
#include "device/cpu/attention.h"

#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"

enum { Q, K, V, LENGTHS };              /* inputs */

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	struct pd_attention *a;

	l->out = pd_cpu_plain(l->net, &layer->output);
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
		.threads = ((struct pd_cpu_device *)l->net->base.device)->threads,
	};
	l->extra_bytes = sizeof(float) * (size_t)(a->batch * a->heads * a->queries);
	l->forward_bytes = pd_attention_room(a, false);
	l->backward_bytes = pd_attention_room(a, true);
	return 0;
}

static struct pd_attention_pass describe(const struct pd_compiled_layer *l,
					 const struct pd_pass *pass)
{
	return (struct pd_attention_pass){
		.q = l->src[Q], .k = l->src[K], .v = l->src[V],
		.lengths = l->layer->input_count > LENGTHS ? l->src[LENGTHS] : NULL,
		.o = l->dst, .logs = l->extra, .room = l->temporary,
		.first_sample = pass->first_sample,
		.drops = l->layer->p > 0 && !pass->evaluate,
	};
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_attention_pass what = describe(l, pass);

	pd_attention_forward(l->own, &what);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_attention_pass what = describe(l, pass);

	what.d_o = l->diff_dst;
	what.dq = l->diff_src[Q];
	what.dk = l->diff_src[K];
	what.dv = l->diff_src[V];
	if (what.dq || what.dk || what.dv)
		pd_attention_backward(l->own, &what);
	return 0;
}

const struct pd_compiled_kind pd_cpu_attention = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
