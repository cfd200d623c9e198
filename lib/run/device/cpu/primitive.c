/* SPDX-License-Identifier: Apache-2.0 */
/* An op is a primitive of oneDNN with its arguments. */
#include "run/device/cpu/dnn.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CACHE 16

/*
 * An argument of an op.  oneDNN 2 writes zeros into the padding of a padded tensor whenever a
 * memory object gets a pointer, which would cost a pass over the borders at each call.  So there is
 * an object per pointer (a slot, a version of the weights); beyond CACHE objects, the oldest gets
 * the new pointer.
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

struct pd_primitive {
	const char *what;
	struct pd_onednn *dnn;
	dnnl_primitive_desc_t desc;
	dnnl_primitive_t primitive;
	size_t scratch_bytes;
	int count;
	struct argument *args[PD_ARGS]; /* those that the op takes */
	struct pd_primitive *next;
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

/*
 * Returns whether this is a backward of batch normalisation, for which oneDNN 3 describes a shift,
 * but takes none.
 */
static bool gives_shift(dnnl_primitive_desc_t desc)
{
	const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md,
								   DNNL_ARG_DIFF_SHIFT);

	return md && dnnl_memory_desc_get_size(md) > 0;
}

struct pd_primitive *pd_dnn_op(struct pd_onednn *dnn, const char *what, dnnl_primitive_desc_t desc)
{
	struct pd_primitive *op = pd_zalloc(sizeof(*op));

	pd_mem_expect(PD_DNN_ROOM);
	op->what = what;
	op->dnn = dnn;
	op->desc = desc;
	op->next = dnn->ops;
	dnn->ops = op;
	for (int arg = 0; arg < PD_ARGS; arg++) {
		const_dnnl_memory_desc_t md;
		struct argument *a;

		md = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, native_arg[arg]);
		if (arg == PD_ARG_SHIFT && !PD_DNN_BACKWARD_TAKES_SHIFT && gives_shift(desc))
			continue;
		if (!md || pd_dnn_dims(md) == 0 || dnnl_memory_desc_get_size(md) == 0)
			continue;
		a = pd_zalloc(sizeof(*a));
		a->arg = arg;
		a->native = native_arg[arg];
		a->padded = pd_dnn_is_padded(md);
		a->layout = pd_dnn_layout(dnn, md);
		op->args[op->count++] = a;
		if (arg == PD_ARG_SCRATCH)
			op->scratch_bytes = dnnl_memory_desc_get_size(md);
	}
	return op;
}

dnnl_primitive_desc_t pd_dnn_desc(const struct pd_primitive *op)
{
	return op->desc;
}

struct pd_primitive *pd_dnn_next(const struct pd_primitive *op)
{
	return op->next;
}

void pd_dnn_op_free(struct pd_primitive *op)
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

void pd_dnn_op_drop(struct pd_primitive *op)
{
	op->dnn->ops = op->next;
	pd_dnn_op_free(op);
}

const char *pd_primitive_kernel(const struct pd_primitive *op)
{
	const char *name = NULL;

	return dnnl_primitive_desc_query(op->desc, dnnl_query_impl_info_str, 0, &name) ==
	       dnnl_success && name ? name : "unnamed";
}

bool pd_primitive_is_slow(const struct pd_primitive *op)
{
	static const char *const quick[] = { "jit", "brg", "gemm" };
	const char *name = pd_primitive_kernel(op);

	for (size_t i = 0; i < PD_COUNT(quick); i++)
		if (strstr(name, quick[i]))
			return false;
	return true;
}

const struct pd_layout *pd_primitive_layout(const struct pd_primitive *op, enum pd_arg arg)
{
	for (int i = 0; i < op->count; i++)
		if (op->args[i]->arg == arg)
			return op->args[i]->layout;
	return NULL;
}

size_t pd_primitive_scratch_bytes(const struct pd_primitive *op)
{
	return op->scratch_bytes;
}

int pd_primitive_compile(struct pd_primitive *op, struct pd_error *err)
{
	dnnl_status_t status;

	pd_mem_expect(PD_DNN_ROOM);
	status = dnnl_primitive_create(&op->primitive, op->desc);

	return status == dnnl_success ? 0 : pd_dnn_failed(err, op->what, status);
}

/* Returns the memory for the stacks of the threads that the very first run starts. */
static size_t stacks_bytes(void)
{
	pthread_attr_t attr;
	size_t bytes = 0;

	if (pthread_attr_init(&attr) == 0) {
		pthread_attr_getstacksize(&attr, &bytes);
		pthread_attr_destroy(&attr);
	}
	return bytes * (size_t)(omp_get_max_threads() - 1);
}

/* Returns an argument's memory object for ptr. */
static dnnl_status_t memory_at(struct pd_primitive *op, struct argument *a, const void *ptr,
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
		pd_mem_expect(PD_DNN_ROOM + stacks_bytes());
		k = a->used;
		status = dnnl_memory_create(&a->cache[k].memory, a->layout->md, op->dnn->engine,
					    (void *)ptr);
		a->used += status == dnnl_success;
	} else {
		k = a->next;
		a->next = (k + 1) % size;
		status = dnnl_memory_set_data_handle(a->cache[k].memory, (void *)ptr);
	}
	a->cache[k].ptr = status == dnnl_success ? ptr : NULL;
	*memory_p = a->cache[k].memory;
	return status;
}

int pd_primitive_run(struct pd_primitive *op, const void *const args[PD_ARGS], struct pd_error *err)
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
	return status == dnnl_success ? 0 : pd_dnn_failed(err, op->what, status);
}
