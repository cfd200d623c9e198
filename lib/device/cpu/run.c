/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward of some of a stage's layers, on a stream's thread. */
#include "base/mem.h"
#include "device/cpu/cpu.h"

#include <string.h>

static void *at(const struct pd_pass *pass, struct pd_where where)
{
	char *base = where.buffer == PD_SLOT ? pass->slot
		: where.buffer == PD_SCRATCH ? pass->scratch
		: where.buffer == PD_GRADIENT_IN ? pass->gradient_in
		: where.buffer == PD_GRADIENT_OUT ? pass->gradient_out : NULL;

	return base ? base + where.offset : NULL;
}

static void *in_slot(const struct pd_cpu_net *net, const struct pd_pass *pass, int tensor)
{
	const struct pd_cpu_tensor *t = &net->tensors[tensor];

	return (char *)(t->inbox ? pass->inbox : pass->slot) + t->slot_offset;
}

static void point(struct pd_cpu_net *net, struct pd_cpu_layer *l, const struct pd_pass *pass)
{
	for (int i = 0; i < l->layer->input_count; i++)
		l->src[i] = in_slot(net, pass, l->layer->inputs[i]);
	l->dst = in_slot(net, pass, net->model->input_count + l->index);
	l->extra = (char *)pass->slot + l->extra_offset;
	l->split = (char *)pass->slot + l->split_offset;
	l->state = (char *)pass->state + l->state_offset;
	for (int p = 0; p < l->layer->parameter_count; p++)
		l->parameters[p] = (const char *)pass->weights +
				   net->parameters[l->owner][p].offset;
}

int pd_cpu_forward(struct pd_cpu_net *net, const struct pd_pass *pass, int from, int count,
		   struct pd_error *err)
{
	for (int index = from; index < from + count; index++) {
		struct pd_cpu_layer *l = &net->layers[index];

		point(net, l, pass);
		l->temporary = pass->scratch;
		if (l->kind->forward(l, pass, err) < 0)
			return -1;
	}
	return 0;
}

static void sum_two(float *dst, const float *a, const float *b, size_t bytes)
{
	pd_cpu_sum(dst, (const float *const[]){ a, b }, 2, bytes / sizeof(float));
}

/* Nothing depends on the layer's output: its gradients are zero. */
static void zero(struct pd_cpu_net *net, struct pd_cpu_layer *l, enum pd_backward_part part)
{
	for (int i = 0; i < l->layer->input_count && part != PD_BACKWARD_WEIGHT; i++)
		if (l->diff_src[i])
			memset(l->diff_src[i], 0, net->tensors[l->layer->inputs[i]].bytes);
	for (int p = 0; p < l->layer->parameter_count && part != PD_BACKWARD_INPUT; p++)
		memset(l->diff_parameters[p], 0, net->parameters[l->owner][p].bytes);
}

static void point_back(struct pd_cpu_net *net, struct pd_cpu_layer *l, const struct pd_pass *pass)
{
	size_t added = l->added_offset;

	l->temporary = at(pass, l->scratch);
	l->diff_dst = at(pass, l->diff_dst_at);
	for (int i = 0; i < l->layer->input_count; i++)
		l->diff_src[i] = at(pass, l->contributions[i].part);
	for (int p = 0; p < l->layer->parameter_count; p++) {
		const struct pd_cpu_parameter *parameter = &net->parameters[l->owner][p];

		l->diff_parameters[p] = (char *)pass->gradients + parameter->offset;
		if (l->adds) {
			l->diff_parameters[p] = (char *)l->temporary + added;
			added += pd_align(parameter->bytes);
		}
	}
}

static void add_up(struct pd_cpu_net *net, struct pd_cpu_layer *l, const struct pd_pass *pass)
{
	for (int i = l->layer->input_count - 1; i >= 0 && pass->part != PD_BACKWARD_WEIGHT; i--) {
		const struct pd_contribution *c = &l->contributions[i];

		if (c->before.buffer != PD_NOWHERE)
			sum_two(at(pass, c->sum), at(pass, c->before), at(pass, c->part),
				net->tensors[l->layer->inputs[i]].bytes);
	}
	if (!l->adds || pass->part == PD_BACKWARD_INPUT)
		return;
	for (int p = 0; p < l->layer->parameter_count; p++) {
		const struct pd_cpu_parameter *parameter = &net->parameters[l->owner][p];
		float *sum = (float *)((char *)pass->gradients + parameter->offset);

		sum_two(sum, sum, l->diff_parameters[p], parameter->bytes);
	}
}

int pd_cpu_backward(struct pd_cpu_net *net, const struct pd_pass *pass, int from, int count,
		    struct pd_error *err)
{
	if (pass->part != PD_BACKWARD_ALL && !net->split)
		return pd_error_failed(err, "one part of backward in a net that is not split");
	for (int index = from + count - 1; index >= from; index--) {
		struct pd_cpu_layer *l = &net->layers[index];

		if (pass->part == PD_BACKWARD_WEIGHT && l->layer->parameter_count == 0)
			continue;
		point(net, l, pass);
		point_back(net, l, pass);
		if (pass->part != PD_BACKWARD_WEIGHT && l->diff_dst_from.buffer != PD_NOWHERE)
			memcpy(l->split, at(pass, l->diff_dst_from),
			       net->tensors[net->model->input_count + index].bytes);
		if (l->diff_dst_at.buffer == PD_NOWHERE && !l->kind->is_loss)
			zero(net, l, pass->part);
		else if (l->kind->backward(l, pass, err) < 0)
			return -1;
		add_up(net, l, pass);
	}
	return 0;
}
