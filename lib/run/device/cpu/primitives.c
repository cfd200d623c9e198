/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of op is described to oneDNN here. */
#include "run/device/cpu/dnn.h"

#include "model/winograd.h"

/* Makes an op; status is that of making its primitive descriptor. */
static struct pd_primitive *op_make(struct pd_onednn *dnn, const char *what, dnnl_status_t status,
				    dnnl_primitive_desc_t desc, struct pd_error *err)
{
	if (status == dnnl_success)
		return pd_dnn_op(dnn, what, desc);
	pd_dnn_failed(err, what, status);
	return NULL;
}

/* Returns the descriptor of the forward op that a backward op refers to. */
static const_dnnl_primitive_desc_t hint(const struct pd_primitive *forward)
{
	return forward ? pd_dnn_desc(forward) : NULL;
}

enum algorithm { DIRECT, WINOGRAD };

static struct pd_primitive *conv_op(struct pd_onednn *dnn, enum pd_propagation propagation, const struct pd_conv *c,
				    enum algorithm algorithm, const struct pd_layout *fixed,
				    const struct pd_primitive *forward, struct pd_error *err)
{
	const dnnl_data_type_t type = algorithm == WINOGRAD ? dnnl_f32 : dnn->of_ops;
	const dnnl_alg_kind_t kind = algorithm == WINOGRAD ? dnnl_convolution_winograd
							   : dnnl_convolution_direct;
	const int64_t src_size[] = { c->batch, c->channels, c->height, c->width };
	const int64_t dst_size[] = { c->batch, c->out_channels, c->out_height, c->out_width };
	const int64_t in[] = { c->height, c->width }, out[] = { c->out_height, c->out_width };
	const int64_t g = c->groups, o = c->out_channels, i = c->channels;
	const int64_t grouped[] = { g, o / g, i / g, c->kernel[0], c->kernel[1] };
	const dnnl_data_type_t of_weights = propagation == PD_BACKWARD_WEIGHTS ? dnnl_f32 : type;
	const int64_t whole[] = { o, i, c->kernel[0], c->kernel[1] };
	const dnnl_data_type_t of_src = propagation == PD_BACKWARD_DATA && c->wide ? dnnl_f32 : type;
	const_dnnl_memory_desc_t src = pd_dnn_any(dnn, of_src, 4, src_size);
	const_dnnl_memory_desc_t dst = pd_dnn_any(dnn, type, 4, dst_size);
	const_dnnl_memory_desc_t weights = fixed ? pd_dnn_as(dnn, of_weights, fixed)
		: g > 1 ? pd_dnn_any(dnn, of_weights, 5, grouped)
		: pd_dnn_any(dnn, of_weights, 4, whole);
	const_dnnl_memory_desc_t bias =
		c->bias ? pd_dnn_any(dnn, of_weights, 1, &c->out_channels) : NULL;
	dnnl_dims_t dilate, right;
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status;

	for (int k = 0; k < 2; k++) {
		dilate[k] = c->dilation[k] - 1;
		right[k] = (out[k] - 1) * c->stride[k] + (c->kernel[k] - 1) * c->dilation[k] + 1 -
			   in[k] - c->padding[k];
	}
	if (propagation == PD_FORWARD)
		status = dnnl_convolution_forward_primitive_desc_create(&desc, dnn->engine,
			dnnl_forward_training, kind, src, weights, bias, dst,
			c->stride, dilate, c->padding, right, dnn->attr);
	else if (propagation == PD_BACKWARD_DATA)
		status = dnnl_convolution_backward_data_primitive_desc_create(&desc, dnn->engine,
			kind, src, weights, dst, c->stride, dilate, c->padding,
			right, hint(forward), dnn->attr);
	else
		status = dnnl_convolution_backward_weights_primitive_desc_create(&desc,
			dnn->engine, kind, src, weights, bias, dst, c->stride,
			dilate, c->padding, right, hint(forward), dnn->attr);
	return op_make(dnn, "convolution", status, desc, err);
}

/* Tells whether a convolution goes Winograd's way.  The kernels are f32. */
static bool suits_winograd(const struct pd_onednn *dnn, const struct pd_conv *c)
{
	const struct pd_winograd_window window = {
		c->batch, c->channels, c->out_channels, c->out_height, c->out_width, c->groups, c->kernel, c->stride,
		c->dilation
	};

	return dnn->winograd && dnn->of_ops == dnnl_f32 && pd_winograd_suits(&window);
}

/* Takes the given layout of the weights if there is a quick kernel for it, else any. */
static struct pd_primitive *conv_by(struct pd_onednn *dnn, enum pd_propagation propagation,
				    const struct pd_conv *conv, enum algorithm algorithm,
				    const struct pd_layout *weights,
				    const struct pd_primitive *forward, struct pd_error *err)
{
	struct pd_primitive *op = weights ? conv_op(dnn, propagation, conv, algorithm, weights, forward,
						    NULL)
				   : NULL;

	return op && !pd_primitive_is_slow(op) ? op
		: conv_op(dnn, propagation, conv, algorithm, NULL, forward, err);
}

struct pd_primitive *pd_primitive_conv(struct pd_onednn *dnn, enum pd_propagation propagation,
				       const struct pd_conv *conv, const struct pd_layout *weights,
				       const struct pd_primitive *forward, struct pd_error *err)
{
	struct pd_primitive *op = suits_winograd(dnn, conv)
		? conv_by(dnn, propagation, conv, WINOGRAD, weights, forward, NULL) : NULL;

	return op && !pd_primitive_is_slow(op) ? op
		: conv_by(dnn, propagation, conv, DIRECT, weights, forward, err);
}

/*
 * For so many rows the matrix products of oneDNN do some 105 GFLOP/s forward and backward on a
 * processor where its kernels for inner products do 65 to 105 backward; for fewer rows they lose
 * forward what they gain backward.  The rule depends on layer and batch alone, so that bits do not
 * depend on where the network is cut.
 */
#define PRODUCT_ROWS 1024

static bool suits_product(const struct pd_onednn *dnn, const struct pd_layout *src)
{
	return dnn->of_ops == dnnl_f32 && pd_dnn_size(src->md)[0] >= PRODUCT_ROWS;
}

static dnnl_status_t linear_desc(struct pd_onednn *dnn, enum pd_propagation propagation,
				 const struct pd_layout *src, const struct pd_layout *dst,
				 const struct pd_layout *fixed, bool bias,
				 const struct pd_primitive *forward, dnnl_primitive_desc_t *desc_p)
{
	const int64_t size[] = { pd_dnn_size(dst->md)[1], pd_dnn_size(src->md)[1] };
	const dnnl_data_type_t of_weights = propagation == PD_BACKWARD_WEIGHTS ? dnnl_f32 : dnn->of_ops;
	const_dnnl_memory_desc_t weights_md = fixed ? pd_dnn_as(dnn, of_weights, fixed)
						    : pd_dnn_any(dnn, of_weights, 2, size);
	const_dnnl_memory_desc_t from = pd_dnn_as(dnn, dnn->of_ops, src);
	const_dnnl_memory_desc_t to = pd_dnn_as(dnn, dnn->of_ops, dst);
	const_dnnl_memory_desc_t bias_md = bias ? pd_dnn_any(dnn, of_weights, 1, size) : NULL;

	if (propagation == PD_FORWARD)
		return dnnl_inner_product_forward_primitive_desc_create(desc_p, dnn->engine,
			dnnl_forward_training, from, weights_md, bias_md, to, dnn->attr);
	if (propagation == PD_BACKWARD_DATA)
		return dnnl_inner_product_backward_data_primitive_desc_create(desc_p, dnn->engine,
			from, weights_md, to, hint(forward), dnn->attr);
	return dnnl_inner_product_backward_weights_primitive_desc_create(desc_p, dnn->engine, from,
		weights_md, bias_md, to, hint(forward), dnn->attr);
}

static struct pd_primitive *linear_op(struct pd_onednn *dnn, enum pd_propagation propagation,
				      const struct pd_layout *src, const struct pd_layout *dst,
				      const struct pd_layout *fixed, bool bias,
				      const struct pd_primitive *forward, struct pd_error *err)
{
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status = linear_desc(dnn, propagation, src, dst, fixed, bias, forward, &desc);

	if (status == dnnl_success && suits_product(dnn, src) &&
	    pd_dnn_other_kernel(&desc, "gemm:jit", dnn->engine, hint(forward),
				dnn->attr) != dnnl_success) {
		dnnl_primitive_desc_destroy(desc);
		status = linear_desc(dnn, propagation, src, dst, fixed, bias, forward, &desc);
	}
	return op_make(dnn, "inner product", status, desc, err);
}

struct pd_primitive *pd_primitive_linear(struct pd_onednn *dnn, enum pd_propagation propagation,
					 const struct pd_layout *src, const struct pd_layout *dst,
					 const struct pd_layout *weights, bool bias,
					 const struct pd_primitive *forward, struct pd_error *err)
{
	struct pd_primitive *op = weights ? linear_op(dnn, propagation, src, dst, weights, bias, forward,
						      NULL)
				   : NULL;

	return op && !pd_primitive_is_slow(op) ? op : linear_op(dnn, propagation, src, dst, NULL, bias,
								forward, err);
}

struct pd_primitive *pd_primitive_product(struct pd_onednn *dnn, const struct pd_layout *src,
					  const struct pd_layout *dst, struct pd_error *err)
{
	const int64_t size[] = { pd_dnn_size(dst->md)[1], pd_dnn_size(src->md)[1] };
	const_dnnl_memory_desc_t weights = pd_dnn_any(dnn, dnn->of_ops, 2, size);
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status = dnnl_inner_product_forward_primitive_desc_create(&desc,
		dnn->engine, dnnl_forward_training, pd_dnn_as(dnn, dnn->of_ops, src), weights, NULL,
		pd_dnn_as(dnn, dnnl_f32, dst), dnn->attr);

	return op_make(dnn, "matrix product", status, desc, err);
}

struct pd_primitive *pd_primitive_eltwise(struct pd_onednn *dnn, enum pd_propagation propagation,
					  enum pd_curve curve, const struct pd_layout *layout,
					  const struct pd_primitive *forward, struct pd_error *err)
{
	static const dnnl_alg_kind_t algorithm[] = {
		[PD_CURVE_sigmoid] = dnnl_eltwise_logistic_use_dst_for_bwd,
		[PD_CURVE_gelu] = dnnl_eltwise_gelu_erf,
		[PD_CURVE_silu] = dnnl_eltwise_swish,
	};
	const float alpha = curve == PD_CURVE_silu;
	const_dnnl_memory_desc_t md = pd_dnn_as(dnn, dnn->of_ops, layout);
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status;

	if (propagation == PD_FORWARD)
		status = dnnl_eltwise_forward_primitive_desc_create(&desc, dnn->engine,
			dnnl_forward_training, algorithm[curve], md, md, alpha, 0, dnn->attr);
	else
		status = dnnl_eltwise_backward_primitive_desc_create(&desc, dnn->engine,
			algorithm[curve], md, md, md, alpha, 0, hint(forward), dnn->attr);
	return op_make(dnn, "elementwise function", status, desc, err);
}

struct pd_primitive *pd_primitive_pool(struct pd_onednn *dnn, enum pd_propagation propagation,
				       const struct pd_pooling *pool, const struct pd_layout *src,
				       const struct pd_layout *dst,
				       const struct pd_primitive *forward, struct pd_error *err)
{
	dnnl_alg_kind_t algorithm = pool->max ? dnnl_pooling_max
		: pool->count_include_pad ? dnnl_pooling_avg_include_padding
		: dnnl_pooling_avg_exclude_padding;
	const_dnnl_memory_desc_t from = pd_dnn_as(dnn, dnn->of_ops, src);
	const_dnnl_memory_desc_t to = pd_dnn_as(dnn, dnn->of_ops, dst);
	const dnnl_dims_t dilate = { 0, 0 };
	dnnl_dims_t right;
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status;

	for (int k = 0; k < 2; k++)
		right[k] = (pd_dnn_size(to)[2 + k] - 1) * pool->stride[k] + pool->kernel[k] -
			   pd_dnn_size(from)[2 + k] - pool->padding[k];
	if (propagation == PD_FORWARD)
		status = dnnl_pooling_forward_primitive_desc_create(&desc, dnn->engine,
			dnnl_forward_training, algorithm, from, to, pool->stride, pool->kernel,
			dilate, pool->padding, right, dnn->attr);
	else
		status = dnnl_pooling_backward_primitive_desc_create(&desc, dnn->engine,
			algorithm, from, to, pool->stride, pool->kernel, dilate, pool->padding,
			right, hint(forward), dnn->attr);
	return op_make(dnn, "pooling", status, desc, err);
}

struct pd_primitive *pd_primitive_batchnorm(struct pd_onednn *dnn, enum pd_propagation propagation, bool global,
					    const struct pd_layout *layout, float eps,
					    const struct pd_primitive *forward,
					    struct pd_error *err)
{
	unsigned flags = dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0);
	const_dnnl_memory_desc_t md = pd_dnn_as(dnn, dnn->of_ops, layout);
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status;

	if (propagation == PD_FORWARD)
		status = dnnl_batch_normalization_forward_primitive_desc_create(&desc, dnn->engine,
			global ? dnnl_forward_inference : dnnl_forward_training, md, md, eps,
			flags, dnn->attr);
	else
		status = dnnl_batch_normalization_backward_primitive_desc_create(&desc,
			dnn->engine, dnnl_backward, md, md, md, eps, flags, hint(forward),
			dnn->attr);
	return op_make(dnn, "batch normalisation", status, desc, err);
}

struct pd_primitive *pd_primitive_reorder(struct pd_onednn *dnn, const struct pd_layout *from,
					  const struct pd_layout *to, struct pd_error *err)
{
	dnnl_primitive_desc_t desc = NULL;
	dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, from->md, dnn->engine,
								  to->md, dnn->engine, dnn->attr);

	return op_make(dnn, "reorder", status, desc, err);
}

int pd_onednn_product(const struct pd_matrix_product *g, struct pd_error *err)
{
	dnnl_status_t status = dnnl_sgemm(g->transposed_a ? 'T' : 'N', g->transposed_b ? 'T' : 'N',
					  g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb,
					  g->adds, g->c, g->ldc);

	return status == dnnl_success ? 0 : pd_dnn_failed(err, "matrix product", status);
}
