/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/scratch.h"

#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>

struct block {
	size_t offset, bytes;
	int until;                      /* the layer after whose backward it is free */
};

struct scratch {
	struct block *blocks;           /* ascending by offset */
	int count;
	size_t capacity, peak;
	struct pd_scratch_tensor *tensors;
	int first_output;
};

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

static void extend(struct scratch *s, size_t offset, int until)
{
	for (int i = 0; i < s->count; i++)
		if (s->blocks[i].offset == offset)
			s->blocks[i].until = until;
}

/* Where the gradient of a tensor is made, at the first layer that adds to it. */
static struct pd_where gradient_place(struct scratch *s, const struct pd_scratch_layer *l, int t)
{
	const struct pd_scratch_tensor *tensor = &s->tensors[t];
	int producer = t - s->first_output;

	if (tensor->arrives)
		return (struct pd_where){ PD_GRADIENT_OUT, tensor->out_offset };
	if (tensor->stays)
		return (struct pd_where){ PD_SLOT, tensor->slot_offset };
	/* it can be made where that of the output is, which ends here */
	if (l->in_place && l->diff_dst_at.buffer == PD_SCRATCH) {
		extend(s, l->diff_dst_at.offset, producer);
		return l->diff_dst_at;
	}
	return (struct pd_where){ PD_SCRATCH, scratch_take(s, tensor->bytes, producer) };
}

static struct pd_contribution contribute(struct scratch *s, const struct pd_scratch_layer *l,
					 int layer, int t)
{
	struct pd_scratch_tensor *tensor = &s->tensors[t];
	struct pd_contribution c = { .before = { PD_NOWHERE, 0 } };

	if (tensor->gradient.buffer != PD_NOWHERE) {
		c.before = tensor->gradient;
	} else {
		tensor->gradient = gradient_place(s, l, t);
		if (tensor->leaves)
			c.before = (struct pd_where){ PD_GRADIENT_IN, tensor->in_offset };
	}
	c.sum = c.part = tensor->gradient;
	if (c.before.buffer != PD_NOWHERE)
		c.part = (struct pd_where){ PD_SCRATCH, scratch_take(s, tensor->bytes, layer) };
	return c;
}

size_t pd_scratch_place(struct pd_scratch_layer *layers, int count,
			struct pd_scratch_tensor *tensors, int first_output)
{
	struct scratch s = { .tensors = tensors, .first_output = first_output };

	for (int index = count - 1; index >= 0; index--) {
		struct pd_scratch_layer *l = &layers[index];
		struct pd_scratch_tensor *out = &tensors[first_output + index];

		scratch_free(&s, index);
		if (out->gradient.buffer == PD_NOWHERE && out->leaves && out->in_offset != SIZE_MAX)
			out->gradient = (struct pd_where){ PD_GRADIENT_IN, out->in_offset };
		l->diff_dst_at = out->gradient;
		if (out->stays && out->gradient.buffer == PD_GRADIENT_IN) {
			l->diff_dst_from = out->gradient;
			l->diff_dst_at = (struct pd_where){ PD_SLOT, out->slot_offset };
		}
		l->offset = scratch_take(&s, l->backward_bytes, index);
		for (int i = l->input_count - 1; i >= 0; i--) {
			struct pd_contribution c;

			if (!l->wants[i])
				continue;
			c = contribute(&s, l, index, l->inputs[i]);
			if (l->contributions)
				l->contributions[i] = c;
		}
		if (l->forward_bytes > s.peak)
			s.peak = pd_align(l->forward_bytes);
	}
	free(s.blocks);
	return s.peak;
}
