/* SPDX-License-Identifier: Apache-2.0 */
#include "run/device/cpu/cpu.h"

#include <string.h>

/*
 * Updates are elementwise, so the division of pieces among threads changes no bit.  In 16 bits a
 * piece is read again to be rounded; it is still in the first-level cache.
 */
#define PIECE 2048

PD_VECTOR static void correct(float *restrict corrected, float *restrict delta, const float *old,
			      const float *next, size_t count, float keep, float rest, float delay)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		delta[i] = keep * delta[i] + rest * (next[i] - old[i]);
		corrected[i] = next[i] - delay * delta[i];
	}
}

PD_VECTOR static void multiply(float *restrict scaled, const float *restrict gradients,
			       size_t count, double factor)
{
	for (size_t i = 0; i < count; i++)
		scaled[i] = (float)(factor * (double)gradients[i]);
}

/* Writes results computed in f32 to the arenas of 16 bits. */
static void publish(const struct pd_update *u, enum pd_dtype dtype, const float *corrected,
		    size_t at, size_t floats)
{
	pd_cpu_narrow(dtype, (uint16_t *)u->next + at, (const float *)u->master + at, floats);
	if (u->delta)
		pd_cpu_narrow(dtype, (uint16_t *)u->corrected + at, corrected, floats);
}

/* The factor is a double: 1 over a large loss scale is below the normal floats. */
static void piece(const struct pd_update *update, const struct pd_factors *factors, enum pd_dtype dtype,
		  double factor, size_t at, size_t floats)
{
	const float *gradients = (const float *)update->gradients + at;
	const float *weights = update->master ? update->master : update->weights;
	float old[PIECE], scaled[PIECE], corrected[PIECE];
	struct pd_update u = *update;

	if (factor != 1)
		multiply(scaled, gradients, floats, factor);
	if (u.delta)
		memcpy(old, weights + at, floats * sizeof(*old));
	if (u.master)
		u.weights = u.next = u.master;
	pd_cpu_move(&u, factors, factor != 1 ? scaled : gradients, at, floats);
	if (u.delta)
		correct(u.master ? corrected : (float *)u.corrected + at, (float *)u.delta + at,
			old, (const float *)u.next + at, floats, (float)u.keep,
			(float)(1 - u.keep), (float)u.delay);
	if (u.master)
		publish(update, dtype, corrected, at, floats);
}

/* An update is skipped: the next version equals this one. */
static void keep(const struct pd_update *u, enum pd_dtype dtype, size_t begin, size_t end)
{
	if (u->master && end > begin)
		pd_cpu_narrow(dtype, (uint16_t *)u->next + begin, (const float *)u->master + begin,
			      end - begin);
	else if (u->next != u->weights && end > begin)
		memcpy((float *)u->next + begin, (const float *)u->weights + begin,
		       (end - begin) * sizeof(float));
}

static void apply_all(const struct pd_update *u, enum pd_dtype dtype, double factor, size_t begin,
		      size_t end)
{
	const struct pd_factors factors = pd_factors_of(u);

#pragma omp parallel for schedule(static)
	for (size_t at = begin; at < end; at += PIECE)
		piece(u, &factors, dtype, factor, at, end - at < PIECE ? end - at : PIECE);
}

/* Updates the chunks that have a place, if there are chunks. */
static void apply(const struct pd_update *u, enum pd_dtype dtype, double factor, size_t begin,
		  size_t end)
{
	size_t chunk = (size_t)u->chunk, to;

	if (!u->places) {
		apply_all(u, dtype, factor, begin, end);
		return;
	}
	for (size_t at = begin; at < end; at = to) {
		to = (at / chunk + 1) * chunk;
		to = to < end ? to : end;
		if (u->places[at / chunk] >= 0)
			apply_all(u, dtype, factor, at, to);
		else
			keep(u, dtype, at, to);
	}
}

/* Updates a tensor as it needs; its own rate is part of the rate. */
static void apply_to(struct pd_update u, enum pd_dtype dtype, double factor,
		     const struct pd_compiled_tensor_range *tensor)
{
	const float *weights = u.master ? u.master : u.weights;
	size_t count = tensor->end - tensor->begin;

	if (u.spares_vectors && tensor->vector)
		u.weight_decay = 0;
	if (pd_optimizer_is(u.kind, PD_OPTIMIZER_NORMS) && !tensor->vector)
		u.rate *= pd_lars_local(u.hyper.trust, u.weight_decay,
					pd_cpu_sum_squares(weights + tensor->begin, count),
					pd_cpu_sum_squares((const float *)u.gradients +
							   tensor->begin, count), factor);
	apply(&u, dtype, factor, tensor->begin, tensor->end);
}

void pd_cpu_update(const struct pd_compiled *net, const struct pd_update *update, int from,
		   int count)
{
	struct pd_update u = *update;
	struct pd_outcome outcome = { .skip = false };
	struct pd_scale next;
	struct pd_compiled_tensor_range tensor;
	size_t begin, end;
	double factor = 1;
	int l = from, number = 0;

	pd_compiled_range(net, from, count, &begin, &end);
	if (u.norm.vector) {
		u.count -= u.norm.before->skipped;
		factor = pd_global_norm_factor(&u.norm, &next, &outcome);
		*u.norm.next = next;
		if (u.norm.outcome)
			*u.norm.outcome = outcome;
	}
	if (outcome.skip)
		keep(&u, net->dtype, begin, end);
	else if (pd_compiled_by_tensor(&u))
		while (pd_compiled_next_tensor(net, from + count, &l, &number, &tensor))
			apply_to(u, net->dtype, factor, &tensor);
	else
		apply(&u, net->dtype, factor, begin, end);
}
