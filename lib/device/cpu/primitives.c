/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of op, as oneDNN wants it described. */
#include "device/cpu/dnn.h"

#include <string.h>

/* status: of what made op_desc. */
static struct pd_op *op_make(struct pd_onednn *dnn, const char *what, dnnl_status_t status,
			     const void *op_desc, const struct pd_op *forward,
			     struct pd_error *err)
{
	dnnl_primitive_desc_t desc;

	if (status == dnnl_success)
		status = dnnl_primitive_desc_create(&desc, op_desc, dnn->attr, dnn->engine,
						    forward ? pd_dnn_desc(forward) : NULL);
	if (status != dnnl_success) {
		pd_dnn_failed(err, what, status);
		return NULL;
	}
	return pd_dnn_op(dnn, what, desc);
}

/* oneDNN's plain loops, orders of magnitude slower than the rest. */
static bool is_slow(const struct pd_op *op)
{
	const char *name = NULL;

	return dnnl_primitive_desc_query(pd_dnn_desc(op), dnnl_query_impl_info_str, 0, &name) !=
	       dnnl_success || strncmp(name, "ref", 3) == 0;
}

static struct pd_op *conv_op(struct pd_onednn *dnn, enum pd_way way, const struct pd_conv *c,
			     const struct pd_layout *fixed, const struct pd_op *forward,
			     struct pd_error *err)
{
	const int64_t src_size[] = { c->batch, c->channels, c->height, c->width };
	const int64_t dst_size[] = { c->batch, c->out_channels, c->out_height, c->out_width };
	const int64_t in[] = { c->height, c->width }, out[] = { c->out_height, c->out_width };
	const int64_t g = c->groups, o = c->out_channels, i = c->channels;
	const int64_t grouped[] = { g, o / g, i / g, c->kernel[0], c->kernel[1] };
	const dnnl_data_type_t of_weights = way == PD_BACKWARD_WEIGHTS ? dnnl_f32 : dnn->of_ops;
	dnnl_memory_desc_t src = pd_dnn_any(dnn->of_ops, 4, src_size);
	dnnl_memory_desc_t dst = pd_dnn_any(dnn->of_ops, 4, dst_size);
	dnnl_memory_desc_t weights = g > 1 ? pd_dnn_any(of_weights, 5, grouped)
		: pd_dnn_any(of_weights, 4, (const int64_t[]){ o, i, c->kernel[0], c->kernel[1] });
	dnnl_memory_desc_t bias = pd_dnn_any(of_weights, 1, &c->out_channels);
	const dnnl_memory_desc_t *bias_p = c->bias ? &bias : NULL;
	dnnl_dims_t dilate, right;
	dnnl_convolution_desc_t desc;
	dnnl_status_t status;

	for (int k = 0; k < 2; k++) {
		dilate[k] = c->dilation[k] - 1;
		right[k] = (out[k] - 1) * c->stride[k] + (c->kernel[k] - 1) * c->dilation[k] + 1 -
			   in[k] - c->padding[k];
	}
	if (fixed)
		weights = pd_dnn_as(of_weights, fixed);
	if (way == PD_FORWARD)
		status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training,
			dnnl_convolution_direct, &src, &weights, bias_p, &dst, c->stride, dilate,
			c->padding, right);
	else if (way == PD_BACKWARD_DATA)
		status = dnnl_dilated_convolution_backward_data_desc_init(&desc,
			dnnl_convolution_direct, &src, &weights, &dst, c->stride, dilate,
			c->padding, right);
	else
		status = dnnl_dilated_convolution_backward_weights_desc_init(&desc,
			dnnl_convolution_direct, &src, &weights, bias_p, &dst, c->stride, dilate,
			c->padding, right);
	return op_make(dnn, "convolution", status, &desc, forward, err);
}

struct pd_op *pd_op_conv(struct pd_onednn *dnn, enum pd_way way, const struct pd_conv *conv,
			 const struct pd_layout *weights, const struct pd_op *forward,
			 struct pd_error *err)
{
	struct pd_op *op = weights ? conv_op(dnn, way, conv, weights, forward, NULL) : NULL;

	return op && !is_slow(op) ? op : conv_op(dnn, way, conv, NULL, forward, err);
}

static struct pd_op *linear_op(struct pd_onednn *dnn, enum pd_way way,
			       const struct pd_layout *src, const struct pd_layout *dst,
			       const struct pd_layout *fixed, bool bias,
			       const struct pd_op *forward, struct pd_error *err)
{
	const int64_t size[] = { dst->md.dims[1], src->md.dims[1] };
	const dnnl_data_type_t of_weights = way == PD_BACKWARD_WEIGHTS ? dnnl_f32 : dnn->of_ops;
	dnnl_memory_desc_t weights = fixed ? pd_dnn_as(of_weights, fixed)
					   : pd_dnn_any(of_weights, 2, size);
	dnnl_memory_desc_t from = pd_dnn_as(dnn->of_ops, src), to = pd_dnn_as(dnn->of_ops, dst);
	dnnl_memory_desc_t bias_md = pd_dnn_any(of_weights, 1, size);
	const dnnl_memory_desc_t *bias_p = bias ? &bias_md : NULL;
	dnnl_inner_product_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training,
			&from, &weights, bias_p, &to);
	else if (way == PD_BACKWARD_DATA)
		status = dnnl_inner_product_backward_data_desc_init(&desc, &from, &weights, &to);
	else
		status = dnnl_inner_product_backward_weights_desc_init(&desc, &from, &weights,
			bias_p, &to);
	return op_make(dnn, "inner product", status, &desc, forward, err);
}

struct pd_op *pd_op_linear(struct pd_onednn *dnn, enum pd_way way, const struct pd_layout *src,
			   const struct pd_layout *dst, const struct pd_layout *weights, bool bias,
			   const struct pd_op *forward, struct pd_error *err)
{
	struct pd_op *op = weights ? linear_op(dnn, way, src, dst, weights, bias, forward, NULL)
				   : NULL;

	return op && !is_slow(op) ? op : linear_op(dnn, way, src, dst, NULL, bias, forward, err);
}

struct pd_op *pd_op_eltwise(struct pd_onednn *dnn, enum pd_way way, enum pd_curve curve,
			    const struct pd_layout *layout, const struct pd_op *forward,
			    struct pd_error *err)
{
	static const dnnl_alg_kind_t algorithm[] = {
		[PD_CURVE_RELU] = dnnl_eltwise_relu_use_dst_for_bwd,
		[PD_CURVE_TANH] = dnnl_eltwise_tanh_use_dst_for_bwd,
		[PD_CURVE_SIGMOID] = dnnl_eltwise_logistic_use_dst_for_bwd,
	};
	dnnl_memory_desc_t md = pd_dnn_as(dnn->of_ops, layout);
	dnnl_eltwise_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training,
			algorithm[curve], &md, 0, 0);
	else
		status = dnnl_eltwise_backward_desc_init(&desc, algorithm[curve], &md, &md, 0, 0);
	return op_make(dnn, "elementwise function", status, &desc, forward, err);
}

struct pd_op *pd_op_pool(struct pd_onednn *dnn, enum pd_way way, const struct pd_pool *pool,
			 const struct pd_layout *src, const struct pd_layout *dst,
			 const struct pd_op *forward, struct pd_error *err)
{
	dnnl_alg_kind_t algorithm = pool->max ? dnnl_pooling_max
		: pool->count_include_pad ? dnnl_pooling_avg_include_padding
		: dnnl_pooling_avg_exclude_padding;
	dnnl_memory_desc_t from = pd_dnn_as(dnn->of_ops, src), to = pd_dnn_as(dnn->of_ops, dst);
	dnnl_dims_t right;
	dnnl_pooling_desc_t desc;
	dnnl_status_t status;

	for (int k = 0; k < 2; k++)
		right[k] = (dst->md.dims[2 + k] - 1) * pool->stride[k] + pool->kernel[k] -
			   src->md.dims[2 + k] - pool->padding[k];
	if (way == PD_FORWARD)
		status = dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training, algorithm,
			&from, &to, pool->stride, pool->kernel, pool->padding, right);
	else
		status = dnnl_pooling_backward_desc_init(&desc, algorithm, &from, &to,
			pool->stride, pool->kernel, pool->padding, right);
	return op_make(dnn, "pooling", status, &desc, forward, err);
}

struct pd_op *pd_op_batchnorm(struct pd_onednn *dnn, enum pd_way way, bool global,
			      const struct pd_layout *layout, float eps,
			      const struct pd_op *forward, struct pd_error *err)
{
	unsigned flags = dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0);
	dnnl_memory_desc_t md = pd_dnn_as(dnn->of_ops, layout);
	dnnl_batch_normalization_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_batch_normalization_forward_desc_init(&desc,
			global ? dnnl_forward_inference : dnnl_forward_training, &md, eps,
			flags);
	else
		status = dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward,
			&md, &md, eps, flags);
	return op_make(dnn, "batch normalisation", status, &desc, forward, err);
}

struct pd_op *pd_op_reorder(struct pd_onednn *dnn, const struct pd_layout *from,
			    const struct pd_layout *to, struct pd_error *err)
{
	dnnl_primitive_desc_t desc;
	dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, &from->md, dnn->engine,
								  &to->md, dnn->engine, dnn->attr);

	if (status != dnnl_success) {
		pd_dnn_failed(err, "reorder", status);
		return NULL;
	}
	return pd_dnn_op(dnn, "reorder", desc);
}

int pd_onednn_gemm(const struct pd_gemm *g, struct pd_error *err)
{
	dnnl_status_t status = dnnl_sgemm(g->transposed_a ? 'T' : 'N', g->transposed_b ? 'T' : 'N',
					  g->m, g->n, g->k, 1, g->a, g->lda, g->b, g->ldb,
					  g->adds, g->c, g->ldc);

	return status == dnnl_success ? 0 : pd_dnn_failed(err, "matrix product", status);
}
