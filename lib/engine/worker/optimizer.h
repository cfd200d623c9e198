/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run updates its parameters by an optimizer, with a learning rate that may change.
 *
 * Whatever changes from one update to the next is a function of `done`, the number of minibatches
 * whose gradients are in the version that the update writes.  Nothing is counted along the way, so
 * every stage, every replica and every resumed run agree.
 */
#pragma once

#include "engine/device/device.h"
#include "schedule/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum pd_lr_schedule { PD_LR_CONSTANT, PD_LR_STEP, PD_LR_POLYNOMIAL, PD_LR_COSINE };

/* NULL-terminated, by enum pd_lr_schedule. */
extern const char *const pd_lr_schedule_name[];

/* The defaults of a dynamic loss scale, which are PyTorch's. */
#define PD_FIRST_LOSS_SCALE 65536
#define PD_LOSS_SCALE_INTERVAL 2000

struct pd_optimizer {
	enum pd_optimizer_kind kind;
	double rate;
	struct pd_hyper hyper;
	double weight_decay;
	bool spares_vectors;            /* biases and normalisation do not decay */
	double clip_norm;               /* limit of the norm of all gradients; 0: none */
	double loss_scale;              /* the first one; 0 is 1 */
	int64_t loss_scale_interval;    /* good updates before it grows; 0: it is constant */

	/*
	 * Of gradients that sparse sums leave behind, the part that is added to the next ones, if
	 * has_residual; else it is the momentum, as in Algorithm 1 (arXiv 1902.06855).
	 */
	double residual;
	bool has_residual;

	enum pd_lr_schedule schedule;
	int64_t step_epochs;            /* step: epochs between two factors of gamma */
	double gamma;
	double power;                   /* polynomial */
	int64_t warmup;                 /* minibatches */
	/* PipeMare's options, for weights that are not stashed. */
	int64_t reschedule;             /* T1: minibatches until rates are as usual; 0: off */
	bool corrects;                  /* T2 */
	double discrepancy;             /* T2's D: at least 0, below 1 */
	int64_t epoch, total;           /* minibatches in one epoch and in the whole run; 0: endless */
	bool one_phase;                 /* no update is made early at an epoch's end */
};

static inline double pd_optimizer_residual(const struct pd_optimizer *o)
{
	return o->has_residual ? o->residual : o->hyper.momentum;
}

struct pd_moments pd_optimizer_moments(const struct pd_optimizer *optimizer);
/*
 * The learning rate of the update after `done` minibatches.  Let t = done - 1, the number of the
 * last of them, and p = max(0, t - warmup) / (total - warmup), at most 1.  It is rate times
 *
 * constant 1;  step gamma ^ floor(t / epoch / step_epochs);  polynomial (1 - p) ^ power;  cosine (1
 * + cos(pi p)) / 2
 *
 * and times (t + 1) / warmup while that is below 1.
 */
double pd_optimizer_rate(const struct pd_optimizer *optimizer, int64_t done);
/*
 * Returns the divisor of the rate at a stage whose gradients are `delay` updates late (MLSys 2021,
 * section 3.1): delay ^ (1 - t / reschedule), or 1 from t = reschedule on and if delay is 0.
 */
double pd_optimizer_divisor(const struct pd_optimizer *optimizer, int64_t delay, int64_t done);
/*
 * Returns the number, from 1, of the update after `done` minibatches.  The stage makes an update
 * after every `group` of them and, unless one_phase, at each epoch's end.  It counts as if it had
 * done so from the start, also in a run that came from another plan.
 */
int64_t pd_optimizer_count(const struct pd_optimizer *optimizer, int64_t group, int64_t done);
