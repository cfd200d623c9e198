/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dropout keeps an element when its random number is at least p, and scales it by 1 / (1 - p).  Of
 * others it makes 0, or a NaN of what is not finite, as a product with 0 does.  The
 * random number follows from the sample's global number and the element's place in channels,
 * height, width order (base/rng.h); the slot keeps one bit per element.  If the places along axes
 * share a mask, the slot keeps that of the first place, and elements are numbered without these axes.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "run/device/cpu/cpu.h"

#include <string.h>

#define PIECE 2048                      /* a multiple of 8 */

struct dropout {
	struct pd_reorder in, diff_in;
};

void pd_cpu_drop_weights(const struct pd_compiled_layer *l, const struct pd_pass *pass, float *values,
			 int64_t first, int64_t count)
{
	uint64_t stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index);
	float p = (float)l->layer->weight_dropout, scale = (float)(1 / (1 - l->layer->weight_dropout));

	for (int64_t i = 0; i < count; i += 4) {
		struct pd_random4 r = pd_random(l->net->seed, stream, (uint32_t)pass->first_sample,
						(uint32_t)((first + i) / 4));

		for (int k = 0; k < 4 && i + k < count; k++)
			values[i + k] = pd_unit(r.v[k]) >= p ? values[i + k] * scale
							     : values[i + k] - values[i + k];
	}
}

/* Elements of one sample that draw a number each. */
static int64_t drawn(const struct pd_compiled_layer *l)
{
	return pd_shape_elements(&l->layer->mask);
}

static size_t row_bytes(const struct pd_compiled_layer *l)
{
	return ((size_t)drawn(l) + 7) / 8;
}

static int prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct dropout *d;

	l->out = pd_cpu_plain(l->net, l->in_shape[0]);
	if (!l->inside)
		return 0;
	l->own = d = pd_zalloc(sizeof(*d));
	l->extra_bytes = row_bytes(l) * (size_t)l->net->batch;
	if (pd_reorder_prepare(l, &d->in, l->in[0], l->out, false, &l->forward_bytes, err) < 0)
		return -1;
	return pd_reorder_prepare(l, &d->diff_in, l->out, l->in[0], true, &l->backward_bytes, err);
}

static void draw(const struct pd_compiled_layer *l, int64_t sample, unsigned char *keep)
{
	int64_t elements = drawn(l);
	uint64_t stream = PD_RNG_DROPOUT + (uint64_t)pd_model_number(l->net->model, l->index);
	float p = (float)l->layer->p;

	memset(keep, 0, row_bytes(l));
	for (int64_t i = 0; i < elements; i += 4) {
		struct pd_random4 r = pd_random(l->net->seed, stream, (uint32_t)sample,
						(uint32_t)(i / 4));

		for (int k = 0; k < 4 && i + k < elements; k++)
			if (pd_unit(r.v[k]) >= p)
				keep[(i + k) / 8] |= (unsigned char)(1 << ((i + k) % 8));
	}
}

PD_VECTOR static void mask(float *dst, const float *src, const unsigned char *keep,
			   int64_t elements, float scale)
{
	for (int64_t i = 0; i < elements; i++)
		dst[i] = keep[i / 8] >> (i % 8) & 1 ? src[i] * scale : src[i] - src[i];
}

/* Converts 16 bits piece by piece, since a sample may be large. */
static void mask_narrow(enum pd_dtype dtype, uint16_t *dst, const uint16_t *src,
			const unsigned char *keep, int64_t elements, float scale)
{
	float wide[PIECE];

	for (int64_t at = 0; at < elements; at += PIECE) {
		int64_t n = elements - at < PIECE ? elements - at : PIECE;

		pd_cpu_widen(dtype, wide, src + at, (size_t)n);
		mask(wide, wide, keep + at / 8, n, scale);
		pd_cpu_narrow(dtype, dst + at, wide, (size_t)n);
	}
}

/* Finds the bits of n elements of a sample from element `at` on, where places along axes share one. */
static void spread(unsigned char *bits, const unsigned char *keep, const struct pd_axis *a, int64_t at,
		   int64_t n)
{
	int64_t each = a->extent * a->inner, rest = at % each, place = at % a->inner;
	int64_t from = at / each * a->inner;

	memset(bits, 0, PIECE / 8);
	for (int64_t i = 0; i < n; i++) {
		int64_t bit = from + place;

		bits[i / 8] |= (unsigned char)((keep[bit / 8] >> (bit % 8) & 1) << (i % 8));
		if (++place == a->inner)
			place = 0;
		if (++rest == each) {
			rest = 0;
			from += a->inner;
		}
	}
}

/* Applies the mask to a sample in which all places along axes share it. */
static void apply_shared(const struct pd_compiled_layer *l, void *dst, const void *src,
			 const unsigned char *keep, float scale)
{
	const struct pd_axis a = pd_shape_repeats(&l->layer->mask, l->in_shape[0]);
	int64_t elements = pd_shape_elements(l->in_shape[0]);
	unsigned char bits[PIECE / 8];

	for (int64_t at = 0; at < elements; at += PIECE) {
		int64_t n = elements - at < PIECE ? elements - at : PIECE;

		spread(bits, keep, &a, at, n);
		if (l->net->dtype == PD_F32)
			mask((float *)dst + at, (const float *)src + at, bits, n, scale);
		else
			mask_narrow(l->net->dtype, (uint16_t *)dst + at, (const uint16_t *)src + at, bits,
				    n, scale);
	}
}

/* Applies the mask to all samples; draws it first if `drawing`. */
static void apply(struct pd_compiled_layer *l, void *dst, const void *src,
		  const struct pd_pass *pass, bool drawing)
{
	int64_t elements = pd_shape_elements(l->in_shape[0]);
	size_t bytes = pd_dtype_bytes(l->net->dtype) * (size_t)elements, row = row_bytes(l);
	float scale = (float)(1 / (1 - l->layer->p));

#pragma omp parallel for schedule(static)
	for (int64_t n = 0; n < l->net->batch; n++) {
		unsigned char *keep = (unsigned char *)l->extra + (size_t)n * row;
		const void *from = (const char *)src + (size_t)n * bytes;
		void *to = (char *)dst + (size_t)n * bytes;

		if (drawing)
			draw(l, pass->first_sample + n, keep);
		if (drawn(l) < elements)
			apply_shared(l, to, from, keep, scale);
		else if (l->net->dtype == PD_F32)
			mask(to, from, keep, elements, scale);
		else
			mask_narrow(l->net->dtype, to, from, keep, elements, scale);
	}
}

static int forward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct dropout *d = l->own;
	const void *src = pd_reorder_in(l, &d->in, l->src[0], err);

	if (!src)
		return -1;
	if (pass->evaluate)
		memcpy(l->dst, src, pd_layout_bytes(l->out));
	else
		apply(l, l->dst, src, pass, true);
	return 0;
}

static int backward(struct pd_compiled_layer *l, const struct pd_pass *pass, struct pd_error *err)
{
	struct dropout *d = l->own;

	if (!l->diff_src[0])
		return 0;
	apply(l, pd_reorder_buffer(l, &d->diff_in, l->diff_src[0]), l->diff_dst, pass, false);
	return pd_reorder_out(l, &d->diff_in, l->diff_src[0], err);
}

const struct pd_compiled_kind pd_cpu_dropout = {
	.prepare = prepare,
	.forward = forward,
	.backward = backward,
};
