/* SPDX-License-Identifier: Apache-2.0 */
/*
 * upsample: an image in another size, in the layout that it has, by loops over f32.  Each output, and in
 * backward each gradient of an input, is made by one thread, in one order.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

#include <string.h>

/* What outputs along an axis are made of, and which outputs an input has a part in. */
struct axis {
	struct pd_resize how;
	struct pd_blend *blends;        /* by output */
	int64_t *first;                 /* by input, and one more */
};

struct upsample {
	struct axis axes[2];
	struct pd_reorder src, dst, diff_dst, diff_src;
	int64_t lanes, blocks;          /* channels lie in blocks, so many side by side */
};

static size_t table_bytes(const struct pd_resize *r)
{
	return sizeof(struct pd_blend) * (size_t)r->out + sizeof(int64_t) * (size_t)(r->in + 1);
}

/* Fills an axis, whose tables begin at `at`. */
static void fill(struct axis *a, const struct pd_resize *how, char *at)
{
	a->how = *how;
	a->blends = (struct pd_blend *)at;
	a->first = (int64_t *)(a->blends + how->out);
	for (int64_t o = 0; o < a->how.out; o++)
		a->blends[o] = pd_resize_blend(&a->how, o);
	for (int64_t i = 0; i <= a->how.in; i++)
		a->first[i] = pd_resize_first(&a->how, i);
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	const struct pd_shape *out = &l->layer->output;
	const int64_t size[] = { l->net->batch, out->size[0], out->size[1], out->size[2] };
	struct pd_onednn *dnn = l->net->engine;
	const struct pd_layout *from = pd_layout_full(dnn, l->in[0]), *to;
	const struct pd_resize how[2] = { pd_compiled_resize(l, 0), pd_compiled_resize(l, 1) };
	struct upsample *u;

	l->out = pd_layout_like(dnn, l->in[0], size);
	if (!l->out)
		return pd_error_failed(err, "layer \"%s\": its input has a layout that upsample does not know",
				       l->layer->name);
	if (!l->inside)
		return 0;
	u = l->own = pd_zalloc(sizeof(*u) + table_bytes(&how[0]) + table_bytes(&how[1]));
	fill(&u->axes[0], &how[0], (char *)(u + 1));
	fill(&u->axes[1], &how[1], (char *)(u + 1) + table_bytes(&how[0]));
	u->lanes = pd_layout_lanes(from);
	u->blocks = (out->size[0] + u->lanes - 1) / u->lanes;
	to = pd_layout_full(dnn, l->out);
	return pd_reorder_prepare(l, &u->src, l->in[0], from, false, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &u->dst, to, l->out, true, &l->forward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &u->diff_dst, l->out, to, false, &l->backward_bytes, err) < 0 ||
	       pd_reorder_prepare(l, &u->diff_src, from, l->in[0], true, &l->backward_bytes, err) < 0
		? -1 : 0;
}

/* Copies the nearest places of a row. */
static void copy_row(const struct upsample *u, float *y, const float *x)
{
	for (int64_t o = 0; o < u->axes[1].how.out; o++)
		memcpy(y + o * u->lanes, x + u->axes[1].blends[o].one * u->lanes,
		       sizeof(*y) * (size_t)u->lanes);
}

/* y = top (left a + right b) + bottom (left c + right d); parts add up to 1 in pairs */
PD_VECTOR static void blend_row(float *restrict y, const float *restrict one, const float *restrict other,
				float bottom, const struct pd_blend *blends, int64_t count, int64_t lanes)
{
	const float top = 1 - bottom;

	for (int64_t o = 0; o < count; o++) {
		const float *a = one + blends[o].one * lanes, *b = one + blends[o].other * lanes;
		const float *c = other + blends[o].one * lanes, *d = other + blends[o].other * lanes;
		const float right = blends[o].share, left = 1 - right;

		for (int64_t k = 0; k < lanes; k++)
			y[o * lanes + k] = top * (left * a[k] + right * b[k]) +
					   bottom * (left * c[k] + right * d[k]);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct upsample *u = l->own;
	const struct axis *rows = &u->axes[0], *columns = &u->axes[1];
	const int64_t in = columns->how.in * u->lanes, out = columns->how.out * u->lanes;
	const float *x = pd_reorder_in(l, &u->src, l->src[0], err);
	float *y = pd_reorder_buffer(l, &u->dst, l->dst);

	if (!x)
		return -1;
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < l->net->batch * u->blocks * rows->how.out; r++) {
		const struct pd_blend *b = &rows->blends[r % rows->how.out];
		const float *plane = x + r / rows->how.out * rows->how.in * in;

		if (rows->how.blends)
			blend_row(y + r * out, plane + b->one * in, plane + b->other * in, b->share,
				  columns->blends, columns->how.out, u->lanes);
		else
			copy_row(u, y + r * out, plane + b->one * in);
	}
	return pd_reorder_out(l, &u->dst, l->dst, err);
}

/* Adds to a row of gradients their part of one of the output's, which counts so much. */
PD_VECTOR static void add_row(float *restrict dx, const float *restrict dy, float part, const struct axis *a,
			      int64_t lanes)
{
	for (int64_t i = 0; i < a->how.in; i++)
		for (int64_t o = a->first[i]; o < a->how.out && a->blends[o].one <= i; o++) {
			const struct pd_blend *b = &a->blends[o];
			const float share = part * ((b->one == i ? 1 - b->share : 0) +
						    (b->other == i ? b->share : 0));

			for (int64_t k = 0; k < lanes; k++)
				dx[i * lanes + k] += share * dy[o * lanes + k];
		}
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	const struct upsample *u = l->own;
	const struct axis *rows = &u->axes[0], *columns = &u->axes[1];
	const int64_t in = columns->how.in * u->lanes, out = columns->how.out * u->lanes;
	const float *dy;
	float *dx;

	if (!l->diff_src[0])
		return 0;
	dx = pd_reorder_buffer(l, &u->diff_src, l->diff_src[0]);
	dy = pd_reorder_in(l, &u->diff_dst, l->diff_dst, err);
	if (!dy)
		return -1;
#pragma omp parallel for schedule(static)
	for (int64_t r = 0; r < l->net->batch * u->blocks * rows->how.in; r++) {
		int64_t i = r % rows->how.in;
		const float *plane = dy + r / rows->how.in * rows->how.out * out;

		memset(dx + r * in, 0, sizeof(*dx) * (size_t)in);
		for (int64_t o = rows->first[i]; o < rows->how.out && rows->blends[o].one <= i; o++)
			add_row(dx + r * in, plane + o * out, pd_resize_part(&rows->how, o, i), columns,
				u->lanes);
	}
	return pd_reorder_out(l, &u->diff_src, l->diff_src[0], err);
}

const struct pd_compiled_kind pd_cpu_upsample = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
