/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file places everything in the caller's buffers.
 *
 * Parameters, gradients, moments: tensors aligned to PD_ALIGN, in 16 bits, too, in the order in
 * which backward completes their gradients, last layer first; the gaps stay zero.  Those of frozen layers
 * lie behind the states, one for all versions, and have neither gradients nor moments.
 *
 * Inboxes hold the tensors that come in, and what a recomputing stage carries from the first forward
 * of a microbatch to the second.  Slots hold each layer's output and extras; where a stage recomputes,
 * some of that lies apart, in what is kept (lib/memory/segments).  An output
 * lies in its input's memory where the kind allows that and nobody else needs the input; that is
 * decided over the whole model.  What the first part of backward keeps for the second lies in the
 * slot, too.
 *
 * lib/memory/scratch places gradients of activations and temporaries.
 *
 * The gradient of an activation is in scratch.  A layer may pass that of its output on to its
 * inputs (add: pd_net_layer.passes_gradient): they then lie in one place, and what is added to one
 * of them goes elsewhere while another is still to be read.  A relu's backward may be done by a
 * neighbour: by the sum that makes the gradient of its output whole, or by the batch norm before
 * it.  Where a stage ends between the two the relu does it itself, and the bits are the same.
 */
#include "base/mem.h"
#include "memory/segments.h"
#include "run/device/compiled_net.h"

#include <stdlib.h>

static int place_parameters(struct pd_compiled *net, struct pd_error *err)
{
	const struct pd_model *model = net->model;
	int last = net->first + net->count - 1;

	for (int l = last; l >= net->first; l--) {
		int owner = net->layers[l].owner;

		net->step_offset[l] = net->sizes.full_bytes;
		if (net->first_user[owner] < net->first)
			return pd_error_input(err, "layers \"%s\" and \"%s\" share parameters and "
					      "must be in one stage", model->layers[l].name,
					      model->layers[net->first_user[owner]].name);
		if (net->first_user[owner] != l || net->layers[l].frozen)
			continue;
		for (int p = 0; p < model->layers[owner].parameter_count; p++) {
			struct pd_compiled_parameter *parameter = &net->parameters[owner][p];

			parameter->offset = net->sizes.full_bytes;
			net->sizes.full_bytes += pd_compiled_reserved(net, parameter->bytes);
		}
		net->step_bytes[l] = net->sizes.full_bytes - net->step_offset[l];
	}
	net->sizes.weights_bytes = pd_compiled_working(net, net->sizes.full_bytes);
	for (int l = last + 1; l < model->layer_count; l++) {
		int first_user = net->first_user[net->layers[l].owner];

		if (first_user >= net->first && first_user <= last)
			return pd_error_input(err, "layers \"%s\" and \"%s\" share parameters and "
					      "must be in one stage", model->layers[first_user].name,
					      model->layers[l].name);
	}
	return 0;
}

static void place_states(struct pd_compiled *net)
{
	size_t *bytes = &net->sizes.state_bytes;

	for (int l = net->first; l < net->first + net->count; l++)
		net->layers[l].state_offset = pd_take(bytes, net->layers[l].state_bytes);
	net->sizes.moved_bytes = *bytes;
	for (int l = net->first; l < net->first + net->count; l++)
		for (int p = 0; net->layers[l].frozen && p < net->model->layers[l].parameter_count; p++) {
			struct pd_compiled_parameter *parameter = &net->parameters[l][p];

			parameter->frozen_offset = pd_take(bytes, pd_compiled_working(net, parameter->bytes));
		}
}

/* Finds the tensors that come in and those that leave. */
static void find_crossing(struct pd_compiled *net)
{
	const struct pd_model *model = net->model;
	int end = net->first + net->count;

	for (int l = net->first; l < model->layer_count; l++)
		for (int i = 0; i < model->layers[l].input_count; i++) {
			int t = model->layers[l].inputs[i];
			int producer = pd_model_producer(model, t);
			struct pd_compiled_tensor *tensor = &net->tensors[t];

			if (l < end && producer < net->first)
				tensor->arrives = tensor->here = true;
			/* a tensor from an earlier stage passes by only if it is used here */
			if (l >= end && producer >= 0 && producer < end &&
			    (producer >= net->first || tensor->here))
				tensor->leaves = true;
		}
	for (int l = net->first; l < end; l++)
		net->tensors[model->input_count + l].here = true;
}

/* Returns whether the only consumer of this tensor may overwrite it. */
static bool expendable(const struct pd_compiled *net, int tensor)
{
	int producer = pd_model_producer(net->model, tensor);

	if (pd_model_consumers(net->model, tensor, NULL) != 1)
		return false;
	if (producer < 0)
		return true;
	if (net->layers[producer].kind->keeps_output)
		return false;
	/* a flatten's output is its input, which must be expendable, too */
	return !net->layers[producer].same_memory ||
	       expendable(net, net->model->layers[producer].inputs[0]);
}

/* Returns the layer, counted in the stage, in whose memory the output of another lies. */
static int overwritten(const struct pd_compiled *net, const struct pd_compiled_layer *l)
{
	int in = l->layer->inputs[0], producer = pd_model_producer(net->model, in);

	if (!l->same_memory && !(l->kind->in_place && expendable(net, in)))
		return PD_OVER_NONE;
	return producer >= net->first ? producer - net->first : PD_OVER_OUTSIDE;
}

static void describe_segments(struct pd_compiled *net, struct pd_segment_layer *layers, int *inputs)
{
	for (int i = 0; i < net->count; i++) {
		struct pd_compiled_layer *l = &net->layers[net->first + i];
		struct pd_segment_layer *at = &layers[i];
		int out = net->model->input_count + l->index;

		*at = (struct pd_segment_layer){
			.segment = !net->recomputes ? -1 : net->segment ? net->segment[l->index] : 0,
			.inputs = inputs, .input_count = l->layer->input_count,
			.over = overwritten(net, l), .leaves = net->tensors[out].leaves,
			.output_bytes = pd_align(net->tensors[out].bytes),
			.more_bytes = pd_align(l->extra_bytes) +
				      (net->recomputes ? 0 : pd_align(l->carried_bytes)),
		};
		for (int k = 0; k < at->input_count; k++)
			inputs[k] = pd_model_producer(net->model, l->layer->inputs[k]);
		inputs += at->input_count;
	}
}

/* Lists the layers that are computed again by when they are. */
static void list_again(struct pd_compiled *net, const struct pd_segment_layer *layers,
		       const struct pd_segments *segments)
{
	int *next;

	net->first_point = segments->first_point;
	for (int i = 0; i < net->count; i++)
		net->layers[net->first + i].point = layers[i].point;
	if (!net->segment)
		return;
	net->again_first = pd_calloc((size_t)net->count + 1, sizeof(*net->again_first));
	net->again = pd_calloc((size_t)net->count, sizeof(*net->again));
	for (int i = 0; i < net->count; i++)
		if (layers[i].point >= 0 && layers[i].point != segments->first_point)
			net->again_first[layers[i].point + 1]++;
	for (int i = 0; i < net->count; i++)
		net->again_first[i + 1] += net->again_first[i];
	next = pd_memdup(net->again_first, (size_t)net->count * sizeof(*next));
	for (int i = 0; i < net->count; i++)
		if (layers[i].point >= 0 && layers[i].point != segments->first_point)
			net->again[next[layers[i].point]++] = net->first + i;
	free(next);
}

/* Places what the layers keep: in slots, or where the stage recomputes, some of it in what is kept. */
static void place_layers(struct pd_compiled *net, int total_inputs)
{
	struct pd_segment_layer *layers = pd_calloc((size_t)net->count, sizeof(*layers));
	int *inputs = pd_calloc((size_t)total_inputs, sizeof(*inputs));
	struct pd_segments segments;

	describe_segments(net, layers, inputs);
	pd_segments_place(layers, net->count, net->first, &segments);
	net->sizes.slot_bytes = net->recomputes ? segments.slot_bytes : segments.kept_bytes;
	net->sizes.kept_bytes = net->recomputes ? segments.kept_bytes : 0;
	for (int i = 0; i < net->count; i++) {
		struct pd_compiled_layer *l = &net->layers[net->first + i];
		struct pd_compiled_tensor *out = &net->tensors[net->model->input_count + l->index];
		const struct pd_compiled_tensor *in = &net->tensors[l->layer->inputs[0]];

		out->kept = net->recomputes && layers[i].kept;
		out->slot_offset = layers[i].output_at;
		if (layers[i].over != PD_OVER_NONE) {
			out->memory = in->memory;
			out->inbox = in->inbox;
			out->slot_offset = in->slot_offset;
		}
		l->extra_kept = net->recomputes && layers[i].kept_more;
		l->extra_offset = layers[i].more_at;
		l->carried_offset = net->recomputes
			? pd_take(&net->sizes.inbox_bytes, l->carried_bytes)
			: l->extra_offset + pd_align(l->extra_bytes);
	}
	list_again(net, layers, &segments);
	free(layers);
	free(inputs);
}

static void place_slot(struct pd_compiled *net)
{
	const struct pd_model *model = net->model;
	int total_inputs = 0;

	for (int t = 0; t < pd_model_tensors(model); t++) {
		net->tensors[t].memory = t;
		net->tensors[t].inbox = net->tensors[t].arrives;
		if (net->tensors[t].arrives)
			net->tensors[t].slot_offset = pd_take(&net->sizes.inbox_bytes,
							      net->tensors[t].bytes);
	}
	for (int l = net->first; l < net->first + net->count; l++)
		total_inputs += model->layers[l].input_count;
	place_layers(net, total_inputs);
	for (int l = net->first; l < net->first + net->count && net->split; l++)
		net->layers[l].split_offset = pd_take(&net->sizes.slot_bytes, net->layers[l].split_bytes);
}

static struct pd_net_tensor *list(struct pd_compiled *net, bool in, int *count_p)
{
	int n = 0, tensors = pd_model_tensors(net->model);
	struct pd_net_tensor *out = pd_calloc((size_t)tensors, sizeof(*out));

	for (int t = 0; t < tensors; t++) {
		struct pd_compiled_tensor *tensor = &net->tensors[t];
		size_t *total = in ? &net->sizes.gradient_out_bytes : &net->sizes.gradient_in_bytes;
		size_t offset = SIZE_MAX;

		if (!(in ? tensor->arrives : tensor->leaves))
			continue;
		if (pd_model_producer(net->model, t) >= 0 && pd_model_needs_gradient(net->model, t))
			offset = pd_take(total, tensor->bytes);
		*(in ? &tensor->out_offset : &tensor->in_offset) = offset;
		out[n++] = (struct pd_net_tensor){
			.tensor = t,
			.bytes = tensor->bytes,
			.inbox = tensor->inbox, .kept = tensor->kept,
			.offset = tensor->slot_offset,
			.gradient_offset = offset,
		};
	}
	*count_p = n;
	return out;
}

/*
 * Returns the bytes for a layer's backward: its temporaries, then gradients that are to be added.
 */
static size_t backward_reserved(struct pd_compiled *net, struct pd_compiled_layer *l)
{
	size_t added = 0;

	for (int p = 0; pd_compiled_puts_aside(l) && p < l->layer->parameter_count; p++)
		pd_take(&added, net->parameters[l->owner][p].bytes);
	l->added_offset = pd_align(l->backward_bytes);
	return l->added_offset + added;
}

/* Returns the scratch of what is computed again before the backward of a layer of the stage. */
static size_t again_bytes(const struct pd_compiled *net, int i)
{
	size_t most = 0;

	for (int k = net->again ? net->again_first[i] : 0; net->again && k < net->again_first[i + 1]; k++)
		if (net->layers[net->again[k]].forward_bytes > most)
			most = net->layers[net->again[k]].forward_bytes;
	return most;
}

static void place_scratch(struct pd_compiled *net)
{
	size_t tensor_count = (size_t)pd_model_tensors(net->model);
	struct pd_scratch_layer *layers = pd_calloc((size_t)net->count, sizeof(*layers));
	struct pd_scratch_tensor *tensors = pd_calloc(tensor_count, sizeof(*tensors));

	for (size_t t = 0; t < tensor_count; t++)
		tensors[t] = (struct pd_scratch_tensor){
			.bytes = net->tensors[t].bytes,
			.arrives = net->tensors[t].arrives, .leaves = net->tensors[t].leaves,
			.out_offset = net->tensors[t].out_offset,
			.in_offset = net->tensors[t].in_offset,
		};
	for (int i = 0; i < net->count; i++) {
		struct pd_compiled_layer *l = &net->layers[net->first + i];
		struct pd_scratch_tensor *out = &tensors[net->model->input_count + l->index];

		out->stays = net->split && pd_layer_is(l->layer, PD_KIND_SPLITS) && !l->frozen;
		out->slot_offset = l->split_offset;
		l->backward_reserved = backward_reserved(net, l);
		layers[i] = (struct pd_scratch_layer){
			.input_count = l->layer->input_count, .inputs = l->layer->inputs,
			.wants = l->wants, .in_place = l->same_memory || l->kind->in_place,
			.passes = l->passes,
			.forward_bytes = l->forward_bytes, .backward_bytes = l->backward_reserved,
			.again_bytes = again_bytes(net, i),
			.contributions = l->contributions,
		};
	}
	net->sizes.scratch_bytes = pd_scratch_place(layers, net->count, tensors,
						    net->model->input_count + net->first);
	for (int i = 0; i < net->count; i++) {
		struct pd_compiled_layer *l = &net->layers[net->first + i];

		l->scratch = (struct pd_location){ PD_SCRATCH, layers[i].offset };
		l->again_offset = layers[i].again_offset;
		l->diff_dst_at = layers[i].diff_dst_at;
		l->diff_dst_from = layers[i].diff_dst_from;
	}
	free(layers);
	free(tensors);
}

/*
 * Finds the layer and input whose part is added last to a tensor's gradient; parts are added from
 * the last layer that uses the tensor to the first.  NULL: no layer of this stage has a part.
 */
static struct pd_compiled_layer *last_part(struct pd_compiled *net, int tensor, int *input_p)
{
	int producer = pd_model_producer(net->model, tensor);

	for (int l = producer + 1; l < net->first + net->count; l++)
		for (int i = 0; i < net->layers[l].layer->input_count; i++)
			if (net->layers[l].layer->inputs[i] == tensor && net->layers[l].wants[i]) {
				*input_p = i;
				return &net->layers[l];
			}
	return NULL;
}

/* Chooses the sums that do a relu's backward: those that complete the gradient of its output. */
static void place_relus(struct pd_compiled *net)
{
	for (int r = net->first; r < net->first + net->count && net->device->add_relu; r++) {
		struct pd_compiled_layer *last;
		int i;

		if (!net->layers[r].kind->is_relu)
			continue;
		last = last_part(net, net->model->input_count + r, &i);
		if (last && !last->sums && last->contributions[i].before.buffer != PD_NOWHERE)
			last->completes_relu[i] = net->layers[r].relu_completed = true;
	}
}

int pd_compiled_lay_out(struct pd_compiled *net, struct pd_error *err)
{
	if (place_parameters(net, err) < 0)
		return -1;
	place_states(net);
	find_crossing(net);
	place_slot(net);
	net->sizes.in = list(net, true, &net->sizes.in_count);
	net->sizes.out = list(net, false, &net->sizes.out_count);
	place_scratch(net);
	place_relus(net);
	return 0;
}
