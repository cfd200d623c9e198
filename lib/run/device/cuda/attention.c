/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attention: see lib/run/device/cpu/attention.h.  The slot keeps one number for each query and head.
 *
 * It takes tensor cores in 16 bits, for heads of up to 128 features (attention_mma.cu over
 * mma.cuh, which says who of a warp has which numbers); in f32, for other widths and on GPUs
 * without them it takes attention.cu.
 */
#include "run/device/cuda/cuda.h"

enum { Q, K, V, LENGTHS };              /* inputs */

struct attention {
	struct pd_cuda_own own;         /* nothing to release */
	struct pd_kernel_attention shape;
	struct pd_relative relative;
	size_t ranges, parts, delta;    /* in scratch; a bias is in front */
};

/* The bias is laid out anew in every pass, with its parts behind it in backward, and delta behind these. */
static void prepare_bias(struct pd_compiled_layer *l, struct attention *own)
{
	struct pd_kernel_attention *a = &own->shape;

	if (l->layer->parameter_count == 0)
		return;
	own->relative = pd_relative_of(l->layer);
	a->buckets = own->relative.buckets;
	a->diagonals = pd_kernel_attention_diagonals(a);
	l->split_bytes = pd_compiled_reserved(l->net, sizeof(float) * (size_t)l->layer->parameter_elements);
	pd_take(&l->forward_bytes, sizeof(float) * pd_kernel_attention_bias_floats(a));
	own->ranges = pd_take(&l->forward_bytes, sizeof(*a->ranges) * (size_t)a->buckets);
	l->backward_bytes = l->forward_bytes;
	own->parts = pd_take(&l->backward_bytes, sizeof(float) * pd_kernel_attention_parts_floats(a));
}

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
	prepare_bias(l, own);
	own->delta = pd_take(&l->backward_bytes, l->extra_bytes);
	return 0;
}

static struct pd_kernel_attention kernel_of(const struct pd_compiled_layer *l,
					    const struct pd_pass *pass)
{
	const struct attention *own = l->own;
	struct pd_kernel_attention a = own->shape;

	a.numbers = pd_cuda_engine(l)->numbers;
	a.drops = a.p > 0 && !pass->evaluate;
	a.q = l->src[Q];
	a.k = l->src[K];
	a.v = l->src[V];
	a.lengths = l->layer->input_count > LENGTHS ? l->src[LENGTHS] : NULL;
	a.o = l->dst;
	a.logs = l->extra;
	if (a.buckets > 0) {
		a.bias = l->temporary;
		a.ranges = (void *)((char *)l->temporary + own->ranges);
	}
	return a;
}

static int lay_out_bias(struct pd_compiled_layer *l, const struct pd_kernel_attention *a, struct pd_error *err)
{
	const struct attention *own = l->own;

	return !a->bias ? 0 :
	       pd_cuda_queued(l, pd_kernel_attention_bias(pd_cuda_engine(l)->stream, l->net->dtype, a,
							  &own->relative, l->parameters[0]), err);
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_kernel_attention a = kernel_of(l, pass);

	if (lay_out_bias(l, &a, err) < 0)
		return -1;
	return pd_cuda_queued(l, pd_kernel_attention(pd_cuda_engine(l)->stream, l->net->dtype, &a),
			      err);
}

static int back(struct pd_compiled_layer *l, const struct pd_kernel_attention *a, float *d_weight,
		struct pd_error *err)
{
	cudaStream_t stream = pd_cuda_engine(l)->stream;

	if (lay_out_bias(l, a, err) < 0 ||
	    pd_cuda_queued(l, pd_kernel_attention_back(stream, l->net->dtype, a), err) < 0)
		return -1;
	return !a->bias ? 0 : pd_cuda_queued(l, pd_kernel_attention_bias_back(stream, a, d_weight), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct attention *own = l->own;
	struct pd_kernel_attention a = kernel_of(l, pass);
	float *d_weight = a.bias ? l->diff_parameters[0] : NULL;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return !a.bias ? 0 : l->net->device->copy(l->net, d_weight, l->split, sizeof(float) *
							   (size_t)l->layer->parameter_elements, err);
	if (pass->part == PD_BACKWARD_INPUT)
		d_weight = l->split;
	a.d_bias = (float *)((char *)l->temporary + own->parts);
	a.delta = (float *)((char *)l->temporary + own->delta);
	a.d_o = l->diff_dst;
	a.dq = l->diff_src[Q];
	a.dk = l->diff_src[K];
	a.dv = l->diff_src[V];
	return a.dq || a.dk || a.dv || a.bias ? back(l, &a, d_weight, err) : 0;
}

const struct pd_compiled_kind pd_cuda_attention = {
	.plain = true,
	.keeps_output = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
