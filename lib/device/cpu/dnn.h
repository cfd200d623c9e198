/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files share that know oneDNN's interface (2.6, in C): onednn.c the engine, layout.c
 * layouts, op.c ops, primitives.c how each is described.
 */
#ifndef PD_DEVICE_CPU_DNN_H
#define PD_DEVICE_CPU_DNN_H

#include "base/mem.h"
#include "device/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>

/* Its prototypes say [DNNL_MAX_NDIMS]; it reads as many as the tensor has dimensions. */
#pragma GCC diagnostic ignored "-Wstringop-overread"

struct pd_layout {
	dnnl_memory_desc_t md;
	struct pd_layout *next;
};

struct pd_onednn {
	dnnl_data_type_t type, of_ops;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attr;
	struct pd_layout *layouts;
	struct pd_op *ops;
};

/* --- onednn.c: fills *err, -1 */
int pd_dnn_failed(struct pd_error *err, const char *what, dnnl_status_t status);

/* --- layout.c */
/* Equal layouts are one. */
const struct pd_layout *pd_dnn_layout(struct pd_onednn *dnn, const dnnl_memory_desc_t *md);
/* In whichever way the op is fastest. */
dnnl_memory_desc_t pd_dnn_any(dnnl_data_type_t type, int dims, const int64_t *size);
dnnl_memory_desc_t pd_dnn_as(dnnl_data_type_t type, const struct pd_layout *layout);
bool pd_dnn_is_padded(const dnnl_memory_desc_t *md);

/* --- op.c */
/* Takes the primitive descriptor over. */
struct pd_op *pd_dnn_op(struct pd_onednn *dnn, const char *what, dnnl_primitive_desc_t desc);
dnnl_primitive_desc_t pd_dnn_desc(const struct pd_op *op);
void pd_dnn_op_free(struct pd_op *op);
/* The op that was made before it. */
struct pd_op *pd_dnn_next(const struct pd_op *op);

#endif
