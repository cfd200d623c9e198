/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneDNN 2.6 under the names of oneDNN 3.  In 2.6 memory descriptors are visible structures, and
 * primitive descriptors are made from operation descriptors, which version 3 has not.  All
 * differences that matter here are in this file; the other files are written for version 3.  Each
 * function does what version 3's function of the same name does.
 */
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <stdlib.h>
#include <string.h>

/* Backward of batch normalisation must be given the shift, which version 3 refuses. */
#define PD_DNN_BACKWARD_TAKES_SHIFT true

typedef dnnl_memory_desc_t dnnl2_memory_desc;
typedef dnnl2_memory_desc *dnnl2_memory_desc_p;
typedef const dnnl2_memory_desc *const_dnnl_memory_desc_t;
#define dnnl_memory_desc_t dnnl2_memory_desc_p
#define dnnl_last_impl_reached dnnl_iterator_ends

enum dnnl2_query {
	dnnl_query_ndims_s32, dnnl_query_dims, dnnl_query_data_type, dnnl_query_padded_dims
};

static inline dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *md_p, int dims,
	const int64_t *size, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	dnnl2_memory_desc md;
	dnnl_status_t status = dnnl_memory_desc_init_by_tag(&md, dims, size, type, tag);

	if (status != dnnl_success)
		return status;
	*md_p = malloc(sizeof(md));
	if (!*md_p)
		return dnnl_out_of_memory;
	**md_p = md;
	return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_clone(dnnl_memory_desc_t *md_p,
						   const_dnnl_memory_desc_t md)
{
	*md_p = malloc(sizeof(*md));
	if (!*md_p)
		return dnnl_out_of_memory;
	**md_p = *md;
	return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t md)
{
	free(md);
	return dnnl_success;
}

static inline dnnl_status_t dnnl_memory_desc_query(const_dnnl_memory_desc_t md,
						   enum dnnl2_query what, void *result)
{
	switch (what) {
	case dnnl_query_ndims_s32:
		*(int *)result = md->ndims;
		return dnnl_success;
	case dnnl_query_dims:
		*(const int64_t **)result = md->dims;
		return dnnl_success;
	case dnnl_query_data_type:
		*(dnnl_data_type_t *)result = md->data_type;
		return dnnl_success;
	case dnnl_query_padded_dims:
		*(const int64_t **)result = md->padded_dims;
		return dnnl_success;
	}
	return dnnl_invalid_arguments;
}

/*
 * Makes a primitive descriptor from that of its operation, if making the latter went well (status).
 */
static inline dnnl_status_t dnnl2_primitive_desc(dnnl_primitive_desc_t *pd_p, dnnl_status_t status,
	const void *operation, dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	return status != dnnl_success ? status
		: dnnl_primitive_desc_create(pd_p, operation, attr, engine, hint);
}

/*
 * Replaces a primitive descriptor by that of the first other kernel whose name contains `name`;
 * `hint` is the one it was made with.  Where there is none, it may be of any kernel.
 */
static inline dnnl_status_t pd_dnn_other_kernel(dnnl_primitive_desc_t *pd_p, const char *name,
	dnnl_engine_t engine, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	const_dnnl_op_desc_t operation = NULL;
	dnnl_primitive_desc_iterator_t i = NULL;
	dnnl_status_t status = dnnl_primitive_desc_query(*pd_p, dnnl_query_op_d, 0, &operation);

	if (status == dnnl_success)
		status = dnnl_primitive_desc_iterator_create(&i, operation, attr, engine, hint);
	while (status == dnnl_success &&
	       (status = dnnl_primitive_desc_iterator_next(i)) == dnnl_success) {
		dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(i);
		const char *kernel = "";

		dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &kernel);
		if (strstr(kernel, name)) {
			dnnl_primitive_desc_destroy(*pd_p);
			*pd_p = pd;
			break;
		}
		dnnl_primitive_desc_destroy(pd);
	}
	if (i)
		dnnl_primitive_desc_iterator_destroy(i);
	return status;
}

static inline dnnl_status_t dnnl_convolution_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights,
	const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst, const int64_t *strides,
	const int64_t *dilates, const int64_t *left, const int64_t *right,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&d, prop, algorithm, src,
		weights, bias, dst, strides, dilates, left, right);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, NULL, attr);
}

static inline dnnl_status_t dnnl_convolution_backward_data_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t weights,
	const_dnnl_memory_desc_t diff_dst, const int64_t *strides, const int64_t *dilates,
	const int64_t *left, const int64_t *right, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(&d, algorithm,
		diff_src, weights, diff_dst, strides, dilates, left, right);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

static inline dnnl_status_t dnnl_convolution_backward_weights_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t diff_weights,
	const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
	const int64_t *strides, const int64_t *dilates, const int64_t *left, const int64_t *right,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_convolution_desc_t d;
	dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(&d, algorithm,
		src, diff_weights, diff_bias, diff_dst, strides, dilates, left, right);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

static inline dnnl_status_t dnnl_inner_product_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights,
	const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t status = dnnl_inner_product_forward_desc_init(&d, prop, src, weights, bias,
								    dst);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, NULL, attr);
}

static inline dnnl_status_t dnnl_inner_product_backward_data_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, const_dnnl_memory_desc_t diff_src,
	const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t status = dnnl_inner_product_backward_data_desc_init(&d, diff_src, weights,
									  diff_dst);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

static inline dnnl_status_t dnnl_inner_product_backward_weights_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, const_dnnl_memory_desc_t src,
	const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias,
	const_dnnl_memory_desc_t diff_dst, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_inner_product_desc_t d;
	dnnl_status_t status = dnnl_inner_product_backward_weights_desc_init(&d, src, diff_weights,
									     diff_bias, diff_dst);

	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

/* In version 2 source and destination have one layout. */
static inline dnnl_status_t dnnl_eltwise_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
	float alpha, float beta, const_dnnl_primitive_attr_t attr)
{
	dnnl_eltwise_desc_t d;
	dnnl_status_t status = dnnl_eltwise_forward_desc_init(&d, prop, algorithm, src, alpha,
							      beta);

	(void)dst;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, NULL, attr);
}

static inline dnnl_status_t dnnl_eltwise_backward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst,
	const_dnnl_memory_desc_t data, float alpha, float beta, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_eltwise_desc_t d;
	dnnl_status_t status = dnnl_eltwise_backward_desc_init(&d, algorithm, diff_dst, data, alpha,
							       beta);

	(void)diff_src;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

/* Version 2 has another function for dilated windows, which are not used here. */
static inline dnnl_status_t dnnl_pooling_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
	const int64_t *strides, const int64_t *kernel, const int64_t *dilation,
	const int64_t *left, const int64_t *right, const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_desc_t d;
	dnnl_status_t status = dnnl_pooling_forward_desc_init(&d, prop, algorithm, src, dst,
							      strides, kernel, left, right);

	(void)dilation;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, NULL, attr);
}

static inline dnnl_status_t dnnl_pooling_backward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_alg_kind_t algorithm,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst,
	const int64_t *strides, const int64_t *kernel, const int64_t *dilation,
	const int64_t *left, const int64_t *right, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_pooling_desc_t d;
	dnnl_status_t status = dnnl_pooling_backward_desc_init(&d, algorithm, diff_src, diff_dst,
							       strides, kernel, left, right);

	(void)dilation;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}

static inline dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst, float epsilon, unsigned flags,
	const_dnnl_primitive_attr_t attr)
{
	dnnl_batch_normalization_desc_t d;
	dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(&d, prop, src, epsilon,
									  flags);

	(void)dst;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, NULL, attr);
}

static inline dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(
	dnnl_primitive_desc_t *pd_p, dnnl_engine_t engine, dnnl_prop_kind_t prop,
	const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst,
	const_dnnl_memory_desc_t src, float epsilon, unsigned flags,
	const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_batch_normalization_desc_t d;
	dnnl_status_t status = dnnl_batch_normalization_backward_desc_init(&d, prop, diff_dst, src,
									   epsilon, flags);

	(void)diff_src;
	return dnnl2_primitive_desc(pd_p, status, &d, engine, hint, attr);
}
