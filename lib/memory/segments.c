/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/segments.h"

#include "base/mem.h"

#include <stdlib.h>

struct segment {
	int first, point;       /* its first layer; before whose backward it is computed again */
	size_t bytes, offset;
	bool there;
};

struct placing {
	struct pd_segment_layer *layers;
	int count, first;
	int *root;              /* by layer: the one that has its output's memory; -1: outside */
	bool *crosses;          /* by root: another segment begins with it */
	struct segment *segments;
	int segment_count;
};

static void find_roots(struct placing *p)
{
	for (int l = 0; l < p->count; l++) {
		struct pd_segment_layer *layer = &p->layers[l];

		p->root[l] = layer->over >= 0 ? p->root[layer->over]
			   : layer->over == PD_OVER_NONE ? l : -1;
		/* what is computed again is overwritten again */
		if (p->root[l] >= 0 && layer->segment < 0)
			layer->segment = p->layers[p->root[l]].segment;
		if (layer->segment >= p->segment_count)
			p->segment_count = layer->segment + 1;
	}
}

/* Finds outputs that must be there before their segment is computed again. */
static void find_crossing(struct placing *p)
{
	int last = -1;

	for (int l = 0; l < p->count; l++)
		last = p->layers[l].segment >= 0 ? p->layers[l].segment : last;
	for (int l = 0; l < p->count; l++) {
		const struct pd_segment_layer *layer = &p->layers[l];

		if (layer->leaves && p->root[l] >= 0 && p->layers[p->root[l]].segment >= 0 &&
		    p->layers[p->root[l]].segment != last)
			p->crosses[p->root[l]] = true;
		for (int i = 0; i < layer->input_count; i++) {
			int from = layer->inputs[i] - p->first, root = from >= 0 ? p->root[from] : -1;

			if (root >= 0 && layer->segment >= 0 && p->layers[root].segment >= 0 &&
			    p->layers[root].segment != layer->segment)
				p->crosses[root] = true;
		}
	}
}

/* Tells whether a layer of a segment is computed again: something of it is not there. */
static bool is_again(const struct placing *p, int l)
{
	const struct pd_segment_layer *layer = &p->layers[l];
	int over = layer->over;

	if (p->root[l] < 0 || !p->crosses[p->root[l]] || layer->more_bytes > 0)
		return true;
	return over >= 0 && p->layers[over].segment == layer->segment && p->layers[over].point >= 0;
}

/* Sets when each segment is computed again. */
static void find_points(struct placing *p)
{
	for (int s = 0; s < p->segment_count; s++)
		p->segments[s] = (struct segment){ .first = p->count, .point = -1 };
	for (int l = 0; l < p->count; l++) {
		const struct pd_segment_layer *layer = &p->layers[l];
		struct segment *own = layer->segment >= 0 ? &p->segments[layer->segment] : NULL;

		for (int i = 0; i < layer->input_count; i++) {
			int from = layer->inputs[i] - p->first, root = from >= 0 ? p->root[from] : -1;

			if (root >= 0 && p->layers[root].segment >= 0 && !p->crosses[root])
				p->segments[p->layers[root].segment].point = l;
		}
		if (!own)
			continue;
		own->first = l < own->first ? l : own->first;
		own->point = l;
	}
	for (int l = 0; l < p->count; l++) {
		struct pd_segment_layer *layer = &p->layers[l];

		layer->point = layer->segment >= 0 && is_again(p, l)
			? p->segments[layer->segment].point : -1;
	}
}

static size_t take(size_t *bytes_p, size_t bytes)
{
	size_t offset = *bytes_p;

	*bytes_p += bytes;
	return offset;
}

/* Places what layers keep, in their segments from 0. */
static void place_layers(struct placing *p, struct pd_segments *out)
{
	for (int l = 0; l < p->count; l++) {
		struct pd_segment_layer *layer = &p->layers[l];
		int root = p->root[l];
		size_t *own = layer->segment < 0 ? &out->kept_bytes : &p->segments[layer->segment].bytes;

		layer->kept = root >= 0 && (p->layers[root].segment < 0 || p->crosses[root]);
		layer->kept_more = layer->segment < 0;
		if (root == l)
			layer->output_at = take(layer->kept ? &out->kept_bytes : own, layer->output_bytes);
		layer->more_at = take(own, layer->more_bytes);
	}
}

/* Returns the first offset at which so many bytes lie beside all segments that are there. */
static size_t first_fit(const struct placing *p, size_t bytes)
{
	size_t offset = 0;

	for (int s = 0; s < p->segment_count; s++) {
		const struct segment *other = &p->segments[s];

		if (!other->there || other->offset >= offset + bytes ||
		    other->offset + other->bytes <= offset)
			continue;
		offset = other->offset + other->bytes;
		s = -1;
	}
	return offset;
}

static void place_segments(struct placing *p, struct pd_segments *out)
{
	int *at = pd_calloc((size_t)p->count, sizeof(*at));     /* by layer: a segment + 1 */
	int *next = pd_calloc((size_t)p->segment_count, sizeof(*next));

	for (int s = 0; s < p->segment_count; s++)
		if (p->segments[s].point >= 0) {
			next[s] = at[p->segments[s].point];
			at[p->segments[s].point] = s + 1;
		}
	for (int l = p->count - 1; l >= 0; l--) {
		for (int s = 0; s < p->segment_count && at[l] > 0; s++)
			p->segments[s].there &= p->segments[s].first <= l;
		for (int s = at[l] - 1; s >= 0; s = next[s] - 1) {
			struct segment *segment = &p->segments[s];

			segment->offset = first_fit(p, segment->bytes);
			segment->there = true;
			if (segment->offset + segment->bytes > out->slot_bytes)
				out->slot_bytes = segment->offset + segment->bytes;
		}
	}
	free(at);
	free(next);
}

/* Moves what layers keep to where their segments lie, or their output's memory. */
static void move_layers(struct placing *p, struct pd_segments *out)
{
	for (int l = 0; l < p->count; l++) {
		struct pd_segment_layer *layer = &p->layers[l];
		size_t offset = layer->segment >= 0 ? p->segments[layer->segment].offset : 0;

		layer->more_at += offset;
		if (p->root[l] == l)
			layer->output_at += layer->kept ? 0 : offset;
		else if (p->root[l] >= 0)
			layer->output_at = p->layers[p->root[l]].output_at;
		if (layer->point > out->first_point)
			out->first_point = layer->point;
	}
}

void pd_segments_place(struct pd_segment_layer *layers, int count, int first,
		       struct pd_segments *out_p)
{
	struct placing p = { .layers = layers, .count = count, .first = first,
			     .root = pd_calloc((size_t)count, sizeof(int)),
			     .crosses = pd_calloc((size_t)count, sizeof(bool)) };

	*out_p = (struct pd_segments){ .first_point = -1 };
	find_roots(&p);
	p.segments = pd_calloc((size_t)p.segment_count, sizeof(*p.segments));
	find_crossing(&p);
	find_points(&p);
	place_layers(&p, out_p);
	place_segments(&p, out_p);
	move_layers(&p, out_p);
	free(p.root);
	free(p.crosses);
	free(p.segments);
}
