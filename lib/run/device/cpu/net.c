/* SPDX-License-Identifier: Apache-2.0 */
/* A net on the CPU: layouts chosen from the whole model, ops, and parameters in plain layout. */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const struct pd_compiled_kind *const kinds[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	[PD_LAYER_##name] = &pd_cpu_##name,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

const struct pd_layout *pd_cpu_plain(struct pd_compiled *net, const struct pd_shape *shape)
{
	int64_t size[1 + PD_MAX_DIMS] = { net->batch };

	for (int d = 0; d < shape->dims; d++)
		size[1 + d] = shape->size[d];
	return pd_layout_plain(net->engine, 1 + shape->dims, size);
}

/* Kernels have an axis for groups, where there are several, and a height: neither changes plain order. */
static const struct pd_layout *plain_kernel(struct pd_compiled *net, const struct pd_layer *layer)
{
	const int64_t *weight = layer->parameters[0].size;
	int64_t size[5] = { layer->groups, weight[0] / layer->groups, weight[1], layer->kernel[0],
			    layer->kernel[1] };

	if (layer->groups > 1)
		return pd_layout_plain(net->engine, 5, size);
	return pd_layout_plain(net->engine, 4, size + 1);
}

static const struct pd_layout *plain_parameter(struct pd_compiled *net,
					       const struct pd_layer *layer, int p)
{
	const struct pd_layer_tensor *parameter = &layer->parameters[p];

	return p == 0 && layer->groups > 0 ? plain_kernel(net, layer)
		: pd_layout_plain(net->engine, parameter->dims, parameter->size);
}

static void set_tensor(struct pd_compiled *net, int t, const struct pd_layout *layout)
{
	int64_t elements = pd_shape_elements(pd_model_shape(net->model, t));

	net->tensors[t].layout = layout;
	net->tensors[t].bytes = layout ? pd_layout_bytes(layout)
				       : sizeof(int32_t) * (size_t)(net->batch * elements);
}

static void set_input(struct pd_compiled *net, int t)
{
	set_tensor(net, t, net->model->inputs[t].dtype == PD_F32
		   ? pd_cpu_plain(net, &net->model->inputs[t].shape) : NULL);
}

static void set_parameter(struct pd_compiled *net, struct pd_compiled_layer *l, int p)
{
	struct pd_compiled_parameter *parameter = &net->parameters[l->owner][p];

	parameter->layout = l->parameter[p];
	parameter->plain = pd_layout_full(net->engine, plain_parameter(net, l->layer, p));
	parameter->full = pd_layout_full(net->engine, parameter->layout);
	parameter->bytes = pd_layout_bytes(parameter->full);
}

static int copy(struct pd_compiled *net, void *dst, const void *src, size_t bytes,
		struct pd_error *err)
{
	memcpy(dst, src, bytes);
	return 0;
}

static int zero(struct pd_compiled *net, void *dst, size_t bytes, struct pd_error *err)
{
	memset(dst, 0, bytes);
	return 0;
}

static int add(struct pd_compiled *net, enum pd_dtype dtype, void *dst, const void *a,
	       const void *b, size_t count, struct pd_error *err)
{
	pd_cpu_sum_relu(dtype, dst, a, b, NULL, count);
	return 0;
}

static int add_relu(struct pd_compiled *net, void *dst, const void *a, const void *b,
		    const void *y, size_t count, struct pd_error *err)
{
	pd_cpu_sum_relu(net->dtype, dst, a, b, y, count);
	return 0;
}

static const struct pd_compiled_device how = {
	.kinds = kinds,
	.set_tensor = set_tensor,
	.set_input = set_input,
	.set_parameter = set_parameter,
	.copy = copy,
	.zero = zero,
	.add = add,
	.plain = pd_cpu_plain,
	.plain_parameter = plain_parameter,
	.plain_prepare = pd_cpu_plain_prepare,
	.plain_input = pd_cpu_plain_input,
	.plain_room = pd_cpu_plain_room,
	.plain_gradient = pd_cpu_plain_gradient,
	.add_relu = add_relu,
};

static int compile(struct pd_compiled *net, struct pd_error *err)
{
	net->engine = pd_onednn_open(net->dtype, err);
	return net->engine ? pd_compiled_build(net, err) : -1;
}

/* Sets the device's number of threads for this thread's OpenMP loops; returns the number before. */
static int take_threads(const struct pd_device *device)
{
	int before = omp_get_max_threads();

	omp_set_num_threads(((const struct pd_cpu_device *)device)->threads);
	return before;
}

struct pd_net *pd_cpu_net_open(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err)
{
	struct pd_compiled *net;
	int threads, failed;

	net = pd_compiled_new(device, &how, config, err);
	if (!net)
		return NULL;
	/* kernels are made for the number of threads that runs them */
	threads = take_threads(device);
	failed = compile(net, err);
	omp_set_num_threads(threads);
	if (failed < 0) {
		pd_cpu_net_close(&net->base);
		return NULL;
	}
	return &net->base;
}

void pd_cpu_net_close(struct pd_net *base)
{
	struct pd_compiled *net = (struct pd_compiled *)base;

	if (!net)
		return;
	pd_onednn_close(net->engine);
	pd_compiled_free(net);
}

static int convert(const struct pd_layout *from, const void *src, const struct pd_layout *to,
		   void *dst, struct pd_onednn *dnn, struct pd_error *err)
{
	struct pd_primitive *op = pd_primitive_reorder(dnn, from, to, err);
	const void *args[PD_ARGS] = { [PD_ARG_SRC] = src, [PD_ARG_DST] = dst };
	void *scratch;
	int status;

	if (!op || pd_primitive_compile(op, err) < 0)
		return -1;
	args[PD_ARG_SCRATCH] = scratch = pd_zalloc(pd_primitive_scratch_bytes(op));
	status = pd_primitive_run(op, args, err);
	free(scratch);
	return status;
}

/*
 * Makes ops of its own, since those of the net belong to the stream, and keeps none, since it is
 * called rarely.  Layouts of one pd_onednn can be used with another.
 */
static int lay_out(const struct pd_layout *from, const void *src, const struct pd_layout *to,
		   void *dst, int64_t elements)
{
	struct pd_onednn *dnn;
	struct pd_error err;
	int status;

	if (pd_layout_same(from, to)) {
		memcpy(dst, src, sizeof(float) * (size_t)elements);
		return 0;
	}
	dnn = pd_onednn_open(PD_F32, &err);
	if (!dnn)
		return -1;
	status = convert(from, src, to, dst, dnn, &err);
	pd_onednn_close(dnn);
	return status;
}

/* A named tensor in an arena. parameter: NULL for a state, which needs no conversion. */
struct found {
	const struct pd_compiled *net;
	const struct pd_compiled_parameter *parameter;
	size_t offset;                  /* in the arena */
	int64_t elements;
	bool rounded;                   /* the arena is of 16 bits */
};

static struct found find_parameter(struct pd_net *base, int number, enum pd_form form)
{
	const struct pd_compiled *net = (struct pd_compiled *)base;
	const struct pd_named *named = &net->named[number];
	struct found f = { .net = net, .elements = named->elements };

	f.offset = pd_compiled_offset(net, named);
	if (named->part != PD_PART_STATE) {
		f.parameter = &net->parameters[named->layer][named->which];
		f.rounded = net->dtype != PD_F32 && (form == PD_WORKING || named->part == PD_PART_FROZEN);
	}
	if (f.rounded && named->part == PD_PART_PARAMETER)
		f.offset = pd_compiled_working(net, f.offset);
	return f;
}

static int export(struct pd_net *base, int number, enum pd_form form, const void *arena,
		  float *host)
{
	const struct found f = find_parameter(base, number, form);
	float *wide;
	int status;

	if (!f.parameter) {
		memcpy(host, (const char *)arena + f.offset, sizeof(float) * (size_t)f.elements);
		return 0;
	}
	if (!f.rounded)
		return lay_out(f.parameter->full, (const char *)arena + f.offset,
			       f.parameter->plain, host, f.elements);
	wide = pd_calloc(1, f.parameter->bytes);
	pd_cpu_widen(f.net->dtype, wide,
		     (const char *)arena + f.offset, f.parameter->bytes / sizeof(float));
	status = lay_out(f.parameter->full, wide, f.parameter->plain, host, f.elements);
	free(wide);
	return status;
}

int pd_cpu_net_export(struct pd_net *base, int number, enum pd_form form, const void *arena,
		      float *host)
{
	int threads = take_threads(base->device);
	int status = export(base, number, form, arena, host);

	omp_set_num_threads(threads);
	return status;
}

static int import(struct pd_net *base, int number, enum pd_form form, void *arena,
		  const float *host)
{
	const struct found f = find_parameter(base, number, form);
	float *wide;
	int status;

	if (!f.parameter) {
		memcpy((char *)arena + f.offset, host, sizeof(float) * (size_t)f.elements);
		return 0;
	}
	if (!f.rounded)
		return lay_out(f.parameter->plain, host, f.parameter->full,
			       (char *)arena + f.offset, f.elements);
	wide = pd_calloc(1, f.parameter->bytes);
	status = lay_out(f.parameter->plain, host, f.parameter->full, wide, f.elements);
	pd_cpu_narrow(f.net->dtype, (char *)arena + f.offset, wide, f.parameter->bytes / sizeof(float));
	free(wide);
	return status;
}

int pd_cpu_net_import(struct pd_net *base, int number, enum pd_form form, void *arena,
		      const float *host)
{
	int threads = take_threads(base->device);
	int status = import(base, number, form, arena, host);

	omp_set_num_threads(threads);
	return status;
}
