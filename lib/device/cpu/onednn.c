/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that depends on the version of oneDNN: 2.6, C interface. */
#include "device/cpu/onednn.h"

#include "base/mem.h"

#include <oneapi/dnnl/dnnl.h>

#include <stdlib.h>
#include <string.h>

/* Its prototypes say [DNNL_MAX_NDIMS]; it reads as many as the tensor has dimensions. */
#pragma GCC diagnostic ignored "-Wstringop-overread"

#define CACHE 16

struct pd_layout {
	dnnl_memory_desc_t md;
	struct pd_layout *next;
};

/*
 * One argument of an op.  oneDNN writes zeros into the padding of a padded tensor whenever
 * a pointer is given to a memory object.  That would cost a pass over the borders at each
 * call, and so there is an object per pointer (a slot, a version of the weights); when
 * there are more than CACHE, the eldest changes its pointer.
 */
struct argument {
	enum pd_arg arg;
	int native;                     /* DNNL_ARG_... */
	bool padded;
	const struct pd_layout *layout;
	struct {
		const void *ptr;
		dnnl_memory_t memory;
	} cache[CACHE];
	int used, next;
};

struct pd_op {
	const char *what;
	struct pd_onednn *dnn;
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive;
	size_t scratch_bytes;
	int count;
	struct argument *args[PD_ARGS]; /* those it takes */
	struct pd_op *next;
};

struct pd_onednn {
	dnnl_data_type_t type;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attr;
	struct pd_layout *layouts;
	struct pd_op *ops;
};

static const int native_arg[PD_ARGS] = {
	[PD_ARG_SRC] = DNNL_ARG_SRC, [PD_ARG_DST] = DNNL_ARG_DST,
	[PD_ARG_WEIGHTS] = DNNL_ARG_WEIGHTS, [PD_ARG_BIAS] = DNNL_ARG_BIAS,
	[PD_ARG_SCALE] = DNNL_ARG_SCALE, [PD_ARG_SHIFT] = DNNL_ARG_SHIFT,
	[PD_ARG_MEAN] = DNNL_ARG_MEAN, [PD_ARG_VARIANCE] = DNNL_ARG_VARIANCE,
	[PD_ARG_WORKSPACE] = DNNL_ARG_WORKSPACE,
	[PD_ARG_DIFF_SRC] = DNNL_ARG_DIFF_SRC, [PD_ARG_DIFF_DST] = DNNL_ARG_DIFF_DST,
	[PD_ARG_DIFF_WEIGHTS] = DNNL_ARG_DIFF_WEIGHTS, [PD_ARG_DIFF_BIAS] = DNNL_ARG_DIFF_BIAS,
	[PD_ARG_DIFF_SCALE] = DNNL_ARG_DIFF_SCALE, [PD_ARG_DIFF_SHIFT] = DNNL_ARG_DIFF_SHIFT,
	[PD_ARG_SCRATCH] = DNNL_ARG_SCRATCHPAD,
};

static int failed(struct pd_error *err, const char *what, dnnl_status_t status)
{
	static const char *const names[] = {
		[dnnl_success] = "success", [dnnl_out_of_memory] = "out of memory",
		[dnnl_invalid_arguments] = "invalid arguments",
		[dnnl_unimplemented] = "not implemented", [dnnl_iterator_ends] = "no kernel",
		[dnnl_runtime_error] = "runtime error", [dnnl_not_required] = "not required",
	};

	return pd_error_failed(err, "oneDNN: %s: %s", what,
			       (size_t)status < PD_COUNT(names) ? names[status] : "unknown error");
}

/* Whether it has the instructions for bf16 or makes do without: AVX-512 is enough. */
static int check_type(enum pd_dtype dtype, struct pd_error *err)
{
	if (dtype != PD_F32 && dtype != PD_BF16)
		return pd_error_input(err, "dtype %s: processors compute in f32 or bf16",
				      pd_dtype_name[dtype]);
	if (dtype == PD_BF16 && (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) !=
	    dnnl_cpu_isa_avx512_core)
		return pd_error_input(err, "dtype bf16: this processor has no AVX-512, without which "
				      "oneDNN does not compute in it; expected f32");
	return 0;
}

struct pd_onednn *pd_onednn_open(enum pd_dtype dtype, struct pd_error *err)
{
	struct pd_onednn *dnn;
	dnnl_status_t status;

	if (check_type(dtype, err) < 0)
		return NULL;
	dnn = pd_zalloc(sizeof(*dnn));
	dnn->type = dtype == PD_BF16 ? dnnl_bf16 : dnnl_f32;
	status = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
	if (status == dnnl_success)
		status = dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_in_order);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_create(&dnn->attr);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_scratchpad_mode(dnn->attr,
								 dnnl_scratchpad_mode_user);
	if (status == dnnl_success)
		return dnn;
	failed(err, "engine", status);
	pd_onednn_close(dnn);
	return NULL;
}

static void op_free(struct pd_op *op)
{
	for (int i = 0; i < op->count; i++) {
		for (int k = 0; k < op->args[i]->used; k++)
			dnnl_memory_destroy(op->args[i]->cache[k].memory);
		free(op->args[i]);
	}
	if (op->primitive)
		dnnl_primitive_destroy(op->primitive);
	dnnl_primitive_desc_destroy(op->desc);
	free(op);
}

void pd_onednn_close(struct pd_onednn *dnn)
{
	if (!dnn)
		return;
	while (dnn->ops) {
		struct pd_op *op = dnn->ops;

		dnn->ops = op->next;
		op_free(op);
	}
	while (dnn->layouts) {
		struct pd_layout *layout = dnn->layouts;

		dnn->layouts = layout->next;
		free(layout);
	}
	if (dnn->attr)
		dnnl_primitive_attr_destroy(dnn->attr);
	if (dnn->stream)
		dnnl_stream_destroy(dnn->stream);
	if (dnn->engine)
		dnnl_engine_destroy(dnn->engine);
	free(dnn);
}

/* Equal layouts are one. */
static const struct pd_layout *intern(struct pd_onednn *dnn, const dnnl_memory_desc_t *md)
{
	struct pd_layout *layout;

	for (layout = dnn->layouts; layout; layout = layout->next)
		if (dnnl_memory_desc_equal(&layout->md, md))
			return layout;
	layout = pd_zalloc(sizeof(*layout));
	layout->md = *md;
	layout->next = dnn->layouts;
	dnn->layouts = layout;
	return layout;
}

static dnnl_memory_desc_t plain_md(dnnl_data_type_t type, int dims, const int64_t *size)
{
	static const dnnl_format_tag_t tags[] = {
		dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde
	};
	dnnl_memory_desc_t md;

	if (dnnl_memory_desc_init_by_tag(&md, dims, size, type, tags[dims]) != dnnl_success)
		pd_bug("a plain layout of %d dimensions", dims);
	return md;
}

static dnnl_memory_desc_t any_md(dnnl_data_type_t type, int dims, const int64_t *size)
{
	dnnl_memory_desc_t md;

	if (dnnl_memory_desc_init_by_tag(&md, dims, size, type, dnnl_format_tag_any) !=
	    dnnl_success)
		pd_bug("a layout of %d dimensions", dims);
	return md;
}

const struct pd_layout *pd_layout_plain(struct pd_onednn *dnn, int dims, const int64_t *size)
{
	dnnl_memory_desc_t md = plain_md(dnn->type, dims, size);

	return intern(dnn, &md);
}

static dnnl_memory_desc_t full_md(const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = layout->md;

	md.data_type = dnnl_f32;
	return md;
}

const struct pd_layout *pd_layout_full(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = full_md(layout);

	return intern(dnn, &md);
}

const struct pd_layout *pd_layout_like(struct pd_onednn *dnn, const struct pd_layout *layout,
				       const int64_t *size)
{
	static const dnnl_format_tag_t tags[] = {
		dnnl_nchw, dnnl_nhwc, dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c
	};
	int dims = layout->md.ndims;
	dnnl_memory_desc_t md;

	if (pd_layout_is_plain(layout))
		return pd_layout_plain(dnn, dims, size);
	for (size_t i = 0; dims == 4 && i < PD_COUNT(tags); i++) {
		if (dnnl_memory_desc_init_by_tag(&md, dims, layout->md.dims, layout->md.data_type,
						tags[i]) !=
		    dnnl_success || !dnnl_memory_desc_equal(&md, &layout->md))
			continue;
		if (dnnl_memory_desc_init_by_tag(&md, dims, size, layout->md.data_type, tags[i]) ==
		    dnnl_success)
			return intern(dnn, &md);
	}
	return NULL;
}

size_t pd_layout_bytes(const struct pd_layout *layout)
{
	return dnnl_memory_desc_get_size(&layout->md);
}

bool pd_layout_same(const struct pd_layout *a, const struct pd_layout *b)
{
	return a == b || dnnl_memory_desc_equal(&a->md, &b->md);
}

bool pd_layout_is_plain(const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = plain_md(layout->md.data_type, layout->md.ndims, layout->md.dims);

	return dnnl_memory_desc_equal(&md, &layout->md);
}

static bool is_padded(const dnnl_memory_desc_t *md)
{
	for (int i = 0; i < md->ndims; i++)
		if (md->padded_dims[i] != md->dims[i])
			return true;
	return false;
}

bool pd_layout_stacks(const struct pd_layout *layout)
{
	static const dnnl_format_tag_t tags[] = { dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c };
	dnnl_memory_desc_t md;

	if (pd_layout_is_plain(layout))
		return true;
	if (layout->md.ndims != 4 || is_padded(&layout->md))
		return false;
	for (size_t i = 0; i < PD_COUNT(tags); i++)
		if (dnnl_memory_desc_init_by_tag(&md, 4, layout->md.dims, layout->md.data_type,
						tags[i]) == dnnl_success &&
		    dnnl_memory_desc_equal(&md, &layout->md))
			return true;
	return false;
}

/* Takes the primitive descriptor over. */
static struct pd_op *op_new(struct pd_onednn *dnn, const char *what, dnnl_primitive_desc_t desc)
{
	struct pd_op *op = pd_zalloc(sizeof(*op));

	op->what = what;
	op->dnn = dnn;
	op->desc = desc;
	op->next = dnn->ops;
	dnn->ops = op;
	for (int arg = 0; arg < PD_ARGS; arg++) {
		const dnnl_memory_desc_t *md;
		struct argument *a;

		md = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, native_arg[arg]);
		if (!md || md->ndims == 0 || dnnl_memory_desc_get_size(md) == 0)
			continue;
		a = pd_zalloc(sizeof(*a));
		a->arg = arg;
		a->native = native_arg[arg];
		a->padded = is_padded(md);
		a->layout = intern(dnn, md);
		op->args[op->count++] = a;
		if (arg == PD_ARG_SCRATCH)
			op->scratch_bytes = dnnl_memory_desc_get_size(md);
	}
	return op;
}

static struct pd_op *op_make(struct pd_onednn *dnn, const char *what, const void *op_desc,
			     const struct pd_op *forward, struct pd_error *err)
{
	dnnl_primitive_desc_t desc;
	dnnl_status_t status = dnnl_primitive_desc_create(&desc, op_desc, dnn->attr, dnn->engine,
							  forward ? forward->desc : NULL);

	if (status != dnnl_success) {
		failed(err, what, status);
		return NULL;
	}
	return op_new(dnn, what, desc);
}

/* oneDNN's plain loops, orders of magnitude slower than the rest. */
static bool is_slow(const struct pd_op *op)
{
	const char *name = NULL;

	return dnnl_primitive_desc_query(op->desc, dnnl_query_impl_info_str, 0, &name) !=
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
	const dnnl_data_type_t of_weights = way == PD_BACKWARD_WEIGHTS ? dnnl_f32 : dnn->type;
	dnnl_memory_desc_t src = any_md(dnn->type, 4, src_size);
	dnnl_memory_desc_t dst = any_md(dnn->type, 4, dst_size);
	dnnl_memory_desc_t weights = g > 1 ? any_md(of_weights, 5, grouped)
		: any_md(of_weights, 4, (const int64_t[]){ o, i, c->kernel[0], c->kernel[1] });
	dnnl_memory_desc_t bias = any_md(of_weights, 1, &c->out_channels);
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
		weights = way == PD_BACKWARD_WEIGHTS ? full_md(fixed) : fixed->md;
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
	if (status != dnnl_success) {
		failed(err, "convolution", status);
		return NULL;
	}
	return op_make(dnn, "convolution", &desc, forward, err);
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
	const dnnl_data_type_t of_weights = way == PD_BACKWARD_WEIGHTS ? dnnl_f32 : dnn->type;
	dnnl_memory_desc_t weights = !fixed ? any_md(of_weights, 2, size)
		: way == PD_BACKWARD_WEIGHTS ? full_md(fixed) : fixed->md;
	dnnl_memory_desc_t bias_md = any_md(of_weights, 1, size);
	const dnnl_memory_desc_t *bias_p = bias ? &bias_md : NULL;
	dnnl_inner_product_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training,
			&src->md, &weights, bias_p, &dst->md);
	else if (way == PD_BACKWARD_DATA)
		status = dnnl_inner_product_backward_data_desc_init(&desc, &src->md, &weights,
			&dst->md);
	else
		status = dnnl_inner_product_backward_weights_desc_init(&desc, &src->md, &weights,
			bias_p, &dst->md);
	if (status != dnnl_success) {
		failed(err, "inner product", status);
		return NULL;
	}
	return op_make(dnn, "inner product", &desc, forward, err);
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
	dnnl_eltwise_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training,
			algorithm[curve], &layout->md, 0, 0);
	else
		status = dnnl_eltwise_backward_desc_init(&desc, algorithm[curve], &layout->md,
			&layout->md, 0, 0);
	if (status != dnnl_success) {
		failed(err, "elementwise function", status);
		return NULL;
	}
	return op_make(dnn, "elementwise function", &desc, forward, err);
}

struct pd_op *pd_op_pool(struct pd_onednn *dnn, enum pd_way way, const struct pd_pool *pool,
			 const struct pd_layout *src, const struct pd_layout *dst,
			 const struct pd_op *forward, struct pd_error *err)
{
	dnnl_alg_kind_t algorithm = pool->max ? dnnl_pooling_max
		: pool->count_include_pad ? dnnl_pooling_avg_include_padding
		: dnnl_pooling_avg_exclude_padding;
	dnnl_dims_t right;
	dnnl_pooling_desc_t desc;
	dnnl_status_t status;

	for (int k = 0; k < 2; k++)
		right[k] = (dst->md.dims[2 + k] - 1) * pool->stride[k] + pool->kernel[k] -
			   src->md.dims[2 + k] - pool->padding[k];
	if (way == PD_FORWARD)
		status = dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training, algorithm,
			&src->md, &dst->md, pool->stride, pool->kernel, pool->padding, right);
	else
		status = dnnl_pooling_backward_desc_init(&desc, algorithm, &src->md, &dst->md,
			pool->stride, pool->kernel, pool->padding, right);
	if (status != dnnl_success) {
		failed(err, "pooling", status);
		return NULL;
	}
	return op_make(dnn, "pooling", &desc, forward, err);
}

struct pd_op *pd_op_batchnorm(struct pd_onednn *dnn, enum pd_way way, bool global,
			      const struct pd_layout *layout, float eps,
			      const struct pd_op *forward, struct pd_error *err)
{
	unsigned flags = dnnl_use_scale | dnnl_use_shift | (global ? dnnl_use_global_stats : 0);
	dnnl_batch_normalization_desc_t desc;
	dnnl_status_t status;

	if (way == PD_FORWARD)
		status = dnnl_batch_normalization_forward_desc_init(&desc,
			global ? dnnl_forward_inference : dnnl_forward_training, &layout->md, eps,
			flags);
	else
		status = dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward,
			&layout->md, &layout->md, eps, flags);
	if (status != dnnl_success) {
		failed(err, "batch normalisation", status);
		return NULL;
	}
	return op_make(dnn, "batch normalisation", &desc, forward, err);
}

struct pd_op *pd_op_reorder(struct pd_onednn *dnn, const struct pd_layout *from,
			    const struct pd_layout *to, struct pd_error *err)
{
	dnnl_primitive_desc_t desc;
	dnnl_status_t status = dnnl_reorder_primitive_desc_create(&desc, &from->md, dnn->engine,
								  &to->md, dnn->engine, dnn->attr);

	if (status != dnnl_success) {
		failed(err, "reorder", status);
		return NULL;
	}
	return op_new(dnn, "reorder", desc);
}

const struct pd_layout *pd_op_layout(const struct pd_op *op, enum pd_arg arg)
{
	for (int i = 0; i < op->count; i++)
		if (op->args[i]->arg == arg)
			return op->args[i]->layout;
	return NULL;
}

size_t pd_op_scratch_bytes(const struct pd_op *op)
{
	return op->scratch_bytes;
}

int pd_op_compile(struct pd_op *op, struct pd_error *err)
{
	dnnl_status_t status = dnnl_primitive_create(&op->primitive, op->desc);

	return status == dnnl_success ? 0 : failed(err, op->what, status);
}

/* The memory object of an argument at ptr. */
static dnnl_status_t memory_at(struct pd_op *op, struct argument *a, const void *ptr,
			       dnnl_memory_t *memory_p)
{
	int k, size = a->padded ? CACHE : 1;
	dnnl_status_t status;

	for (k = 0; k < a->used; k++)
		if (a->cache[k].ptr == ptr) {
			*memory_p = a->cache[k].memory;
			return dnnl_success;
		}
	if (a->used < size) {
		k = a->used;
		status = dnnl_memory_create(&a->cache[k].memory, &a->layout->md, op->dnn->engine,
					    (void *)ptr);
		a->used += status == dnnl_success;
	} else {
		k = a->next;
		a->next = (k + 1) % size;
		status = dnnl_memory_set_data_handle_v2(a->cache[k].memory, (void *)ptr,
							op->dnn->stream);
	}
	a->cache[k].ptr = status == dnnl_success ? ptr : NULL;
	*memory_p = a->cache[k].memory;
	return status;
}

int pd_op_run(struct pd_op *op, const void *const args[PD_ARGS], struct pd_error *err)
{
	dnnl_exec_arg_t exec[PD_ARGS];
	dnnl_status_t status = dnnl_success;

	for (int i = 0; i < op->count && status == dnnl_success; i++) {
		exec[i].arg = op->args[i]->native;
		status = memory_at(op, op->args[i], args[op->args[i]->arg], &exec[i].memory);
	}
	if (status == dnnl_success)
		status = dnnl_primitive_execute(op->primitive, op->dnn->stream, op->count, exec);
	if (status == dnnl_success)
		status = dnnl_stream_wait(op->dnn->stream);
	return status == dnnl_success ? 0 : failed(err, op->what, status);
}
