/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of some of a stage's layers run on a stream's thread. */
#include "base/mem.h"
#include "run/device/compiled_net.h"

static void *at(const struct pd_pass *pass, struct pd_location location)
{
	char *base = location.buffer == PD_SLOT ? pass->slot
		: location.buffer == PD_SCRATCH ? pass->scratch
		: location.buffer == PD_GRADIENT_IN ? pass->gradient_in
		: location.buffer == PD_GRADIENT_OUT ? pass->gradient_out : NULL;

	return base ? base + location.offset : NULL;
}

static void *in_slot(const struct pd_compiled *net, const struct pd_pass *pass, int tensor)
{
	const struct pd_compiled_tensor *t = &net->tensors[tensor];

	return (char *)(t->inbox ? pass->inbox : t->kept ? pass->kept : pass->slot) + t->slot_offset;
}

static void point(struct pd_compiled *net, struct pd_compiled_layer *l, const struct pd_pass *pass)
{
	for (int i = 0; i < l->layer->input_count; i++)
		l->src[i] = in_slot(net, pass, l->layer->inputs[i]);
	l->dst = in_slot(net, pass, net->model->input_count + l->index);
	l->extra = (char *)(l->extra_kept ? pass->kept : pass->slot) + l->extra_offset;
	l->carried = (char *)(net->recomputes ? pass->inbox : pass->slot) + l->carried_offset;
	l->split = (char *)pass->slot + l->split_offset;
	l->state = (char *)pass->state + l->state_offset;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		const struct pd_compiled_parameter *parameter = &net->parameters[l->owner][p];

		l->parameters[p] = l->frozen ? (const char *)pass->state + parameter->frozen_offset
			: (const char *)pass->weights + pd_compiled_working(net, parameter->offset);
	}
}

static int take_plain(struct pd_compiled_layer *l, bool back, struct pd_error *err)
{
	for (int i = 0; i < l->layer->input_count && l->kind->plain; i++) {
		l->src[i] = l->net->device->plain_input(l, i, back, err);
		if (!l->src[i])
			return -1;
	}
	return 0;
}

static int forward_one(struct pd_compiled *net, int index, const struct pd_pass *pass,
		       size_t scratch, struct pd_error *err)
{
	struct pd_compiled_layer *l = &net->layers[index];

	point(net, l, pass);
	l->temporary = (char *)pass->scratch + scratch;
	return take_plain(l, false, err) < 0 ? -1 : l->kind->forward(l, pass, err);
}

int pd_compiled_forward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			struct pd_error *err)
{
	for (int index = from; index < from + count; index++) {
		if (pass->again && net->layers[index].point != net->first_point)
			continue;
		if (forward_one(net, index, pass, 0, err) < 0)
			return -1;
	}
	return 0;
}

/* Computes again what the backward of a layer, and of those before it, begins with. */
static int forward_again(struct pd_compiled *net, int index, const struct pd_pass *pass,
			 struct pd_error *err)
{
	struct pd_pass again = *pass;
	int i = index - net->first;

	if (!net->again || pass->part == PD_BACKWARD_WEIGHT)
		return 0;
	again.again = true;
	again.losses = NULL;
	for (int k = net->again_first[i]; k < net->again_first[i + 1]; k++)
		if (forward_one(net, net->again[k], &again, net->layers[index].again_offset, err) < 0)
			return -1;
	return 0;
}

/*
 * Returns whether the layer itself adds to the gradient that came before.  Not if it only clears.
 */
static bool sums(const struct pd_compiled_layer *l)
{
	return l->sums && l->diff_dst_at.buffer != PD_NOWHERE;
}

static int sum_two(struct pd_compiled *net, enum pd_dtype dtype, void *dst, const void *a,
		   const void *b, size_t bytes, struct pd_error *err)
{
	return net->device->add(net, dtype, dst, a, b, bytes / pd_dtype_bytes(dtype), err);
}

/* Clears the gradients of a layer on whose output nothing depends. */
static int zero(struct pd_compiled *net, struct pd_compiled_layer *l, enum pd_backward_part part,
		struct pd_error *err)
{
	int status = 0;

	for (int i = 0; i < l->layer->input_count && part != PD_BACKWARD_WEIGHT; i++)
		if (l->diff_src[i] && status == 0)
			status = net->device->zero(net, l->diff_src[i],
						   net->tensors[l->layer->inputs[i]].bytes, err);
	for (int p = 0; p < l->layer->parameter_count && part != PD_BACKWARD_INPUT; p++)
		if (status == 0)
			status = net->device->zero(net, l->diff_parameters[p],
						   net->parameters[l->owner][p].bytes, err);
	return status;
}

static void point_back(struct pd_compiled *net, struct pd_compiled_layer *l,
		       const struct pd_pass *pass)
{
	size_t added = l->added_offset;

	l->temporary = at(pass, l->scratch);
	l->diff_dst = at(pass, l->diff_dst_at);
	for (int i = 0; i < l->layer->input_count; i++) {
		const struct pd_contribution *c = &l->contributions[i];

		l->diff_src[i] = at(pass, sums(l) ? c->sum : c->part);
		l->before[i] = sums(l) ? at(pass, c->before) : NULL;
	}
	for (int p = 0; p < l->layer->parameter_count; p++) {
		const struct pd_compiled_parameter *parameter = &net->parameters[l->owner][p];

		l->diff_parameters[p] = (char *)pass->gradients + parameter->offset;
		if (l->adds_gradient || l->frozen) {
			l->diff_parameters[p] = (char *)l->temporary + added;
			added += pd_align(parameter->bytes);
		}
	}
}

/* Adds the layer's part of the gradient of an input to the other parts. */
static int add_input(struct pd_compiled *net, struct pd_compiled_layer *l, int i,
		     const struct pd_pass *pass, struct pd_error *err)
{
	const struct pd_contribution *c = &l->contributions[i];
	size_t bytes = net->tensors[l->layer->inputs[i]].bytes;
	void *sum = at(pass, c->sum);
	const void *before = at(pass, c->before), *part = at(pass, c->part);

	if (l->completes_relu[i])
		return net->device->add_relu(net, sum, before, part,
					     in_slot(net, pass, l->layer->inputs[i]),
					     bytes / pd_dtype_bytes(net->dtype), err);
	return sum_two(net, net->dtype, sum, before, part, bytes, err);
}

static int add_up(struct pd_compiled *net, struct pd_compiled_layer *l,
		  const struct pd_pass *pass, struct pd_error *err)
{
	bool own = sums(l) || pass->part == PD_BACKWARD_WEIGHT;

	for (int i = l->layer->input_count - 1; i >= 0 && !own; i--)
		if (l->contributions[i].before.buffer != PD_NOWHERE &&
		    add_input(net, l, i, pass, err) < 0)
			return -1;
	if (!l->adds_gradient || pass->part == PD_BACKWARD_INPUT)
		return 0;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		const struct pd_compiled_parameter *parameter = &net->parameters[l->owner][p];
		void *sum = (char *)pass->gradients + parameter->offset;

		if (sum_two(net, PD_F32, sum, sum, l->diff_parameters[p], parameter->bytes,
			    err) < 0)
			return -1;
	}
	return 0;
}

/* Calls the kind's backward, and reorders gradients of inputs that it takes in plain layout. */
static int backward_kind(struct pd_compiled_layer *l, const struct pd_pass *pass,
			 struct pd_error *err)
{
	if (!l->kind->plain)
		return l->kind->backward(l, pass, err);
	if (take_plain(l, true, err) < 0)
		return -1;
	for (int i = 0; i < l->layer->input_count; i++)
		if (l->diff_src[i])
			l->diff_src[i] = l->net->device->plain_room(l, i);
	if (l->kind->backward(l, pass, err) < 0)
		return -1;
	for (int i = 0; i < l->layer->input_count && pass->part != PD_BACKWARD_WEIGHT; i++)
		if (l->diff_src[i] &&
		    l->net->device->plain_gradient(l, i, at(pass, l->contributions[i].part),
						   err) < 0)
			return -1;
	return 0;
}

static bool wants_any(const struct pd_compiled_layer *l)
{
	bool any = false;

	for (int i = 0; i < l->layer->input_count; i++)
		any |= l->wants[i];
	return any;
}

static int backward_one(struct pd_compiled *net, struct pd_compiled_layer *l,
			const struct pd_pass *pass, struct pd_error *err);

/* Runs what a frozen layer has of backward: the part that leads on, if any. */
static int backward_frozen(struct pd_compiled *net, struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	struct pd_pass part = *pass;

	if (!wants_any(l))
		return 0;
	part.part = pd_layer_is(l->layer, PD_KIND_SPLITS) ? PD_BACKWARD_INPUT : PD_BACKWARD_ALL;
	return backward_one(net, l, &part, err);
}

static int backward_one(struct pd_compiled *net, struct pd_compiled_layer *l,
			const struct pd_pass *pass, struct pd_error *err)
{
	int out = net->model->input_count + l->index;

	point(net, l, pass);
	point_back(net, l, pass);
	if (pass->part != PD_BACKWARD_WEIGHT && l->diff_dst_from.buffer != PD_NOWHERE &&
	    net->device->copy(net, l->split, at(pass, l->diff_dst_from), net->tensors[out].bytes,
			      err) < 0)
		return -1;
	if (l->diff_dst_at.buffer == PD_NOWHERE && !pd_layer_is(l->layer, PD_KIND_LOSS)) {
		if (zero(net, l, pass->part, err) < 0)
			return -1;
	} else if (backward_kind(l, pass, err) < 0) {
		return -1;
	}
	return add_up(net, l, pass, err);
}

int pd_compiled_backward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			 struct pd_error *err)
{
	if (pass->part != PD_BACKWARD_ALL && !net->split)
		return pd_error_failed(err, "one part of backward in a net that is not split");
	for (int index = from + count - 1; index >= from; index--) {
		struct pd_compiled_layer *l = &net->layers[index];

		if (forward_again(net, index, pass, err) < 0)
			return -1;
		if (pass->part == PD_BACKWARD_WEIGHT && !pd_layer_learns(l->layer))
			continue;
		if ((l->frozen ? backward_frozen : backward_one)(net, l, pass, err) < 0)
			return -1;
	}
	return 0;
}
