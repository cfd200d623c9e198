/* SPDX-License-Identifier: Apache-2.0 */
/* A stage compiled: layouts from the whole model, kernels for the stage; parameters by name. */
#include "base/mem.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pd_cpu_kind *const pd_cpu_kinds[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, inputs, attributes, what) [PD_LAYER_##name] = &pd_cpu_##name,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

const struct pd_layout *pd_cpu_plain(struct pd_cpu_net *net, const struct pd_shape *shape)
{
	int64_t size[1 + PD_MAX_DIMS] = { net->batch };

	for (int d = 0; d < shape->dims; d++)
		size[1 + d] = shape->size[d];
	return pd_layout_plain(net->dnn, 1 + shape->dims, size);
}

static const struct pd_layout *plain_parameter(struct pd_cpu_net *net,
					       const struct pd_layer *layer, int p)
{
	const struct pd_parameter *parameter = &layer->parameters[p];
	int64_t size[5] = { layer->groups, parameter->size[0] };

	memcpy(size + 1, parameter->size, sizeof(parameter->size));
	if (layer->kind != PD_LAYER_conv2d || p == 1 || layer->groups <= 1)
		return pd_layout_plain(net->dnn, parameter->dims, parameter->size);
	/* kernels see groups as an axis of its own; in plain order that changes nothing */
	size[1] /= layer->groups;
	return pd_layout_plain(net->dnn, 5, size);
}

static void set_tensor(struct pd_cpu_net *net, int t, const struct pd_layout *layout)
{
	int64_t elements = pd_shape_elements(pd_model_shape(net->model, t));

	net->tensors[t].layout = layout;
	net->tensors[t].bytes = layout ? pd_layout_bytes(layout)
				       : sizeof(int32_t) * (size_t)(net->batch * elements);
}

static void layer_init(struct pd_cpu_net *net, int index)
{
	struct pd_cpu_layer *l = &net->layers[index];
	const struct pd_layer *layer = &net->model->layers[index];
	size_t n = (size_t)layer->input_count;

	l->net = net;
	l->layer = layer;
	l->kind = pd_cpu_kinds[layer->kind];
	l->index = index;
	l->inside = index >= net->first && index < net->first + net->count;
	l->owner = layer->shares >= 0 ? layer->shares : index;
	l->in = pd_calloc(n, sizeof(*l->in));
	l->in_shape = pd_calloc(n, sizeof(*l->in_shape));
	l->wants = pd_calloc(n, sizeof(*l->wants));
	l->contributions = pd_calloc(n, sizeof(*l->contributions));
	l->src = pd_calloc(n, sizeof(*l->src));
	l->diff_src = pd_calloc(n, sizeof(*l->diff_src));
	if (net->home[l->owner] < 0)
		net->home[l->owner] = index;
}

/* The last of those that share writes the gradient; the others, whose turn comes later, add. */
static void find_adders(struct pd_cpu_net *net)
{
	for (int l = 0; l < net->model->layer_count; l++)
		for (int m = l + 1; m < net->model->layer_count; m++)
			if (net->layers[m].owner == net->layers[l].owner)
				net->layers[l].adds = true;
}

static int layer_prepare(struct pd_cpu_net *net, int index, struct pd_error *err)
{
	struct pd_cpu_layer *l = &net->layers[index];
	const struct pd_layer *layer = l->layer;

	for (int i = 0; i < layer->input_count; i++) {
		int t = layer->inputs[i];

		l->in[i] = net->tensors[t].layout;
		l->in_shape[i] = pd_model_shape(net->model, t);
		l->wants[i] = pd_model_producer(net->model, t) >= 0 &&
			      pd_model_needs_gradient(net->model, t);
		if (!l->in[i] && !(l->kind->is_loss && i == 1))
			return pd_error_input(err, "layer \"%s\": input \"%s\" is i32, expected "
					      "f32", layer->name, pd_model_tensor_name(net->model, t));
	}
	for (int p = 0; p < layer->parameter_count; p++)
		l->parameter[p] = net->parameters[l->owner][p].layout;
	if (l->kind->prepare(l, err) < 0)
		return -1;
	set_tensor(net, net->model->input_count + index, l->out);
	for (int p = 0; p < layer->parameter_count; p++) {
		struct pd_cpu_parameter *parameter = &net->parameters[l->owner][p];

		parameter->layout = l->parameter[p];
		parameter->plain = plain_parameter(net, layer, p);
		parameter->bytes = pd_layout_bytes(l->parameter[p]);
	}
	return 0;
}

static void named_add(struct pd_cpu_net *net, int index, enum pd_part part, const char *name,
		      int dims, const int64_t *size)
{
	const struct pd_layer *layer = &net->model->layers[index];
	struct pd_named *n = &net->named[net->named_count++];

	snprintf(n->name, sizeof(n->name), "%s.%s", layer->name, name);
	n->part = part;
	n->layer = index;
	n->dims = dims;
	n->elements = 1;
	for (int d = 0; d < dims; d++) {
		n->size[d] = size[d];
		n->elements *= size[d];
	}
}

static void name_all(struct pd_cpu_net *net)
{
	net->named = pd_calloc((size_t)net->count * 4, sizeof(*net->named));
	for (int l = net->first; l < net->first + net->count; l++) {
		const struct pd_layer *layer = &net->model->layers[l];

		for (int p = 0; layer->shares < 0 && p < layer->parameter_count; p++)
			named_add(net, l, PD_PART_PARAMETER, layer->parameters[p].name,
				  layer->parameters[p].dims, layer->parameters[p].size);
		if (net->layers[l].state_bytes > 0) {
			named_add(net, l, PD_PART_STATE, "running_mean", 1, layer->output.size);
			named_add(net, l, PD_PART_STATE, "running_var", 1, layer->output.size);
		}
	}
}

static int compile(struct pd_cpu_net *net, struct pd_error *err)
{
	net->dnn = pd_onednn_open(err);
	if (!net->dnn)
		return -1;
	for (int t = 0; t < net->model->input_count; t++)
		set_tensor(net, t, net->model->inputs[t].dtype == PD_F32
			   ? pd_cpu_plain(net, &net->model->inputs[t].shape) : NULL);
	find_adders(net);
	for (int l = 0; l < net->model->layer_count; l++)
		if (layer_prepare(net, l, err) < 0)
			return -1;
	if (pd_cpu_place(net, err) < 0)
		return -1;
	name_all(net);
	return 0;
}

struct pd_net *pd_cpu_net_open(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err)
{
	struct pd_cpu_device *cpu = (struct pd_cpu_device *)device;
	const struct pd_model *model = config->model;
	size_t layers = (size_t)model->layer_count;
	struct pd_cpu_net *net;
	int threads, failed;

	if (config->first < 0 || config->count < 1 || config->batch_size < 1 ||
	    config->count > model->layer_count - config->first) {
		pd_error_input(err, "a stage of layers %d to %d at a batch size of %lld: expected "
			       "layers of 0 to %d and at least one sample", config->first,
			       config->first + config->count - 1, (long long)config->batch_size,
			       model->layer_count - 1);
		return NULL;
	}
	net = pd_zalloc(sizeof(*net));
	net->base.device = device;
	net->model = model;
	net->first = config->first;
	net->count = config->count;
	net->batch = config->batch_size;
	net->seed = config->seed;
	net->split = config->split;
	net->layers = pd_calloc(layers, sizeof(*net->layers));
	net->tensors = pd_calloc((size_t)pd_model_tensors(model), sizeof(*net->tensors));
	net->parameters = pd_calloc(layers, sizeof(*net->parameters));
	net->home = pd_calloc(layers, sizeof(*net->home));
	net->step_offset = pd_calloc(layers, sizeof(*net->step_offset));
	net->step_bytes = pd_calloc(layers, sizeof(*net->step_bytes));
	memset(net->home, -1, layers * sizeof(*net->home));
	for (int l = 0; l < model->layer_count; l++)
		layer_init(net, l);
	/* kernels are made for the number of threads that will run them */
	threads = omp_get_max_threads();
	omp_set_num_threads(cpu->threads);
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
	struct pd_cpu_net *net = (struct pd_cpu_net *)base;

	if (!net)
		return;
	for (int i = 0; i < net->model->layer_count; i++) {
		struct pd_cpu_layer *l = &net->layers[i];

		free(l->own);
		free(l->in);
		free(l->in_shape);
		free(l->wants);
		free(l->contributions);
		free(l->src);
		free(l->diff_src);
	}
	pd_onednn_close(net->dnn);
	free(net->layers);
	free(net->tensors);
	free(net->parameters);
	free(net->home);
	free(net->step_offset);
	free(net->step_bytes);
	free(net->named);
	free(net->sizes.in);
	free(net->sizes.out);
	free(net);
}

const struct pd_net_sizes *pd_cpu_net_sizes(const struct pd_net *base)
{
	return &((const struct pd_cpu_net *)base)->sizes;
}

void pd_cpu_net_layer(const struct pd_net *base, int layer, struct pd_net_layer *out_p)
{
	const struct pd_cpu_net *net = (const struct pd_cpu_net *)base;
	const struct pd_cpu_layer *l = &net->layers[layer];
	int out = net->model->input_count + layer;
	size_t scratch = l->backward_bytes;

	*out_p = (struct pd_net_layer){
		.parameter_bytes = net->step_bytes[layer],
		.slot_bytes = pd_align(l->extra_bytes) +
			(net->tensors[out].memory == out ? pd_align(net->tensors[out].bytes) : 0) +
			(net->split ? pd_align(l->split_bytes) : 0),
		.split_bytes = pd_align(l->split_bytes),
		.scratch_bytes = scratch > l->forward_bytes ? scratch : l->forward_bytes,
		.state_bytes = pd_align(l->state_bytes),
		.forward_bytes = l->forward_bytes,
		.backward_bytes = l->backward_room,
		.in_place = l->same_memory || l->kind->in_place,
		.activation_bytes = net->tensors[out].bytes,
	};
}

int pd_cpu_net_named(const struct pd_net *base, const struct pd_named **list_p)
{
	const struct pd_cpu_net *net = (const struct pd_cpu_net *)base;

	*list_p = net->named;
	return net->named_count;
}

/* The bytes of a named tensor in its arena, and which of its layer's it is. */
static size_t offset_of(const struct pd_cpu_net *net, const struct pd_named *named, int *which_p)
{
	const char *name = strrchr(named->name, '.') + 1;
	size_t half = pd_align(sizeof(float) * (size_t)named->elements);

	if (named->part == PD_PART_STATE) {
		*which_p = strcmp(name, "running_var") == 0;
		return net->layers[named->layer].state_offset + (*which_p ? half : 0);
	}
	*which_p = strcmp(name, net->model->layers[named->layer].parameters[0].name) != 0;
	return net->parameters[named->layer][*which_p].offset;
}

static int convert(const struct pd_layout *from, const void *src, const struct pd_layout *to,
		   void *dst, struct pd_onednn *dnn, struct pd_error *err)
{
	struct pd_op *op = pd_op_reorder(dnn, from, to, err);
	const void *args[PD_ARGS] = { [PD_ARG_SRC] = src, [PD_ARG_DST] = dst };
	void *scratch;
	int status;

	if (!op || pd_op_compile(op, err) < 0)
		return -1;
	args[PD_ARG_SCRATCH] = scratch = pd_zalloc(pd_op_scratch_bytes(op));
	status = pd_op_run(op, args, err);
	free(scratch);
	return status;
}

/*
 * Ops of their own, since the net's are the stream's.  Called rarely: nothing is kept.
 * Layouts of one pd_onednn can be used with another.
 */
static int transfer(struct pd_cpu_net *net, const struct pd_named *named, const void *in,
		    void *out, bool export)
{
	int which;
	size_t offset = offset_of(net, named, &which);
	const struct pd_cpu_parameter *parameter = &net->parameters[named->layer][which];
	const void *src = export ? (const char *)in + offset : in;
	void *dst = export ? out : (char *)out + offset;
	struct pd_onednn *dnn;
	struct pd_error err;
	int status;

	if (named->part == PD_PART_STATE ||
	    pd_layout_same(parameter->layout, parameter->plain)) {
		memcpy(dst, src, sizeof(float) * (size_t)named->elements);
		return 0;
	}
	dnn = pd_onednn_open(&err);
	if (!dnn)
		return -1;
	status = export ? convert(parameter->layout, src, parameter->plain, dst, dnn, &err)
			: convert(parameter->plain, src, parameter->layout, dst, dnn, &err);
	pd_onednn_close(dnn);
	return status;
}

int pd_cpu_net_export(struct pd_net *base, int named, const void *arena, float *host)
{
	struct pd_cpu_net *net = (struct pd_cpu_net *)base;

	return transfer(net, &net->named[named], arena, host, true);
}

int pd_cpu_net_import(struct pd_net *base, int named, void *arena, const float *host)
{
	struct pd_cpu_net *net = (struct pd_cpu_net *)base;

	return transfer(net, &net->named[named], host, arena, false);
}

/* Uniform in [-bound, bound): He et al. 2015, for the fan-in. */
static void fill_random(const struct pd_cpu_net *net, const struct pd_named *named, int which,
			float *host)
{
	int64_t fan_in = named->elements / named->size[0];
	float bound = sqrtf(6 / (float)fan_in);
	uint64_t stream = PD_RNG_PARAMETER + 2 * (uint64_t)named->layer + (uint64_t)which;

	for (int64_t i = 0; i < named->elements; i += 4) {
		uint64_t counter = (uint64_t)i / 4;
		struct pd_random4 r = pd_random(net->seed, stream, (uint32_t)(counter >> 32),
						(uint32_t)counter);

		for (int k = 0; k < 4 && i + k < named->elements; k++)
			host[i + k] = (2 * pd_unit(r.v[k]) - 1) * bound;
	}
}

int pd_cpu_net_init(struct pd_net *base, void *weights, void *state, struct pd_error *err)
{
	struct pd_cpu_net *net = (struct pd_cpu_net *)base;

	for (int i = 0; i < net->named_count; i++) {
		const struct pd_named *named = &net->named[i];
		float *host = pd_calloc((size_t)named->elements, sizeof(*host));
		bool parameter = named->part == PD_PART_PARAMETER;
		int which, status;

		offset_of(net, named, &which);
		if (parameter && which == 0 && named->dims > 1)
			fill_random(net, named, which, host);
		else if (which == (parameter ? 0 : 1))          /* a scale or a variance */
			for (int64_t k = 0; k < named->elements; k++)
				host[k] = 1;
		status = pd_cpu_net_import(base, i, parameter ? weights : state, host);
		free(host);
		if (status < 0)
			return pd_error_failed(err, "%s: oneDNN cannot change its layout",
					       named->name);
	}
	return 0;
}
