/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled stage's layers are described and prepared in order, and their parameters are named. */
#include "run/device/compiled_net.h"

#include "base/mem.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t state_bytes(const struct pd_layer_tensor *state)
{
	return pd_align(sizeof(float) * (size_t)state->elements);
}

static void layer_init(struct pd_compiled *net, int index)
{
	struct pd_compiled_layer *l = &net->layers[index];
	const struct pd_layer *layer = &net->model->layers[index];
	size_t n = (size_t)layer->input_count;

	l->net = net;
	l->layer = layer;
	l->kind = net->device->kinds[layer->kind];
	if (layer->broadcasts && l->kind->broadcast)
		l->kind = l->kind->broadcast;
	l->index = index;
	l->inside = index >= net->first && index < net->first + net->count;
	l->model_owner = layer->shares >= 0 ? layer->shares : index;
	l->frozen = layer->frozen && layer->parameter_count > 0;
	l->owner = net->copies || l->frozen ? index : l->model_owner;
	l->in = pd_calloc(n, sizeof(*l->in));
	l->in_shape = pd_calloc(n, sizeof(*l->in_shape));
	l->wants = pd_calloc(n, sizeof(*l->wants));
	l->completes_relu = pd_calloc(n, sizeof(*l->completes_relu));
	l->before = pd_calloc(n, sizeof(*l->before));
	l->contributions = pd_calloc(n, sizeof(*l->contributions));
	l->src = pd_calloc(n, sizeof(*l->src));
	l->diff_src = pd_calloc(n, sizeof(*l->diff_src));
	n = (size_t)pd_kind_parameters(layer->kind);
	l->parameter = pd_calloc(n, sizeof(*l->parameter));
	l->parameters = pd_calloc(n, sizeof(*l->parameters));
	l->diff_parameters = pd_calloc(n, sizeof(*l->diff_parameters));
	net->parameters[index] = pd_calloc(n, sizeof(**net->parameters));
	for (int s = 0; s < layer->state_count; s++)
		l->state_bytes += state_bytes(&layer->states[s]);
	if (net->first_user[l->owner] < 0)
		net->first_user[l->owner] = index;
}

/*
 * Of layers that share parameters, the last writes their gradient.  Backward comes to the others
 * later, and they add to it.
 */
static void find_adders(struct pd_compiled *net)
{
	/* By group, the number of the layer that follows in it, plus 1. */
	int *next = pd_calloc((size_t)net->model->layer_count, sizeof(*next));

	for (int l = net->model->layer_count - 1; l >= 0; l--) {
		int *m = &next[net->layers[l].model_owner];

		if (*m > 0 && !net->layers[l].frozen) {
			net->layers[l].shared = net->layers[*m - 1].shared = true;
			net->layers[l].adds_gradient = !net->copies;
			net->layers[l].may_add_gradient = true;
		}
		*m = l + 1;
	}
	free(next);
}

/* Returns the first layer with these parameters, which decides their layout. */
static int first_of(const struct pd_compiled *net, int index)
{
	int first = 0;

	if (!net->copies || net->layers[index].frozen)
		return net->layers[index].owner;
	while (net->layers[first].model_owner != net->layers[index].model_owner)
		first++;
	return first;
}

/* Tells whether one of the layers that share parameters takes them plain. */
static bool are_plain(const struct pd_compiled *net, int index)
{
	for (int l = 0; l < net->model->layer_count; l++)
		if (net->layers[l].model_owner == net->layers[index].model_owner &&
		    net->layers[l].kind->plain_parameters)
			return true;
	return false;
}

static const struct pd_layout *parameter_layout(struct pd_compiled *net, int index, int which)
{
	const struct pd_layout *first = net->parameters[first_of(net, index)][which].layout;

	return !first && net->layers[index].shared && are_plain(net, index)
		? net->device->plain_parameter(net, net->layers[index].layer, which) : first;
}

static int layer_prepare(struct pd_compiled *net, int index, struct pd_error *err)
{
	struct pd_compiled_layer *l = &net->layers[index];
	const struct pd_layer *layer = l->layer;

	for (int i = 0; i < layer->input_count; i++) {
		int t = layer->inputs[i];

		l->in[i] = net->tensors[t].layout;
		l->in_shape[i] = pd_model_shape(net->model, t);
		if (l->kind->plain && l->in[i])
			l->in[i] = net->device->plain(net, l->in_shape[i]);
		l->wants[i] = pd_model_producer(net->model, t) >= 0 &&
			      pd_model_needs_gradient(net->model, t);
	}
	for (int p = 0; p < layer->parameter_count; p++)
		l->parameter[p] = parameter_layout(net, index, p);
	if (l->kind->prepare(l, err) < 0)
		return -1;
	if (l->kind->plain && l->inside && net->device->plain_prepare(l, err) < 0)
		return -1;
	if (l->frozen)
		l->split_bytes = 0;     /* there is no second part of backward */
	net->device->set_tensor(net, net->model->input_count + index, l->out);
	for (int p = 0; p < layer->parameter_count; p++)
		net->device->set_parameter(net, l, p);
	return 0;
}

/* Returns a layer's parameter or state number `which`. */
static const struct pd_layer_tensor *tensor_of(const struct pd_compiled *net, int index,
					       enum pd_part part, int which)
{
	const struct pd_layer *layer = &net->model->layers[index];

	return part == PD_PART_STATE ? &layer->states[which] : &layer->parameters[which];
}

static void named_add(struct pd_compiled *net, int index, enum pd_part part, int which)
{
	const struct pd_layer_tensor *tensor = tensor_of(net, index, part, which);
	const struct pd_layer *layer = &net->model->layers[index];
	struct pd_named *n = &net->named[net->named_count++];

	if (part != PD_PART_STATE)
		layer = &net->model->layers[net->layers[index].model_owner];
	n->name = pd_format("%s.%s", layer->name, tensor->name);
	n->copy = part != PD_PART_STATE && net->layers[index].model_owner != index;
	n->part = part;
	n->layer = index;
	n->which = which;
	n->dims = tensor->dims;
	n->elements = tensor->elements;
	memcpy(n->size, tensor->size, sizeof(n->size));
}

static void name_all(struct pd_compiled *net)
{
	int count = 0;

	for (int l = net->first; l < net->first + net->count; l++)
		count += net->model->layers[l].parameter_count + net->model->layers[l].state_count;
	net->named = pd_calloc((size_t)count, sizeof(*net->named));
	for (int l = net->first; l < net->first + net->count; l++) {
		const struct pd_layer *layer = &net->model->layers[l];
		enum pd_part part = layer->frozen ? PD_PART_FROZEN : PD_PART_PARAMETER;
		bool own = net->copies || layer->shares < 0 || layer->frozen;

		for (int p = 0; own && p < layer->parameter_count; p++)
			named_add(net, l, part, p);
		for (int s = 0; s < layer->state_count; s++)
			named_add(net, l, PD_PART_STATE, s);
	}
}

static void list_tied_layers(struct pd_compiled *net)
{
	net->tied_layers = pd_calloc((size_t)net->count, sizeof(*net->tied_layers));
	for (int l = net->first; l < net->first + net->count && net->copies; l++)
		if (net->layers[l].shared)
			net->tied_layers[net->tied_layer_count++] = (struct pd_tied_layer){
				.layer = l, .owner = net->layers[l].model_owner,
				.offset = net->step_offset[l], .bytes = net->step_bytes[l],
			};
}

int pd_compiled_build(struct pd_compiled *net, struct pd_error *err)
{
	for (int t = 0; t < net->model->input_count; t++)
		net->device->set_input(net, t);
	find_adders(net);
	for (int l = 0; l < net->model->layer_count; l++)
		if (layer_prepare(net, l, err) < 0)
			return -1;
	if (pd_compiled_lay_out(net, err) < 0)
		return -1;
	name_all(net);
	list_tied_layers(net);
	return 0;
}

struct pd_compiled *pd_compiled_new(struct pd_device *device,
				    const struct pd_compiled_device *how,
				    const struct pd_net_config *config, struct pd_error *err)
{
	const struct pd_model *model = config->model;
	size_t layers = (size_t)model->layer_count;
	struct pd_compiled *net;

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
	net->device = how;
	net->model = model;
	net->first = config->first;
	net->count = config->count;
	net->batch = config->batch_size;
	net->minibatch = config->batch_size * (config->microbatches ? config->microbatches : 1);
	net->dtype = config->dtype;
	net->seed = config->seed;
	net->split = config->split;
	net->copies = config->copies;
	net->recomputes = config->recomputes;
	net->segment = config->segment ? pd_memdup(config->segment, layers * sizeof(*net->segment)) : NULL;
	net->layers = pd_calloc(layers, sizeof(*net->layers));
	net->tensors = pd_calloc((size_t)pd_model_tensors(model), sizeof(*net->tensors));
	net->parameters = pd_calloc(layers, sizeof(*net->parameters));
	net->first_user = pd_calloc(layers, sizeof(*net->first_user));
	net->step_offset = pd_calloc(layers, sizeof(*net->step_offset));
	net->step_bytes = pd_calloc(layers, sizeof(*net->step_bytes));
	memset(net->first_user, -1, layers * sizeof(*net->first_user));
	net->measure = config->measure;
	for (int l = 0; l < model->layer_count; l++) {
		layer_init(net, l);
		net->layers[l].recorded = config->algorithms ? config->algorithms[l] : 0;
		net->layers[l].recorded_engines = config->engines ? config->engines[l] : NULL;
		net->layers[l].loss = net->sizes.loss_count;
		net->sizes.loss_count += net->layers[l].inside &&
					 pd_layer_is(&model->layers[l], PD_KIND_LOSS);
	}
	return net;
}

void pd_compiled_free(struct pd_compiled *net)
{
	for (int i = 0; i < net->model->layer_count; i++) {
		struct pd_compiled_layer *l = &net->layers[i];

		if (l->own && net->device->release)
			net->device->release(l);
		else
			free(l->own);
		free(l->plain);
		free(l->in);
		free(l->in_shape);
		free(l->wants);
		free(l->completes_relu);
		free(l->before);
		free(l->contributions);
		free(l->src);
		free(l->diff_src);
		free(l->parameter);
		free(l->parameters);
		free(l->diff_parameters);
		free(l->engines);
		free(net->parameters[i]);
	}
	free(net->layers);
	free(net->tensors);
	free(net->parameters);
	free(net->first_user);
	free(net->step_offset);
	free(net->step_bytes);
	for (int i = 0; i < net->named_count; i++)
		free(net->named[i].name);
	free(net->named);
	free(net->tied_layers);
	free(net->segment);
	free(net->again_first);
	free(net->again);
	free(net->sizes.in);
	free(net->sizes.out);
	free(net);
}

const struct pd_net_sizes *pd_compiled_sizes(const struct pd_net *base)
{
	return &((const struct pd_compiled *)base)->sizes;
}

/* Returns what a layer's frozen parameters take among the states. */
static size_t frozen_bytes(const struct pd_compiled_layer *l)
{
	size_t bytes = 0;

	for (int p = 0; l->frozen && p < l->layer->parameter_count; p++)
		pd_take(&bytes, pd_compiled_working(l->net, l->net->parameters[l->owner][p].bytes));
	return bytes;
}

void pd_compiled_layer_sizes(const struct pd_net *base, int layer, struct pd_net_layer *out_p)
{
	const struct pd_compiled *net = (const struct pd_compiled *)base;
	const struct pd_compiled_layer *l = &net->layers[layer];
	int out = net->model->input_count + layer;
	size_t scratch = l->backward_bytes;

	*out_p = (struct pd_net_layer){
		.parameter_bytes = net->step_bytes[layer],
		.slot_bytes = pd_align(l->extra_bytes) +
			(net->recomputes ? 0 : pd_align(l->carried_bytes)) +
			(net->tensors[out].memory == out ? pd_align(net->tensors[out].bytes) : 0) +
			(net->split ? pd_align(l->split_bytes) : 0),
		.split_bytes = pd_align(l->split_bytes),
		.scratch_bytes = scratch > l->forward_bytes ? scratch : l->forward_bytes,
		.state_bytes = pd_align(l->state_bytes) + frozen_bytes(l),
		.forward_bytes = l->forward_bytes,
		.backward_bytes = l->backward_reserved,
		.in_place = l->same_memory || l->kind->in_place,
		.passes_gradient = l->passes, .algorithms = l->algorithms,
		.engines = l->engines, .slow_kernel = l->slow_kernel,
		.activation_bytes = net->tensors[out].bytes,
	};
}

int pd_compiled_named(const struct pd_net *base, const struct pd_named **list_p)
{
	const struct pd_compiled *net = (const struct pd_compiled *)base;

	*list_p = net->named;
	return net->named_count;
}

int pd_compiled_tied_layers(const struct pd_net *base, const struct pd_tied_layer **list_p)
{
	const struct pd_compiled *net = (const struct pd_compiled *)base;

	*list_p = net->tied_layers;
	return net->tied_layer_count;
}

int pd_compiled_lanes(struct pd_compiled_layer *l, struct pd_error *err)
{
	int64_t lanes = l->layer->lanes, batch = l->net->batch;

	l->state_bytes *= 2;
	if (lanes > 0)
		l->carried_bytes = 2 * pd_align(sizeof(float) *
						(size_t)(batch * l->layer->hidden_size));
	if (lanes == 0 || lanes % batch == 0)
		return 0;
	return pd_error_input(err, "%s \"%.60s\" has %" PRId64 " lanes: expected microbatches whose "
			      "samples divide that, found %" PRId64,
			      pd_layer_kind_name[l->layer->kind], l->layer->name, lanes, batch);
}

size_t pd_compiled_offset(const struct pd_compiled *net, const struct pd_named *named)
{
	size_t offset = net->layers[named->layer].state_offset;

	if (named->part == PD_PART_PARAMETER)
		return net->parameters[named->layer][named->which].offset;
	if (named->part == PD_PART_FROZEN)
		return net->parameters[named->layer][named->which].frozen_offset;
	for (int s = 0; s < named->which; s++)
		offset += state_bytes(&net->model->layers[named->layer].states[s]);
	return offset;
}

#define MANY (INT64_C(1) << 16)         /* so many parameters are worth several threads */

/* Four numbers of a uniform distribution, in [-1, 1), or of the standard normal one (Box and
 * Muller 1958). */
static void four_numbers(struct pd_random4 r, bool normal, float out[4])
{
	for (int k = 0; k < 4 && !normal; k++)
		out[k] = 2 * pd_unit(r.v[k]) - 1;
	for (int k = 0; k < 4 && normal; k += 2) {
		double radius = sqrt(-2 * log(1 - (double)pd_unit(r.v[k])));
		double angle = 2 * M_PI * (double)pd_unit(r.v[k + 1]);

		out[k] = (float)(radius * cos(angle));
		out[k + 1] = (float)(radius * sin(angle));
	}
}

/* Each four numbers have a counter of their own, so the bits do not depend on the threads. */
static void fill_random(const struct pd_compiled *net, const struct pd_named *named,
			const struct pd_layer_tensor *tensor, float *host)
{
	int group = net->layers[named->layer].model_owner;
	uint64_t number = (uint64_t)pd_model_number(net->model, group);
	uint64_t stream = pd_rng_parameter(number, (unsigned)named->which);
	struct pd_device_info info = { .threads = 0 };
	int threads;

	/* a GPU has no processors of its own, and leaves them all to this */
	net->base.device->ops->describe(net->base.device, &info);
	threads = info.threads > 0 ? info.threads : omp_get_max_threads();
#pragma omp parallel for schedule(static) num_threads(threads) if (named->elements > MANY)
	for (int64_t i = 0; i < named->elements; i += 4) {
		uint64_t counter = (uint64_t)i / 4;
		struct pd_random4 r = pd_random(net->seed, stream, (uint32_t)(counter >> 32),
						(uint32_t)counter);
		float numbers[4];

		four_numbers(r, tensor->begins == PD_BEGINS_NORMAL, numbers);
		for (int k = 0; k < 4 && i + k < named->elements; k++)
			host[i + k] = numbers[k] * tensor->value;
	}
}

/* Fills a tensor as its kind or the document says that it begins; a copy, as its original. */
static void fill(const struct pd_compiled *net, const struct pd_named *named, float *host)
{
	bool state = named->part == PD_PART_STATE;
	int index = state ? named->layer : net->layers[named->layer].model_owner;
	const struct pd_layer_tensor *tensor = tensor_of(net, index, named->part, named->which);
	int64_t row = tensor->elements / (tensor->dims > 0 ? tensor->size[0] : 1);

	if (tensor->begins == PD_BEGINS_NORMAL || tensor->begins == PD_BEGINS_UNIFORM) {
		fill_random(net, named, tensor, host);
	} else {
		for (int64_t i = 0; i < named->elements; i++)
			host[i] = tensor->begins != PD_BEGINS_LISTED ? tensor->value
				: (float)json_number_value(json_array_get(tensor->listed, (size_t)i));
	}
	if (tensor->zero_row >= 0)
		memset(host + tensor->zero_row * row, 0, sizeof(*host) * (size_t)row);
}

int pd_compiled_init(struct pd_net *base, void *weights, void *master, void *state,
		     struct pd_error *err)
{
	struct pd_compiled *net = (struct pd_compiled *)base;

	for (int i = 0; i < net->named_count; i++) {
		const struct pd_named *named = &net->named[i];
		float *host = pd_calloc((size_t)named->elements, sizeof(*host));
		bool parameter = named->part == PD_PART_PARAMETER;
		int status;

		fill(net, named, host);
		status = base->device->ops->net.import(base, i, parameter ? PD_WORKING : PD_FULL,
						       parameter ? weights : state, host);
		if (status == 0 && parameter && master)
			status = base->device->ops->net.import(base, i, PD_FULL, master, host);
		free(host);
		if (status < 0)
			return pd_error_failed(err, "%s: it cannot be brought to the device",
					       named->name);
	}
	return 0;
}

void pd_compiled_range(const struct pd_compiled *net, int from, int count, size_t *begin_p,
		       size_t *end_p)
{
	/* later layers lie before earlier ones, and those without parameters take no place */
	*begin_p = net->step_offset[from + count - 1] / sizeof(float);
	*end_p = (net->step_offset[from] + net->step_bytes[from]) / sizeof(float);
}

bool pd_compiled_next_tensor(const struct pd_compiled *net, int end, int *layer_p, int *number_p,
			     struct pd_compiled_tensor_range *out_p)
{
	for (; *layer_p < end; (*layer_p)++, *number_p = 0) {
		const struct pd_compiled_layer *l = &net->layers[*layer_p];
		const struct pd_compiled_parameter *p;

		if (net->step_bytes[*layer_p] == 0 || *number_p == l->layer->parameter_count)
			continue;
		p = &net->parameters[l->owner][*number_p];
		*out_p = (struct pd_compiled_tensor_range){
			.begin = p->offset / sizeof(float),
			.end = (p->offset + p->bytes) / sizeof(float),
			.vector = l->layer->parameters[*number_p].dims == 1,
		};
		(*number_p)++;
		return true;
	}
	return false;
}

struct pd_resize pd_compiled_resize(const struct pd_compiled_layer *l, int axis)
{
	const struct pd_layer *layer = l->layer;
	struct pd_resize r = {
		.in = l->in_shape[0]->size[1 + axis], .out = layer->output.size[1 + axis],
		.blends = layer->mode == PD_RESIZE_BILINEAR, .aligns = layer->align_corners,
	};

	if (layer->align_corners)
		r.step = r.out > 1 ? (double)(r.in - 1) / (double)(r.out - 1) : 0;
	else
		r.step = layer->scale_factor[axis] > 0 ? 1 / layer->scale_factor[axis]
						       : (double)r.in / (double)r.out;
	return r;
}

struct pd_rotary pd_compiled_rotary(const struct pd_layer *layer)
{
	return (struct pd_rotary){
		.pairs = layer->rotary_dim / 2, .base = layer->base, .factor = layer->factor,
		.low = layer->low_freq_factor, .high = layer->high_freq_factor,
		.length = (double)layer->original_positions,
	};
}
