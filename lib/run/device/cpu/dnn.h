/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that call oneDNN share this (version 3's C interface; dnnl2.h provides it for 2.6):
 * onednn.c has the engine, layout.c layouts, primitive.c ops, primitives.c the description of each
 * kind of op, and quick.c the choice of layouts with quick kernels.
 */
#pragma once

#include "base/mem.h"
#include "run/device/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

/*
 * The prototypes say [DNNL_MAX_NDIMS], but oneDNN reads as many sizes as the tensor has dimensions.
 */
#pragma GCC diagnostic ignored "-Wstringop-overread"

#if DNNL_VERSION_MAJOR < 3
#include "run/device/cpu/dnnl2.h"
#else
#define PD_DNN_BACKWARD_TAKES_SHIFT false

/* A copy of a descriptor cannot be moved on, so the descriptor itself is. */
static inline dnnl_status_t pd_dnn_other_kernel(dnnl_primitive_desc_t *pd_p, const char *name,
	dnnl_engine_t engine, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
	dnnl_status_t status;

	(void)engine;
	(void)hint;
	(void)attr;
	while ((status = dnnl_primitive_desc_next_impl(*pd_p)) == dnnl_success) {
		const char *kernel = "";

		dnnl_primitive_desc_query(*pd_p, dnnl_query_impl_info_str, 0, &kernel);
		if (strstr(kernel, name))
			break;
	}
	return status;
}
#endif

/* Memory that oneDNN and OpenMP may need for one step; they crash where they get none. */
#define PD_DNN_ROOM ((size_t)32 << 20)

struct pd_layout {
	dnnl_memory_desc_t md;
	const struct pd_layout *quick;  /* pd_layout_quick()'s answer; NULL: not asked yet */
	const struct pd_layout *retyped; /* pd_layout_retyped()'s last answer */
	struct pd_layout *next;
};

struct pd_onednn {
	dnnl_data_type_t type, of_ops;
	bool winograd;	/* use Winograd's algorithm where it suits and there are kernels */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attr;
	struct pd_layout *layouts;
	struct pd_primitive *ops;
};

/* --- onednn.c: sets *err and returns -1 */
int pd_dnn_failed(struct pd_error *err, const char *what, dnnl_status_t status);

/* --- layout.c */
/* Returns the one object that all equal layouts share. */
const struct pd_layout *pd_dnn_layout(struct pd_onednn *dnn, const_dnnl_memory_desc_t md);
int pd_dnn_dims(const_dnnl_memory_desc_t md);
const int64_t *pd_dnn_size(const_dnnl_memory_desc_t md);
/* Returns the layout of the same tensor with that tag. */
const struct pd_layout *pd_dnn_tagged(struct pd_onednn *dnn, const struct pd_layout *layout,
				      dnnl_format_tag_t tag);
/* Returns a descriptor that lets the op choose its fastest layout. */
const_dnnl_memory_desc_t pd_dnn_any(struct pd_onednn *dnn, dnnl_data_type_t type, int dims,
				    const int64_t *size);
const_dnnl_memory_desc_t pd_dnn_as(struct pd_onednn *dnn, dnnl_data_type_t type,
				   const struct pd_layout *layout);
bool pd_dnn_is_padded(const_dnnl_memory_desc_t md);

/* --- primitive.c */
/* Makes an op, which takes over the primitive descriptor. */
struct pd_primitive *pd_dnn_op(struct pd_onednn *dnn, const char *what, dnnl_primitive_desc_t desc);
dnnl_primitive_desc_t pd_dnn_desc(const struct pd_primitive *op);
void pd_dnn_op_free(struct pd_primitive *op);
/* Frees an op, which must be the one made last. */
void pd_dnn_op_drop(struct pd_primitive *op);
/* Returns the op that was made before this one. */
struct pd_primitive *pd_dnn_next(const struct pd_primitive *op);
