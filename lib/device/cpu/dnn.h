/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that know oneDNN's interface (version 3, in C; dnnl2.h has it for 2.6):
 * onednn.c the engine, layout.c layouts, primitive.c ops, primitives.c how each is described,
 * quick.c which layouts have quick kernels.
 */
#ifndef PD_DEVICE_CPU_DNN_H
#define PD_DEVICE_CPU_DNN_H

#include "base/mem.h"
#include "device/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

/* Its prototypes say [DNNL_MAX_NDIMS]; it reads as many as the tensor has dimensions. */
#pragma GCC diagnostic ignored "-Wstringop-overread"

#if DNNL_VERSION_MAJOR < 3
#include "device/cpu/dnnl2.h"
#else
#define PD_DNN_BACKWARD_TAKES_SHIFT false
#endif

/* What oneDNN and OpenMP may need for a step of their own; they do not survive less. */
#define PD_DNN_ROOM ((size_t)32 << 20)

struct pd_layout {
	dnnl_memory_desc_t md;
	const struct pd_layout *quick;  /* pd_layout_quick(); NULL: not yet asked for */
	const struct pd_layout *retyped; /* the same of another type, the last that was asked for */
	struct pd_layout *next;
};

struct pd_onednn {
	dnnl_data_type_t type, of_ops;
	bool winograd;                  /* where it suits and there are kernels for it */
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attr;
	struct pd_layout *layouts;
	struct pd_primitive *ops;
};

/* --- onednn.c: fills *err, -1 */
int pd_dnn_failed(struct pd_error *err, const char *what, dnnl_status_t status);

/* --- layout.c */
/* Equal layouts are one. */
const struct pd_layout *pd_dnn_layout(struct pd_onednn *dnn, const_dnnl_memory_desc_t md);
int pd_dnn_dims(const_dnnl_memory_desc_t md);
const int64_t *pd_dnn_size(const_dnnl_memory_desc_t md);
/* The same tensor in the layout of that tag. */
const struct pd_layout *pd_dnn_tagged(struct pd_onednn *dnn, const struct pd_layout *layout,
				      dnnl_format_tag_t tag);
/* In whichever way the op is fastest. */
const_dnnl_memory_desc_t pd_dnn_any(struct pd_onednn *dnn, dnnl_data_type_t type, int dims,
				    const int64_t *size);
const_dnnl_memory_desc_t pd_dnn_as(struct pd_onednn *dnn, dnnl_data_type_t type,
				   const struct pd_layout *layout);
bool pd_dnn_is_padded(const_dnnl_memory_desc_t md);

/* --- primitive.c */
/* Takes the primitive descriptor over. */
struct pd_primitive *pd_dnn_op(struct pd_onednn *dnn, const char *what, dnnl_primitive_desc_t desc);
dnnl_primitive_desc_t pd_dnn_desc(const struct pd_primitive *op);
void pd_dnn_op_free(struct pd_primitive *op);
/* Frees the op that was made last. */
void pd_dnn_op_drop(struct pd_primitive *op);
/* The op that was made before it. */
struct pd_primitive *pd_dnn_next(const struct pd_primitive *op);

#endif
