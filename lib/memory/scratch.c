/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/scratch.h"

#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>

struct block {
	size_t offset, bytes;
	int until;                      /* it is free after the backward of this layer */
	bool shared;                    /* the gradients of several tensors have been here */
};

struct scratch {
	struct block *blocks;           /* ascending by offset */
	int count;
	size_t capacity, peak;
	struct pd_scratch_tensor *tensors;
	int tensor_count, first_output;
};

/* Finds room for so many bytes, before block number *at_p. */
static size_t scratch_find(struct scratch *s, size_t bytes, int *at_p)
{
	size_t offset = 0;
	int at = 0;

	while (at < s->count && s->blocks[at].offset - offset < bytes) {
		offset = s->blocks[at].offset + s->blocks[at].bytes;
		at++;
	}
	if (bytes > 0 && offset + bytes > s->peak)
		s->peak = offset + bytes;
	*at_p = at;
	return offset;
}

static size_t scratch_take(struct scratch *s, size_t bytes, int until)
{
	size_t offset;
	int at;

	bytes = pd_align(bytes);
	offset = scratch_find(s, bytes, &at);
	if (bytes == 0)
		return offset;
	s->blocks = pd_grow(s->blocks, &s->capacity, (size_t)s->count + 1, sizeof(*s->blocks));
	for (int i = s->count++; i > at; i--)
		s->blocks[i] = s->blocks[i - 1];
	s->blocks[at] = (struct block){ .offset = offset, .bytes = bytes, .until = until };
	return offset;
}

/* Frees blocks that the backward of layers from `layer` down does not need. */
static void scratch_free(struct scratch *s, int layer)
{
	int kept = 0;

	for (int i = 0; i < s->count; i++)
		if (s->blocks[i].until <= layer)
			s->blocks[kept++] = s->blocks[i];
	s->count = kept;
}

static struct block *block_at(struct scratch *s, struct pd_location location)
{
	for (int i = 0; i < s->count && location.buffer == PD_SCRATCH; i++)
		if (s->blocks[i].offset == location.offset)
			return &s->blocks[i];
	return NULL;
}

static bool same(struct pd_location a, struct pd_location b)
{
	return a.buffer == b.buffer && a.offset == b.offset;
}

/*
 * Returns the first layer whose backward still reads the gradient of its output at `location`, or
 * `layer` if none does.  The tensor t does not count.
 */
static int reader(const struct scratch *s, struct pd_location location, int t, int layer)
{
	int first = layer;

	for (int o = s->first_output; o < s->tensor_count && o - s->first_output < first; o++)
		if (o != t && same(s->tensors[o].gradient, location))
			first = o - s->first_output;
	return first;
}

/* Tells whether the gradient of t at `location` may be overwritten in the backward of this layer. */
static bool is_alone(struct scratch *s, struct pd_location location, int t, int layer)
{
	const struct block *block = block_at(s, location);

	return !block || !block->shared || reader(s, location, t, layer) == layer;
}

/* Puts the gradient of t where that of the layer's output is. */
static void share(struct scratch *s, struct pd_location location, int t, int layer)
{
	struct block *block = block_at(s, location);

	s->tensors[t].gradient = location;
	if (!block)
		return;
	block->shared = true;
	block->until = reader(s, location, -1, layer);
}

/* Returns where the gradient of a tensor is made, at the first layer that adds to it. */
static struct pd_location gradient_place(struct scratch *s, const struct pd_scratch_layer *l,
					 int layer, int t)
{
	const struct pd_scratch_tensor *tensor = &s->tensors[t];
	int producer = t - s->first_output;

	if (tensor->arrives)
		return (struct pd_location){ PD_GRADIENT_OUT, tensor->out_offset };
	if (tensor->stays)
		return (struct pd_location){ PD_SLOT, tensor->slot_offset };
	/* It can overwrite the gradient of the output, which ends here. */
	if (l->in_place && l->diff_dst_at.buffer == PD_SCRATCH &&
	    is_alone(s, l->diff_dst_at, s->first_output + layer, layer)) {
		block_at(s, l->diff_dst_at)->until = producer;
		return l->diff_dst_at;
	}
	return (struct pd_location){ PD_SCRATCH, scratch_take(s, tensor->bytes, producer) };
}

/*
 * Tells whether a sum is made in another place.  Usually it is made over the earlier part.  It must
 * not be if that part is passed on in this layer, is read by another layer that shares it, or has
 * arrived.
 */
static bool adds_elsewhere(struct scratch *s, const struct pd_scratch_layer *l, int layer, int t)
{
	struct pd_location before = s->tensors[t].gradient;

	return before.buffer == PD_GRADIENT_IN || (l->passes && same(before, l->diff_dst_at)) ||
	       !is_alone(s, before, t, layer);
}

static struct pd_contribution contribute(struct scratch *s, const struct pd_scratch_layer *l,
					 int layer, int t)
{
	struct pd_scratch_tensor *tensor = &s->tensors[t];
	struct pd_contribution c = { .before = { PD_NOWHERE, 0 } };
	bool passes = l->passes && l->diff_dst_at.buffer != PD_NOWHERE;
	int producer = t - s->first_output;

	if (tensor->gradient.buffer != PD_NOWHERE) {
		c.before = tensor->gradient;
		if (adds_elsewhere(s, l, layer, t)) {
			struct block *block = block_at(s, c.before);

			if (block)
				block->until = reader(s, c.before, t, layer);
			tensor->gradient = (struct pd_location){
				PD_SCRATCH, scratch_take(s, tensor->bytes, producer)
			};
		}
	} else if (passes && !tensor->arrives && !tensor->stays && !tensor->leaves) {
		share(s, l->diff_dst_at, t, layer);
	} else {
		tensor->gradient = gradient_place(s, l, layer, t);
		if (tensor->leaves)
			c.before = (struct pd_location){ PD_GRADIENT_IN, tensor->in_offset };
	}
	c.sum = c.part = tensor->gradient;
	if (c.before.buffer != PD_NOWHERE)
		c.part = passes ? l->diff_dst_at
			: (struct pd_location){ PD_SCRATCH, scratch_take(s, tensor->bytes, layer) };
	return c;
}

size_t pd_scratch_place(struct pd_scratch_layer *layers, int count,
			struct pd_scratch_tensor *tensors, int first_output)
{
	struct scratch s = { .tensors = tensors, .tensor_count = first_output + count,
			     .first_output = first_output };

	for (int index = count - 1; index >= 0; index--) {
		struct pd_scratch_layer *l = &layers[index];
		struct pd_scratch_tensor *out = &tensors[first_output + index];
		int at;

		scratch_free(&s, index);
		if (out->gradient.buffer == PD_NOWHERE && out->leaves && out->in_offset != SIZE_MAX)
			out->gradient = (struct pd_location){ PD_GRADIENT_IN, out->in_offset };
		l->diff_dst_at = out->gradient;
		if (out->stays && out->gradient.buffer == PD_GRADIENT_IN) {
			l->diff_dst_from = out->gradient;
			l->diff_dst_at = (struct pd_location){ PD_SLOT, out->slot_offset };
		}
		l->again_offset = scratch_find(&s, pd_align(l->again_bytes), &at);
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
