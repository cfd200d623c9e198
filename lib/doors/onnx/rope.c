/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions, as they are written out: x cos + rotated(x) sin, where the halves of each head change
 * places and one its sign.  What they rotate by is computed and compared with powers of a base.
 */
#include "doors/onnx/translate.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What a value is as cosines, beside sines. */
struct rotation {
	const struct value *sines;
	int64_t positions, features;
	double base, factor, low, high, original;       /* of the kind "rope" */
	bool known;
};

static const struct value *bare(const struct graph *g, const struct value *value)
{
	value = pattern_origin(g, value);
	while (value && !value->constant && value->node && is_op(value->node, "Unsqueeze"))
		value = pattern_origin(g, graph_in(g, value->node, 0));
	return value;
}

/* The number with the fewest digits that is this one, up to such a part of it. */
static double round_number(double number, double near)
{
	char text[40];

	for (int digits = 1; digits < 12; digits++) {
		double rounded;

		snprintf(text, sizeof(text), "%.*g", digits, number);
		rounded = strtod(text, NULL);
		if (fabs(rounded - number) < near * fabs(number))
			return rounded;
	}
	return number;
}

/* The angle of pair i from one position to the next, as the kind has it. */
static double angle(const struct rotation *r, int64_t i)
{
	double plain = pow(r->base, -2.0 * (double)i / (double)r->features);
	double turns = r->original * plain / (2 * M_PI), share = (turns - r->low) / (r->high - r->low);

	share = r->original == 0 || share < 0 ? 0 : share > 1 ? 1 : share;
	return plain * (share + (1 - share) / r->factor);
}

/* Are all angles as the kind has them? */
static bool is_so(const struct rotation *r, const struct array *cosines, const struct array *sines)
{
	int64_t half = r->features / 2;
	double *angles = pd_calloc((size_t)half, sizeof(*angles));
	bool so = r->base >= 1 && r->base <= 1e12 && r->factor >= 1 && r->factor <= 1e6 && r->low >= 0 &&
		  r->low < r->high && r->high <= 1e6 && r->original >= 0 && r->original <= 1 << 30;

	for (int64_t i = 0; i < half; i++)
		angles[i] = angle(r, i);
	for (int64_t n = 0; so && n < cosines->elements; n++) {
		int64_t position = n / r->features % r->positions;
		double by = (double)position * angles[n % half], near = 1e-4 + (double)position * 5e-7;

		so = fabs(cosines->reals[n] - cos(by)) <= near && fabs(sines->reals[n] - sin(by)) <= near;
	}
	free(angles);
	return so;
}

/* The angle that is seen. */
static double seen(const struct rotation *r, const struct array *cosines, const struct array *sines, int64_t i)
{
	return atan2(sines->reals[r->features + i], cosines->reals[r->features + i]);
}

/* One base, and perhaps one factor for all pairs. */
static bool find_even(struct rotation *r, const struct array *cosines, const struct array *sines)
{
	int64_t last = r->features / 2 - 1;
	double first = seen(r, cosines, sines, 0), smallest = seen(r, cosines, sines, last);

	if (!(first > 0 && smallest > 0))
		return false;
	r->low = 1;
	r->high = 4;
	r->factor = round_number(1 / first, 5e-6);
	r->base = last > 0 ? round_number(pow(smallest / first, -(double)r->features / (2.0 * (double)last)), 5e-6)
			   : 10000;
	return is_so(r, cosines, sines);
}

/*
 * Fast pairs as they are and slow ones slower, as Llama 3.1 has it: the base shows in two neighbours of either
 * kind, here pair i and the next, and the factor in the last.  What share of its angle a pair between the two
 * keeps is a line, which low, high and original describe; low is taken to be 1, as it always is.
 */
static bool find_uneven(struct rotation *r, const struct array *cosines, const struct array *sines, int64_t pair)
{
	int64_t last = r->features / 2 - 1;
	double before = seen(r, cosines, sines, pair), after = seen(r, cosines, sines, pair + 1), x[2], y[2], slope;
	int found = 0;

	if (!(before > 0 && after > 0 && after < before && seen(r, cosines, sines, last) > 0))
		return false;
	r->base = round_number(pow(after / before, -(double)r->features / 2), 3e-5);
	r->factor = pow(r->base, -2.0 * (double)last / (double)r->features) / seen(r, cosines, sines, last);
	r->factor = round_number(r->factor, 5e-5);
	for (int64_t i = 1; i < last && found < 2 && r->factor > 1; i++) {
		double plain = pow(r->base, -2.0 * (double)i / (double)r->features);

		x[found] = plain / (2 * M_PI);
		y[found] = (seen(r, cosines, sines, i) / plain - 1 / r->factor) / (1 - 1 / r->factor);
		found += y[found] > 1e-3 && y[found] < 1 - 1e-3;
	}
	if (found == 0)
		return false;
	r->low = 1;
	slope = found == 2 ? (y[1] - y[0]) / (x[1] - x[0]) : 0;
	r->high = found == 2 ? 1 + 1 / (slope * x[0] - y[0]) : 4;
	r->high = fabs(r->high - round(r->high)) < 0.01 ? round(r->high) : r->high;
	r->original = round((y[0] * (r->high - 1) + 1) / x[0]);
	return is_so(r, cosines, sines);
}

static void find_rotation(struct rotation *r, const struct array *cosines, const struct array *sines)
{
	int dims = cosines ? cosines->dims : 0;

	if (!cosines || !sines || dims < 2 || cosines->whole || sines->whole || dims != sines->dims ||
	    memcmp(cosines->size, sines->size, (size_t)dims * sizeof(*sines->size)) != 0)
		return;
	r->positions = cosines->size[dims - 2];
	r->features = cosines->size[dims - 1];
	if (r->positions >= 2 && r->features >= 2 && r->features % 2 == 0)
		r->known = find_even(r, cosines, sines) ||
			   (r->features >= 8 && (find_uneven(r, cosines, sines, 0) ||
						 find_uneven(r, cosines, sines, r->features / 2 - 2)));
}

static const struct rotation *rotation_of(struct graph *g, const struct value *cosines, const struct value *sines)
{
	struct value *of = graph_find(g, cosines->name);
	struct constants room = { .most = g->constants.most };
	struct rotation *made;

	if (of->rotation && of->rotation->sines == sines)
		return of->rotation;
	made = pd_arena_take(&g->constants.arena, 1, sizeof(*made));
	made->sines = sines;
	find_rotation(made, graph_compute(g, &room, cosines, NULL, NULL), graph_compute(g, &room, sines, NULL, NULL));
	constants_release(&room);
	return of->rotation = made;
}

/* Concat(-second half, first half) of the last axis: returns what is so rotated. */
static bool rotates(const struct graph *g, const struct value *value, const struct view *x)
{
	const struct pd_onnx_node *joined = pattern_made(g, value, "Concat"), *negative;
	const struct value *high, *low;
	struct view first, second;
	int64_t half;

	if (!joined || joined->inputs != 2 || x->axes < 2)
		return false;
	half = view_size(x, x->axes - 1) / 2;
	negative = pattern_made(g, graph_in(g, joined, 0), "Neg");
	high = negative ? graph_in(g, negative, 0) : NULL;
	low = graph_in(g, joined, 1);
	return half > 0 && high && low && high->view && low->view &&
	       view_part(&first, x, x->axes - 1, 0, half) && view_part(&second, x, x->axes - 1, half, 2 * half) &&
	       view_same(low->view, &first) && view_same(high->view, &second);
}

/* Of Mul(x, y) with x in either place: returns y. */
static const struct value *factor_beside(const struct graph *g, const struct pd_onnx_node *product, size_t i)
{
	return bare(g, graph_in(g, product, 1 - i));
}

static json_t *attributes_of(const struct rotation *r, int64_t width)
{
	json_t *attributes = json_pack("{s:f}", "base", r->base);

	if (width != r->features)
		pd_json_set(attributes, "head_dim", json_integer(r->features));
	if (r->factor != 1)
		pd_json_set(attributes, "factor", json_real(r->factor));
	if (r->original > 0)
		json_object_update_new(attributes, json_pack("{s:f, s:f, s:I}", "low_freq_factor", r->low,
							     "high_freq_factor", r->high, "original_positions",
							     (json_int_t)r->original));
	return attributes;
}

/* Shows heads behind one another, [T, H d], and adds the layer. */
static int rotate(struct graph *g, const struct pd_onnx_node *node, const struct view *x,
		  const struct rotation *r, struct pd_error *err)
{
	int time = x->axes - 2, layer, base;
	struct view rows = { .base = x->base, .offset = x->offset }, out;
	struct extent sample;
	int64_t width;

	if (!view_axis_of(&rows, x, 0) || !view_axis_of(&rows, x, time) || !view_axis(&rows))
		return graph_error(node, err, "has too many axes");
	for (int a = 1; a < x->axes; a++)
		for (int k = x->first[a]; a != time && k < x->first[a + 1]; k++)
			if (!view_factor(&rows, x->factor[k].size, x->factor[k].stride))
				return graph_error(node, err, "has too many axes");
	if (place(g, &rows, node, &base, &sample, err) < 0)
		return -1;
	width = view_size(&rows, 2);
	layer = layer_add_one(g, "rope", node, base, &sample, attributes_of(r, width));
	out = (struct view){ .base = layer };
	for (int a = 0; a < x->axes; a++) {
		int64_t size = view_size(x, a);

		view_axis(&out);
		view_factor(&out, size, a == 0 ? SAMPLES : a == time ? width : a == x->axes - 1 ? 1 : r->features);
	}
	return graph_set(g, node, &out);
}

int translate_rope(struct graph *g, const struct pd_onnx_node *node, struct pd_error *err)
{
	for (size_t n = 0; n < 8; n++) {
		const struct pd_onnx_node *plain = pattern_made(g, graph_in(g, node, n & 1), "Mul");
		const struct pd_onnx_node *turned = pattern_made(g, graph_in(g, node, !(n & 1)), "Mul");
		size_t i = n >> 1 & 1, k = n >> 2 & 1;
		const struct value *x = pattern_in(g, plain, i);
		const struct rotation *r;

		if (!turned || !x || !x->view || !rotates(g, graph_in(g, turned, k), x->view))
			continue;
		if (!factor_beside(g, plain, i) || !factor_beside(g, turned, k) || x->view->axes > 4 ||
		    x->view->axes < 3 || !view_counts(x->view, 0))
			return NOT_THIS;
		r = rotation_of(g, factor_beside(g, plain, i), factor_beside(g, turned, k));
		if (!r->known)
			return graph_error(node, err, "rotates positions by angles that are no powers of one base, as they "
					   "are or scaled as Llama 3.1 does; or there is one position alone");
		if (r->positions != view_size(x->view, x->view->axes - 2) ||
		    r->features != view_size(x->view, x->view->axes - 1))
			return graph_error(node, err, "rotates a part of each head: expected all of it");
		return rotate(g, node, x->view, r, err);
	}
	return NOT_THIS;
}
