/* SPDX-License-Identifier: Apache-2.0 */
/* embedding, position_embedding, bias, parameter: see the CPU's. */
#include "run/device/cuda/cuda.h"

#include "base/rng.h"

static int64_t places_of(const struct pd_compiled_layer *l)
{
	return l->net->batch * pd_shape_elements(l->in_shape[0]);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->split_bytes = pd_cuda_batch_bytes(l, &l->layer->output);
	if (l->inside)
		l->backward_bytes = (l->layer->numbered ? 3 : 2) * sizeof(int32_t) * (size_t)places_of(l);
	if (l->layer->numbered)
		l->forward_bytes = sizeof(int32_t) * (size_t)places_of(l);
	return 0;
}

/* Sets *rows_p to the rows of all places, for which there is room: see the CPU's. */
static int find_rows(struct pd_compiled_layer *l, int32_t *room, const int32_t **rows_p,
		     struct pd_error *err)
{
	*rows_p = l->layer->numbered ? room : l->src[0];
	return !l->layer->numbered ? 0
		: pd_cuda_queued(l, pd_kernel_numbered(pd_cuda_engine(l)->stream, room, l->src[0],
						       l->net->batch,
						       pd_shape_elements(l->in_shape[0]),
						       (int32_t)l->layer->padding_idx), err);
}

static struct pd_kernel_drop drop_of(const struct pd_compiled_layer *l, const struct pd_pass *pass)
{
	return (struct pd_kernel_drop){
		.seed = l->net->seed,
		.stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index),
		.count = l->layer->num_embeddings,
		.p = pass->evaluate ? 0 : (float)l->layer->weight_dropout,
		.scale = (float)(1 / (1 - l->layer->weight_dropout)),
	};
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const struct pd_kernel_drop drop = drop_of(l, pass);
	const int32_t *rows;

	if (find_rows(l, l->temporary, &rows, err) < 0)
		return -1;
	return pd_cuda_queued(l, pd_kernel_embedding(engine->stream, l->net->dtype, &drop,
						     engine->numbers, l->dst,
						     l->parameters[0], rows,
						     places_of(l), l->layer->num_embeddings,
						     l->layer->embedding_dim), err);
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	size_t bytes = sizeof(float) * (size_t)l->layer->parameter_elements;
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	const struct pd_kernel_drop drop = drop_of(l, pass);
	const int32_t *rows;

	if (pass->part == PD_BACKWARD_INPUT)
		return 0;
	if (l->net->device->zero(l->net, l->diff_parameters[0], bytes, err) < 0)
		return -1;
	if (find_rows(l, (int32_t *)l->temporary + 2 * places_of(l), &rows, err) < 0)
		return -1;
	return pd_cuda_queued(l, pd_kernel_embedding_back(engine->stream, l->net->dtype, &drop,
							  engine->numbers, l->diff_parameters[0],
							  l->temporary,
							  l->diff_dst, rows, places_of(l),
							  l->layer->num_embeddings,
							  l->layer->embedding_dim,
							  l->layer->padding_idx), err);
}

const struct pd_compiled_kind pd_cuda_embedding = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};

static size_t weight_bytes(const struct pd_compiled_layer *l)
{
	return sizeof(float) * (size_t)l->layer->parameter_elements;
}

static int prepare_positions(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_layout *in = l->net->tensors[l->layer->inputs[0]].layout;

	l->passes = !pd_cuda_unlike(in, NULL, l->in_shape[0]);
	l->split_bytes = pd_compiled_reserved(l->net, weight_bytes(l));
	return 0;
}

static int forward_positions(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	const char *rows = (const char *)l->parameters[0] +
			   pd_dtype_bytes(l->net->dtype) * (size_t)pd_compiled_skipped(l);

	return pd_cuda_queued(l, pd_kernel_positions(pd_cuda_engine(l)->stream, l->net->dtype,
						     l->dst, l->src[0], rows,
						     pd_compiled_parts(l), pd_compiled_used(l)), err);
}

/* The gradient of the parameter, in either part of backward. */
static int parameter_back(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	float *all = pass->part == PD_BACKWARD_INPUT ? l->split : l->diff_parameters[0];
	int64_t used = pd_compiled_used(l), skipped = pd_compiled_skipped(l);
	size_t before = sizeof(float) * (size_t)skipped;
	size_t rest = weight_bytes(l) - before - sizeof(float) * (size_t)used;

	if (pass->part == PD_BACKWARD_WEIGHT)
		return l->net->device->copy(l->net, all, l->split, weight_bytes(l), err);
	if (pd_cuda_queued(l, pd_kernel_positions_back(pd_cuda_engine(l)->stream, l->net->dtype,
						       all + skipped, l->diff_dst, pd_compiled_parts(l), used),
			   err) < 0 ||
	    (before > 0 && l->net->device->zero(l->net, all, before, err) < 0) ||
	    (rest > 0 && l->net->device->zero(l->net, all + skipped + used, rest, err) < 0))
		return -1;
	return 0;
}

static int backward_positions(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	if (parameter_back(l, pass, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0] || l->diff_src[0] == l->diff_dst)
		return 0;
	return l->net->device->copy(l->net, l->diff_src[0], l->diff_dst,
				    pd_cuda_batch_bytes(l, l->in_shape[0]), err);
}

const struct pd_compiled_kind pd_cuda_position_embedding = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare_positions,
	.forward = forward_positions,
	.backward = backward_positions,
};

const struct pd_compiled_kind pd_cuda_bias = {
	.plain = true,
	.plain_parameters = true,
	.prepare = prepare_positions,
	.forward = forward_positions,
	.backward = backward_positions,
};

static int prepare_parameter(struct pd_compiled_layer *l, struct pd_error *err)
{
	l->split_bytes = pd_compiled_reserved(l->net, weight_bytes(l));
	return 0;
}

static int forward_parameter(struct pd_compiled_layer *l, const struct pd_pass *pass,
			     struct pd_error *err)
{
	return pd_cuda_queued(l, pd_kernel_copies(pd_cuda_engine(l)->stream, l->net->dtype, l->dst,
						  l->parameters[0], l->net->batch,
						  l->layer->parameter_elements, 1), err);
}

static int backward_parameter(struct pd_compiled_layer *l, const struct pd_pass *pass,
			      struct pd_error *err)
{
	if (parameter_back(l, pass, err) < 0)
		return -1;
	if (pass->part == PD_BACKWARD_WEIGHT || !l->diff_src[0])
		return 0;
	return l->net->device->zero(l->net, l->diff_src[0],
				    l->net->tensors[l->layer->inputs[0]].bytes, err);
}

const struct pd_compiled_kind pd_cuda_parameter = {
	.plain_parameters = true,
	.prepare = prepare_parameter,
	.forward = forward_parameter,
	.backward = backward_parameter,
};
