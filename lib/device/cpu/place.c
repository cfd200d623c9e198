/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place for everything in the caller's buffers.
 *
 * Parameters, gradients, velocity: tensors aligned to PD_ALIGN, in the order in which
 * backward completes their gradients, last layer first; the gaps stay zero.
 *
 * Inboxes: the tensors that come in.  Slots: for each layer its output and extras.  An output
 * lies in its input's memory where the kind allows that and nobody misses the input; that
 * is decided over the whole model.
 *
 * Gradients of activations: in scratch from the last consumer's backward to the
 * producer's, first fit.  Those of tensors that come in are made in gradient-out; those of
 * tensors that leave start from gradient-in.  The sum over the consumers is taken from the
 * last to the first, left-associated, whatever the stage.
 */
#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <stdlib.h>

struct block {
	size_t offset, bytes;
	int until;                      /* the layer after whose backward it is free */
};

struct scratch {
	struct block *blocks;           /* ascending by offset */
	int count;
	size_t capacity, peak;
};

static size_t take(size_t *total_p, size_t bytes)
{
	size_t offset = *total_p;

	*total_p += pd_align(bytes);
	return offset;
}

static size_t scratch_take(struct scratch *s, size_t bytes, int until)
{
	size_t offset = 0;
	int at = 0;

	bytes = pd_align(bytes);
	while (at < s->count && s->blocks[at].offset - offset < bytes) {
		offset = s->blocks[at].offset + s->blocks[at].bytes;
		at++;
	}
	if (bytes == 0)
		return offset;
	s->blocks = pd_grow(s->blocks, &s->capacity, (size_t)s->count + 1, sizeof(*s->blocks));
	for (int i = s->count++; i > at; i--)
		s->blocks[i] = s->blocks[i - 1];
	s->blocks[at] = (struct block){ offset, bytes, until };
	if (offset + bytes > s->peak)
		s->peak = offset + bytes;
	return offset;
}

/* Frees what the backward of layers from `layer` down does not need. */
static void scratch_free(struct scratch *s, int layer)
{
	int kept = 0;

	for (int i = 0; i < s->count; i++)
		if (s->blocks[i].until <= layer)
			s->blocks[kept++] = s->blocks[i];
	s->count = kept;
}

static int place_parameters(struct pd_cpu_net *net, struct pd_error *err)
{
	const struct pd_model *model = net->model;
	int last = net->first + net->count - 1;

	for (int l = last; l >= net->first; l--) {
		int owner = net->layers[l].owner;

		net->step_offset[l] = net->sizes.weights_bytes;
		if (net->home[owner] < net->first)
			return pd_error_input(err, "layers \"%s\" and \"%s\" share parameters and "
					      "must be in one stage", model->layers[l].name,
					      model->layers[net->home[owner]].name);
		if (net->home[owner] != l)
			continue;
		for (int p = 0; p < model->layers[owner].parameter_count; p++) {
			struct pd_cpu_parameter *parameter = &net->parameters[owner][p];

			parameter->offset = take(&net->sizes.weights_bytes, parameter->bytes);
		}
		net->step_bytes[l] = net->sizes.weights_bytes - net->step_offset[l];
	}
	for (int l = last + 1; l < model->layer_count; l++) {
		int home = net->home[net->layers[l].owner];

		if (home >= net->first && home <= last)
			return pd_error_input(err, "layers \"%s\" and \"%s\" share parameters and "
					      "must be in one stage", model->layers[home].name,
					      model->layers[l].name);
	}
	for (int l = net->first; l <= last; l++)
		net->layers[l].state_offset = take(&net->sizes.state_bytes,
						   net->layers[l].state_bytes);
	return 0;
}

/* Which tensors come in, and which leave. */
static void cross(struct pd_cpu_net *net)
{
	const struct pd_model *model = net->model;
	int end = net->first + net->count;

	for (int l = net->first; l < model->layer_count; l++)
		for (int i = 0; i < model->layers[l].input_count; i++) {
			int t = model->layers[l].inputs[i];
			int producer = pd_model_producer(model, t);
			struct pd_cpu_tensor *tensor = &net->tensors[t];

			if (l < end && producer < net->first)
				tensor->arrives = tensor->here = true;
			/* one from before that is not used here does not come by */
			if (l >= end && producer >= 0 && producer < end &&
			    (producer >= net->first || tensor->here))
				tensor->leaves = true;
		}
	for (int l = net->first; l < end; l++)
		net->tensors[model->input_count + l].here = true;
}

/* May the only consumer of this tensor write over it? */
static bool expendable(const struct pd_cpu_net *net, int tensor)
{
	int producer = pd_model_producer(net->model, tensor);

	if (pd_model_consumers(net->model, tensor, NULL) != 1)
		return false;
	if (producer < 0)
		return true;
	if (net->layers[producer].kind->keeps_output)
		return false;
	/* seen through a flatten, somebody else's output is written over */
	return !net->layers[producer].same_memory ||
	       expendable(net, net->model->layers[producer].inputs[0]);
}

static void place_slot(struct pd_cpu_net *net)
{
	const struct pd_model *model = net->model;
	size_t *bytes = &net->sizes.slot_bytes;

	for (int t = 0; t < pd_model_tensors(model); t++) {
		net->tensors[t].memory = t;
		net->tensors[t].inbox = net->tensors[t].arrives;
		if (net->tensors[t].arrives)
			net->tensors[t].slot_offset = take(&net->sizes.inbox_bytes,
							   net->tensors[t].bytes);
	}
	for (int l = net->first; l < net->first + net->count; l++) {
		struct pd_cpu_layer *layer = &net->layers[l];
		struct pd_cpu_tensor *out = &net->tensors[model->input_count + l];
		int in = layer->layer->inputs[0];

		if (layer->same_memory || (layer->kind->in_place && expendable(net, in))) {
			out->memory = net->tensors[in].memory;
			out->inbox = net->tensors[in].inbox;
			out->slot_offset = net->tensors[in].slot_offset;
		} else {
			out->slot_offset = take(bytes, out->bytes);
		}
		layer->extra_offset = take(bytes, layer->extra_bytes);
	}
}

static struct pd_net_tensor *list(struct pd_cpu_net *net, bool in, int *count_p)
{
	int n = 0, tensors = pd_model_tensors(net->model);
	struct pd_net_tensor *out = pd_calloc((size_t)tensors, sizeof(*out));

	for (int t = 0; t < tensors; t++) {
		struct pd_cpu_tensor *tensor = &net->tensors[t];
		size_t *total = in ? &net->sizes.gradient_out_bytes : &net->sizes.gradient_in_bytes;
		size_t offset = SIZE_MAX;

		if (!(in ? tensor->arrives : tensor->leaves))
			continue;
		if (pd_model_producer(net->model, t) >= 0 && pd_model_needs_gradient(net->model, t))
			offset = take(total, tensor->bytes);
		*(in ? &tensor->out_offset : &tensor->in_offset) = offset;
		out[n++] = (struct pd_net_tensor){
			.tensor = t,
			.bytes = tensor->bytes,
			.inbox = tensor->inbox,
			.offset = tensor->slot_offset,
			.gradient_offset = offset,
		};
	}
	*count_p = n;
	return out;
}

/* The gradient of the input can be made where that of the output is, which ends here. */
static bool shares_gradient(const struct pd_cpu_layer *l)
{
	return (l->same_memory || l->kind->in_place) && l->diff_dst_at.buffer == PD_SCRATCH;
}

static void extend(struct scratch *s, size_t offset, int until)
{
	for (int i = 0; i < s->count; i++)
		if (s->blocks[i].offset == offset)
			s->blocks[i].until = until;
}

/* Where the gradient of a tensor is made, at the first layer that adds to it. */
static struct pd_where gradient_place(struct pd_cpu_net *net, struct scratch *s,
				      const struct pd_cpu_layer *l, int t)
{
	const struct pd_cpu_tensor *tensor = &net->tensors[t];
	int producer = pd_model_producer(net->model, t);

	if (tensor->arrives)
		return (struct pd_where){ PD_GRADIENT_OUT, tensor->out_offset };
	if (shares_gradient(l)) {
		extend(s, l->diff_dst_at.offset, producer);
		return l->diff_dst_at;
	}
	return (struct pd_where){ PD_SCRATCH, scratch_take(s, tensor->bytes, producer) };
}

static void place_contribution(struct pd_cpu_net *net, struct scratch *s, struct pd_cpu_layer *l,
			       int i)
{
	int t = l->layer->inputs[i];
	struct pd_cpu_tensor *tensor = &net->tensors[t];
	struct pd_contribution *c = &l->contributions[i];

	if (!l->wants[i])
		return;
	if (tensor->gradient.buffer != PD_NOWHERE) {
		c->before = tensor->gradient;
	} else {
		tensor->gradient = gradient_place(net, s, l, t);
		if (tensor->leaves)
			c->before = (struct pd_where){ PD_GRADIENT_IN, tensor->in_offset };
	}
	c->sum = c->part = tensor->gradient;
	if (c->before.buffer != PD_NOWHERE)
		c->part = (struct pd_where){ PD_SCRATCH, scratch_take(s, tensor->bytes, l->index) };
}

static void place_scratch(struct pd_cpu_net *net)
{
	struct scratch s = { NULL };

	for (int index = net->first + net->count - 1; index >= net->first; index--) {
		struct pd_cpu_layer *l = &net->layers[index];
		struct pd_cpu_tensor *out = &net->tensors[net->model->input_count + index];
		size_t added = 0;

		scratch_free(&s, index);
		if (out->gradient.buffer == PD_NOWHERE && out->leaves && out->in_offset != SIZE_MAX)
			out->gradient = (struct pd_where){ PD_GRADIENT_IN, out->in_offset };
		l->diff_dst_at = out->gradient;
		for (int p = 0; l->adds && p < l->layer->parameter_count; p++)
			take(&added, net->parameters[l->owner][p].bytes);
		l->added_offset = pd_align(l->backward_bytes);
		l->scratch.buffer = PD_SCRATCH;
		l->scratch.offset = scratch_take(&s, l->added_offset + added, index);
		for (int i = l->layer->input_count - 1; i >= 0; i--)
			place_contribution(net, &s, l, i);
		if (l->forward_bytes > s.peak)
			s.peak = pd_align(l->forward_bytes);
	}
	net->sizes.scratch_bytes = s.peak;
	free(s.blocks);
}

int pd_cpu_place(struct pd_cpu_net *net, struct pd_error *err)
{
	if (place_parameters(net, err) < 0)
		return -1;
	cross(net);
	place_slot(net);
	net->sizes.in = list(net, true, &net->sizes.in_count);
	net->sizes.out = list(net, false, &net->sizes.out_count);
	place_scratch(net);
	return 0;
}
