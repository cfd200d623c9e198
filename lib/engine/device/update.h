/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An update of parameters: what a device is told, and what it does to each element.  This is plain C, so that
 * every device compiles the same formulas; all operations are rounded by themselves.
 */
#pragma once

#include "base/inline.h"
#include "engine/device/global_norm.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum pd_optimizer_kind {
#define OPTIMIZER(symbol, ...) PD_##symbol,
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	PD_OPTIMIZER_KINDS
};

enum pd_optimizer_fact {
	PD_OPTIMIZER_SPARSE = 1,        /* sparse sums know how to correct it for what stays behind */
	PD_OPTIMIZER_NORMS = 2,         /* each tensor's rate follows from its norms */
	PD_OPTIMIZER_DECOUPLED = 4,     /* weight decay shrinks the weights, and is no part of the gradient */
};

#define PD_BETA_MOST 0.999999           /* with 1 nothing would be learned */

struct pd_hyper {
#define HYPER(member, ...) double member;
#include "engine/device/hyper.def"
#undef HYPER
};

struct pd_optimizer_row {
	int moments;
	unsigned facts;
	struct pd_hyper defaults;       /* of hyperparameters that it reads; of others 0 */
};

extern const char *const pd_optimizer_kind_name[PD_OPTIMIZER_KINDS + 1];        /* NULL-terminated */
extern const struct pd_optimizer_row pd_optimizer_rows[PD_OPTIMIZER_KINDS];

/* Returns the number of moments that a parameter has. */
int pd_optimizer_moment_count(enum pd_optimizer_kind kind, double momentum);

/* Tells whether a fact is true of a kind, on every device. */
PD_INLINE bool pd_optimizer_is(enum pd_optimizer_kind kind, enum pd_optimizer_fact fact)
{
	switch (kind) {
#define OPTIMIZER(symbol, name, moments, facts, ...) case PD_##symbol: return ((facts) & fact) != 0;
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	default:
		return false;
	}
}

/*
 * One pass over each element, from `weights` to `next`, which may be the same.  With g, the gradient, w the
 * weight, and v and s the moments, w' = pd_move_KIND() below.
 *
 * Where PD_OPTIMIZER_NORMS is true, each parameter tensor has a rate of its own (pd_lars_local), but for one
 * of one axis.  Where spares_vectors is set, weight_decay is 0 for tensors of one axis, whatever the kind.
 *
 * Where all ranks agree on it (norm.vector is not NULL; the whole stage in one call), the gradient
 * is that in the arena times pd_global_norm_factor, in double and rounded once, count is less by the
 * updates skipped before, and an update that is skipped makes w' = w and leaves the moments alone.
 *
 * Where delta is not NULL, after any of them, each operation rounded by itself:
 *     delta = keep * delta + (1 - keep) * (w' - w);  corrected = w' - delay * delta
 *
 * In a net of 16 bits w and w' are those of the master, which is moved in place; next is w'
 * rounded (also where the update is skipped), corrected is rounded, and weights is not read.
 */
struct pd_update {
	enum pd_optimizer_kind kind;
	/*
	 * Not NULL, for PD_OPTIMIZER_SPARSE without norm and delta: the places of chunks of so many elements of
	 * the arena in a sparse sum (struct pd_chunks).  Those without one keep weights and moments.
	 */
	const int32_t *places;
	int64_t chunk;
	const void *weights;
	void *next, *velocity, *second;         /* the moments, or NULL */
	void *master;                           /* in a net of 16 bits; else NULL */
	const void *gradients;
	double rate, weight_decay;
	struct pd_hyper hyper;
	bool spares_vectors;
	int64_t count;                          /* the number of this update, from 1 */
	struct pd_global_norm norm;
	void *delta, *corrected;
	double keep, delay;
};

/* What all elements have in common, computed once, in double. */
struct pd_factors {
	float rate, momentum;
	float decay;                    /* this times the weight is added to the gradient */
	float shrink;                   /* the weight is multiplied by this */
	float beta1, rest1, beta2, rest2;       /* rest: 1 - beta */
	float root;                     /* sqrt(1 - beta2^count) */
	float step;                     /* rate / (1 - beta1^count) */
	float eps;
};

PD_INLINE struct pd_factors pd_factors_of(const struct pd_update *u)
{
	bool apart = pd_optimizer_is(u->kind, PD_OPTIMIZER_DECOUPLED);
	struct pd_factors f;

	f.rate = (float)u->rate;
	f.momentum = (float)u->hyper.momentum;
	f.decay = apart ? 0 : (float)u->weight_decay;
	f.shrink = apart ? (float)(1 - u->rate * u->weight_decay) : 1;
	f.beta1 = (float)u->hyper.beta1;
	f.rest1 = (float)(1 - u->hyper.beta1);
	f.beta2 = (float)u->hyper.beta2;
	f.rest2 = (float)(1 - u->hyper.beta2);
	f.root = (float)sqrt(1 - pow(u->hyper.beta2, (double)u->count));
	f.step = (float)(u->rate / (1 - pow(u->hyper.beta1, (double)u->count)));
	f.eps = (float)u->hyper.eps;
	return f;
}

/*
 * Returns the factor of a tensor's rate by LARS (arXiv 1708.03888, algorithm 1): trust * |w| / (|g| + decay *
 * |w|), or 1 where |w| or the divisor is 0.  Given are the sums of squares of the weights, and of the gradient
 * as it is in the arena, which the update multiplies by `factor`.
 */
PD_INLINE double pd_lars_local(double trust, double decay, double weights, double gradient, double factor)
{
	double w = sqrt(weights), divisor = sqrt(gradient) * factor + decay * w;

	return w > 0 && divisor > 0 ? trust * w / divisor : 1;
}

/* ---- element functions: each returns the new weight, and moves the moments *v and *s ---- */

/* Without moments all that have momentum do this. */
PD_INLINE float pd_move_plain(float w, float g, const struct pd_factors *f)
{
	return w - f->rate * (g + f->decay * w);
}

PD_INLINE float pd_move_sgd(float w, float g, float *v, const struct pd_factors *f)
{
	*v = f->momentum * *v + (g + f->decay * w);
	return w - f->rate * *v;
}

/* Nesterov's momentum in PyTorch's form: the move looks one momentum ahead. */
PD_INLINE float pd_move_nesterov(float w, float g, float *v, const struct pd_factors *f)
{
	g = g + f->decay * w;
	*v = f->momentum * *v + g;
	return w - f->rate * (g + f->momentum * *v);
}

/* LARS: the velocity is of moves, not of gradients; the tensor's own rate is in f->rate. */
PD_INLINE float pd_move_lars(float w, float g, float *v, const struct pd_factors *f)
{
	*v = f->momentum * *v + f->rate * (g + f->decay * w);
	return w - *v;
}

/*
 * Adam (Kingma and Ba, ICLR 2015, algorithm 1) in PyTorch's form: epsilon is added after the second moment's
 * bias correction.
 */
PD_INLINE float pd_move_adam(float w, float g, float *v, float *s, const struct pd_factors *f)
{
	g = g + f->decay * w;
	*v = f->beta1 * *v + f->rest1 * g;
	*s = f->beta2 * *s + f->rest2 * (g * g);
	return f->shrink * w - f->step * (*v / (sqrtf(*s) / f->root + f->eps));
}

/* AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2). */
PD_INLINE float pd_move_adamw(float w, float g, float *v, float *s, const struct pd_factors *f)
{
	return pd_move_adam(w, g, v, s, f);
}

/* Lion (arXiv 2302.06675, algorithm 2): all elements move alike, up or down; a NaN stays one. */
PD_INLINE float pd_move_lion(float w, float g, float *v, const struct pd_factors *f)
{
	float way = f->beta1 * *v + f->rest1 * g;

	*v = f->beta2 * *v + f->rest2 * g;
	way = way > 0 ? 1 : way < 0 ? -1 : way;
	return f->shrink * w - f->rate * way;
}
