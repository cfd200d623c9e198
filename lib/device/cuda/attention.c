/* SPDX-License-Identifier: Apache-2.0 */
/* attention: see lib/device/cpu/attention.h.  The slot keeps one number for each query and head. */
#include "device/cuda/cuda.h"

enum { Q, K, V, LENGTHS };              /* inputs */

struct attention {
	struct pd_cuda_own own;         /* nothing to release */
	struct pd_kernel_attention shape;
};

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layer *layer = l->layer;
	struct attention *own;
	struct pd_kernel_attention *a;

	if (!l->inside)
		return 0;
	l->own = own = pd_zalloc(sizeof(*own));
	a = &own->shape;
	*a = (struct pd_kernel_attention){
		.batch = l->net->batch, .heads = layer->heads, .kv_heads = layer->kv_heads,
		.queries = l->in_shape[Q]->size[0], .keys = l->in_shape[K]->size[0],
		.width = l->in_shape[Q]->size[1] / layer->heads,
		.value_width = l->in_shape[V]->size[1] / layer->kv_heads,
		.causal = layer->causal, .window = layer->window, .scale = (float)layer->scale, .p = (float)layer->p,
		.seed = l->net->seed,
		.stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index),
	};
	a->tensor_cores = pd_kernel_attention_mma_suits(l->net->dtype, a);
	l->extra_bytes = sizeof(float) * (size_t)(a->batch * a->heads * a->queries);
	l->backward_bytes = l->extra_bytes;
	return 0;
}

static struct pd_kernel_attention describe(const struct pd_compiled_layer *l,
					   const struct pd_pass *pass)
{
	struct pd_kernel_attention a = ((const struct attention *)l->own)->shape;

	a.numbers = pd_cuda_engine(l)->numbers;
	a.drops = a.p > 0 && !pass->evaluate;
	a.q = l->src[Q];
	a.k = l->src[K];
	a.v = l->src[V];
	a.lengths = l->layer->input_count > LENGTHS ? l->src[LENGTHS] : NULL;
	a.o = l->dst;
	a.logs = l->extra;
	return a;
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_attention a = describe(l, pass);

	return pd_cuda_queued(l, pd_kernel_attention(pd_cuda_engine(l)->stream, l->net->dtype, &a),
			      err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct pd_kernel_attention a = describe(l, pass);

	a.delta = l->temporary;
	a.d_o = l->diff_dst;
	a.dq = l->diff_src[Q];
	a.dk = l->diff_src[K];
	a.dv = l->diff_src[V];
	if (!a.dq && !a.dk && !a.dv)
		return 0;
	return pd_cuda_queued(l, pd_kernel_attention_back(pd_cuda_engine(l)->stream, l->net->dtype,
							  &a), err);
}

const struct pd_compiled_kind pd_cuda_attention = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
