/* SPDX-License-Identifier: Apache-2.0 */
/* Devices' steps of sparse sums (engine/device/chunks.h) against plain C; the residuals they keep lose nothing. */
#include "chain.h"
#include "engine/device/submit.h"
#include "tap.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 6

/* The arrays of a stage with chunks, on the device or in host memory. */
struct side {
	float *gradients, *residual, *packed, *norms;
	int32_t *places;
};

struct bench {
	const struct pd_device_ops *ops;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_gate gate;
	size_t floats, chunk, chunks;
	struct side there, here, back;  /* back: a copy of `there` in host memory */
};

static void move(struct bench *b, void *there, void *here, size_t bytes, bool out)
{
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_copy(b->stream, out ? here : there, out ? there : here, bytes,
			    out ? PD_COPY_TO_HOST : PD_COPY_TO_DEVICE, &ev);
	pd_event_wait(&ev, &b->gate);
}

/* Allocates all arrays one behind another, on the device (there) or in host memory. */
static void take(struct bench *b, struct side *side, bool there)
{
	size_t room = b->chunks * b->chunk;
	float *all = there ? b->ops->memory.alloc(b->device, (3 * room + 2 * b->chunks) * sizeof(float), NULL)
			   : pd_calloc(3 * room + 2 * b->chunks, sizeof(float));

	*side = (struct side){ all, all + room, all + 2 * room, all + 3 * room,
			       (int32_t *)(all + 3 * room + b->chunks) };
}

static size_t bytes_of(const struct bench *b)
{
	return (3 * b->chunks * b->chunk + 2 * b->chunks) * sizeof(float);
}

static struct pd_chunks work(const struct bench *b, const struct side *s, enum pd_chunk_step step,
			     size_t sent, float keep)
{
	return (struct pd_chunks){
		.step = step, .gradients = s->gradients, .residual = s->residual,
		.packed = s->packed, .norms = s->norms, .places = s->places,
		.floats = (int64_t)b->floats, .chunk = (int64_t)b->chunk, .first = 1,
		.count = (int64_t)b->chunks - 1, .sent = (int64_t)sent, .keep = keep, .members = 3,
	};
}

static bool larger(float x, float y, int64_t a, int64_t b)
{
	if (isnan(x) || isnan(y))
		return isnan(x) && isnan(y) ? a < b : isnan(x);
	return x != y ? x > y : a < b;
}

static void choose(const struct pd_chunks *w)
{
	int32_t place = 0;

	for (int64_t c = w->first; c < w->first + w->count; c++) {
		int64_t before = 0;

		for (int64_t o = w->first; o < w->first + w->count; o++)
			before += larger(w->norms[o], w->norms[c], o, c);
		w->places[c] = before < w->sent ? place++ : -1;
	}
}

/* Does PD_CHUNKS_PACK or PD_CHUNKS_UNPACK in plain C. */
__attribute__((optimize("fp-contract=off")))
static void pass(const struct pd_chunks *w)
{
	for (int64_t c = w->first; c < w->first + w->count; c++) {
		double norm = 0;

		if (w->step == PD_CHUNKS_UNPACK && w->places[c] < 0)
			continue;
		for (int64_t k = 0; k < w->chunk && c * w->chunk + k < w->floats; k++) {
			float *g = &w->gradients[c * w->chunk + k];
			float *h = &w->residual[c * w->chunk + k];

			if (w->step == PD_CHUNKS_UNPACK) {
				*g = w->packed[w->places[c] * w->chunk + k];
			} else {
				*g += *h;
				*h = w->places[c] < 0 ? w->keep * *g : 0;
				if (w->places[c] >= 0)
					w->packed[w->places[c] * w->chunk + k] = *g;
			}
			norm += fabs((double)*g);
		}
		if (w->step == PD_CHUNKS_UNPACK)
			w->norms[c] = (float)(norm / w->members);
		else if (w->places[c] < 0)
			w->norms[c] = (float)norm;
	}
}

/* Does a step on both sides; returns whether all arrays are the same then, except, after PACK, the norms
 * of packed chunks, which UNPACK computes. */
static bool step(struct bench *b, enum pd_chunk_step kind, size_t sent, float keep)
{
	struct pd_chunks there = work(b, &b->there, kind, sent, keep);
	struct pd_chunks here = work(b, &b->here, kind, sent, keep);
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_chunks(b->stream, &there, &ev);
	pd_event_wait(&ev, &b->gate);
	kind == PD_CHUNKS_CHOOSE ? choose(&here) : pass(&here);
	move(b, b->there.gradients, b->back.gradients, bytes_of(b), true);
	for (size_t c = 0; c < b->chunks && kind == PD_CHUNKS_PACK; c++)
		if (b->here.places[c] >= 0)
			b->back.norms[c] = b->here.norms[c];
	return memcmp(b->back.gradients, b->here.gradients, bytes_of(b)) == 0;
}

/*
 * Fills the gradients of both sides with small whole numbers, so that sums are exact and some chunks
 * have equal norms; adds their sum from chunk 1 on to *made.
 */
static void fill(struct bench *b, int round, double *made)
{
	for (size_t i = 0; i < b->floats; i++) {
		size_t c = i / b->chunk;
		int n = (int)((i * 7919 + (size_t)round * 104729) % 17) - 8;

		b->here.gradients[i] = (float)(c % 3 == 1 ? n : 2 * n);
		if (i >= b->chunk)
			*made += b->here.gradients[i];
	}
	move(b, b->there.gradients, b->here.gradients, b->floats * sizeof(float), false);
}

/* Returns the sum of all elements that are sent in this round. */
static double packed_sum(const struct bench *b, size_t sent)
{
	double sum = 0;

	for (size_t c = 1; c < b->chunks; c++)
		for (size_t k = 0; k < b->chunk && c * b->chunk + k < b->floats; k++)
			if (b->back.places[c] >= 0)
				sum += b->back.packed[(size_t)b->back.places[c] * b->chunk + k];
	return sent > 0 ? sum : 0;
}

static void test_rounds(struct bench *b, size_t sent, float keep)
{
	double made = 0, came = 0;
	bool same = true;

	memset(b->here.gradients, 0, bytes_of(b));
	move(b, b->there.gradients, b->here.gradients, bytes_of(b), false);
	for (int round = 0; round < ROUNDS; round++) {
		fill(b, round, &made);
		same &= step(b, PD_CHUNKS_CHOOSE, sent, keep);
		same &= step(b, PD_CHUNKS_PACK, sent, keep);
		came += packed_sum(b, sent);
		/* Both sides get the same norms of packed chunks, which only UNPACK computes. */
		memcpy(b->back.norms, b->here.norms, b->chunks * sizeof(float));
		move(b, b->there.norms, b->back.norms, b->chunks * sizeof(float), false);
		same &= step(b, PD_CHUNKS_UNPACK, sent, keep);
	}
	for (size_t i = b->chunk; i < b->floats; i++)
		came += b->back.residual[i];
	ok(same, "%s: %zu of %zu chunks of %zu, %g kept: as in plain C", b->ops->name, sent,
	   b->chunks - 1, b->chunk, (double)keep);
	if (keep == 1)
		ok(came == made, "%s: nothing is lost, %g of %g", b->ops->name, came, made);
}

static void test_nan(struct bench *b)
{
	for (size_t c = 0; c < b->chunks; c++)
		b->here.norms[c] = c % 4 == 2 ? NAN : (float)(c % 5);
	move(b, b->there.gradients, b->here.gradients, bytes_of(b), false);
	ok(step(b, PD_CHUNKS_CHOOSE, b->chunks / 3, 1), "%s: a norm that is no number is the largest",
	   b->ops->name);
}

static void test_size(struct bench *b, size_t floats, size_t chunk)
{
	b->floats = floats;
	b->chunk = chunk;
	b->chunks = (floats + chunk - 1) / chunk;
	take(b, &b->there, true);
	take(b, &b->here, false);
	take(b, &b->back, false);
	test_rounds(b, b->chunks - 1, 0.9f);
	test_rounds(b, (b->chunks + 5) / 6, 0.9f);
	test_rounds(b, (b->chunks + 5) / 6, 1);
	test_nan(b);
	b->ops->memory.free(b->device, b->there.gradients);
	free(b->here.gradients);
	free(b->back.gradients);
}

static void test_device(const struct pd_device_ops *ops)
{
	struct bench b = { .ops = ops };
	struct pd_device_config config = { .threads = 2, .gate = &b.gate };
	struct pd_error err;

	pd_gate_init(&b.gate, &err);
	b.device = ops->open(&config, &err);
	b.stream = ops->stream.open(b.device, &err);
	test_size(&b, 1000, 77);
	test_size(&b, 129, 64);
	test_size(&b, 70000, 1000);
	test_size(&b, 600, 1);
	ops->stream.close(b.stream);
	ops->close(b.device);
	pd_gate_release(&b.gate);
}

int main(void)
{
	for (int i = 0; pd_devices[i]; i++)
		if (chain_usable(pd_devices[i]))
			test_device(pd_devices[i]);
	return done_testing();
}
