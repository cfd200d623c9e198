/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of tensors, as nodes of ONNX graphs make them: random chains of such nodes, compared with arrays that
 * are moved about element by element, and the layers that views become.
 */
#include "doors/onnx/place.h"

#include "base/mem.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 2
#define MOST 4096

/* Elements by their numbers in the whole batch. */
struct truth {
	struct extent extent;
	int64_t id[MOST];
};

static uint64_t seed = 7;

static int64_t below(int64_t limit)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (int64_t)((seed >> 33) % (uint64_t)limit);
}

static int64_t count(const struct extent *extent)
{
	int64_t elements = 1;

	for (int d = 0; d < extent->dims; d++)
		elements *= extent->size[d];
	return elements;
}

/* Makes *out of what each of its elements is of: from[step . (place + start)]. */
static void gather(struct truth *out, const struct truth *from, const int64_t *step, int64_t first)
{
	struct truth made = { .extent = out->extent };

	for (int64_t n = 0; n < count(&out->extent); n++) {
		int64_t rest = n, at = first;

		for (int d = out->extent.dims - 1; d >= 0; rest /= out->extent.size[d], d--)
			at += rest % out->extent.size[d] * step[d];
		made.id[n] = from->id[at];
	}
	*out = made;
}

static void strides(const struct extent *extent, int64_t *step)
{
	int64_t stride = 1;

	for (int d = extent->dims - 1; d >= 0; d--) {
		step[d] = stride;
		stride *= extent->size[d];
	}
}

static bool permute(struct view *view, struct truth *truth)
{
	int order[PD_ONNX_DIMS] = { 0 }, dims = truth->extent.dims;
	int64_t step[PD_ONNX_DIMS], to[PD_ONNX_DIMS];
	struct truth from = *truth;
	struct view next;

	for (int d = 0; d < dims; d++)
		order[d] = d;
	for (int d = dims - 1; d > 0; d--) {
		int other = (int)below(d + 1), kept = order[d];

		order[d] = order[other];
		order[other] = kept;
	}
	if (!view_permuted(&next, view, order))
		return false;
	strides(&from.extent, step);
	for (int d = 0; d < dims; d++) {
		truth->extent.size[d] = from.extent.size[order[d]];
		to[d] = step[order[d]];
	}
	gather(truth, &from, to, 0);
	*view = next;
	return true;
}

/* Another shape of as many elements: each prime goes to some axis, in order. */
static bool reshape(struct view *view, struct truth *truth)
{
	struct extent to = { .dims = 1 + (int)below(5) };
	int64_t left = count(&truth->extent);
	struct view next;
	int d = 0;

	for (int k = 0; k < to.dims; k++)
		to.size[k] = 1;
	for (int64_t prime = 2; left > 1; prime += left % prime != 0)
		while (left % prime == 0) {
			to.size[d] *= prime;
			left /= prime;
			d = below(2) && d + 1 < to.dims ? d + 1 : d;
		}
	if (!view_reshaped(&next, view, &to))
		return false;
	truth->extent = to;
	*view = next;
	return true;
}

static bool part(struct view *view, struct truth *truth)
{
	int axis = (int)below(truth->extent.dims);
	int64_t size = truth->extent.size[axis], start = below(size), end = start + 1 + below(size - start);
	int64_t step[PD_ONNX_DIMS];
	struct truth from = *truth;
	struct view next;

	if (!view_part(&next, view, axis, start, end))
		return false;
	strides(&from.extent, step);
	truth->extent.size[axis] = end - start;
	gather(truth, &from, step, start * step[axis]);
	*view = next;
	return true;
}

static bool insert(struct view *view, struct truth *truth)
{
	int axis = (int)below(truth->extent.dims + 1);
	struct view next;

	if (truth->extent.dims == PD_ONNX_DIMS || !view_inserted(&next, view, axis))
		return false;
	for (int d = truth->extent.dims++; d > axis; d--)
		truth->extent.size[d] = truth->extent.size[d - 1];
	truth->extent.size[axis] = 1;
	*view = next;
	return true;
}

/* Does a view show these elements? */
static bool shows(const struct view *view, const struct truth *truth, int64_t sample)
{
	for (int a = 0; a < view->axes; a++)
		if (view_size(view, a) != truth->extent.size[a])
			return false;
	for (int64_t n = 0; n < count(&truth->extent); n++) {
		int64_t rest = n, at = view->offset;

		for (int k = view->first[view->axes] - 1; k >= 0; rest /= view->factor[k].size, k--)
			at += rest % view->factor[k].size *
			      (view->factor[k].stride == SAMPLES ? sample : view->factor[k].stride);
		if (at != truth->id[n])
			return false;
	}
	return view->axes == truth->extent.dims;
}

/* Computes a layer that moves elements about, of one sample. */
static void compute(const struct graph *g, int number, struct truth *out)
{
	const struct layer *layer = &g->layers[number];
	int64_t step[PD_ONNX_DIMS], first = 0;
	struct truth from;

	out->extent = layer->sample;
	if (!layer->kind) {
		for (int64_t n = 0; n < count(&layer->sample); n++)
			out->id[n] = n;
		return;
	}
	compute(g, layer->input[0], &from);
	strides(&from.extent, step);
	if (strcmp(layer->kind, "slice") == 0) {
		first = pd_member_int(layer->attributes, "start") * step[pd_member_int(layer->attributes, "dim") - 1];
	} else if (strcmp(layer->kind, "transpose") == 0) {
		int64_t a = pd_member_int(layer->attributes, "dim0") - 1;
		int64_t b = pd_member_int(layer->attributes, "dim1") - 1, kept = step[a];

		step[a] = step[b];
		step[b] = kept;
	} else {
		strides(&layer->sample, step);
	}
	gather(out, &from, step, first);
}

/* Are the layers of a view what it shows of the first sample, in the same order? */
static bool becomes(struct graph *g, const struct view *view, const struct truth *truth, int64_t sample,
		    bool *placed_p)
{
	static const struct pd_onnx_node node = { .op = "", .scope = (char *)"", .name = "" };
	struct pd_error err;
	struct extent extent;
	struct truth made;
	int64_t at = 0;
	int base;

	*placed_p = place(g, view, &node, &base, &extent, &err) == 0;
	if (!*placed_p)
		return err.text[0] != '\0';
	compute(g, base, &made);
	for (int64_t n = 0; n < count(&truth->extent); n++)
		if (truth->id[n] < sample && (at == count(&made.extent) || made.id[at++] != truth->id[n]))
			return false;
	return at == count(&extent) && at == count(&made.extent);
}

static void release(struct graph *g)
{
	for (int i = 0; i < g->layer_count; i++)
		json_decref(g->layers[i].attributes);
	free(g->layers);
	free(g->placements);
}

/* Counts the chains whose views became layers; -1: one showed something else. */
static int chain(void)
{
	static bool (*const steps[])(struct view *, struct truth *) = { permute, reshape, part, insert };
	static const int64_t sizes[] = { 1, 2, 3, 4, 6 };
	struct extent sample = { .dims = 1 + (int)below(3) };
	struct graph g = { .batch = BATCH };
	struct view view;
	struct truth truth;
	bool placed;
	int result;

	for (int d = 0; d < sample.dims; d++)
		sample.size[d] = sizes[below(5)];
	layer_add(&g, NULL, NULL, 0, NULL, &sample, NULL);
	view_whole(&view, 0, &sample, 0, BATCH);
	truth.extent = view_extent(&view);
	for (int64_t n = 0; n < count(&truth.extent); n++)
		truth.id[n] = n;
	for (int i = (int)below(7); i > 0; i--)
		if (!steps[below(4)](&view, &truth))
			break;
	result = !shows(&view, &truth, count(&sample)) ? -1
		: !becomes(&g, &view, &truth, count(&sample), &placed) ? -2 : placed;
	release(&g);
	return result;
}

int main(void)
{
	int chains = test_quick() ? 2000 : 20000, placed = 0, wrong = 0, misplaced = 0;

	for (int i = 0; i < chains; i++) {
		int result = chain();

		wrong += result == -1;
		misplaced += result == -2;
		placed += result == 1;
	}
	is_int(wrong, 0, "%d chains of nodes: views show what the nodes make", chains);
	is_int(misplaced, 0, "layers make what views show");
	ok(placed > chains * 9 / 10, "nearly all views become layers: %d", placed);
	return done_testing();
}
