/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/worker/optimizer.h"

#include <math.h>
#include <stddef.h>

const char *const pd_lr_schedule_name[] = {
	[PD_LR_CONSTANT] = "constant", [PD_LR_STEP] = "step", [PD_LR_POLYNOMIAL] = "polynomial",
	[PD_LR_COSINE] = "cosine", NULL
};

struct pd_moments pd_optimizer_moments(const struct pd_optimizer *o)
{
	return (struct pd_moments){
		.count = pd_optimizer_moment_count(o->kind, o->hyper.momentum), .corrects = o->corrects,
	};
}

/* Returns how much of the way from the end of the warm-up to the end of the run is done. */
static double progress(const struct pd_optimizer *o, int64_t t)
{
	if (t <= o->warmup || o->total <= o->warmup)
		return 0;
	return t < o->total ? (double)(t - o->warmup) / (double)(o->total - o->warmup) : 1;
}

static double factor(const struct pd_optimizer *o, int64_t t)
{
	switch (o->schedule) {
	case PD_LR_STEP:
		return o->epoch ? pow(o->gamma, (double)(t / o->epoch / o->step_epochs)) : 1;
	case PD_LR_POLYNOMIAL:
		return pow(1 - progress(o, t), o->power);
	case PD_LR_COSINE:
		return (1 + cos(M_PI * progress(o, t))) / 2;
	case PD_LR_CONSTANT:
		break;
	}
	return 1;
}

double pd_optimizer_rate(const struct pd_optimizer *o, int64_t done)
{
	double rate = o->rate * factor(o, done - 1);

	return done < o->warmup ? rate * ((double)done / (double)o->warmup) : rate;
}

double pd_optimizer_divisor(const struct pd_optimizer *o, int64_t delay, int64_t done)
{
	int64_t t = done - 1;

	if (delay <= 1 || t >= o->reschedule)
		return 1;
	return pow((double)delay, 1 - (double)t / (double)o->reschedule);
}

int64_t pd_optimizer_count(const struct pd_optimizer *o, int64_t group, int64_t done)
{
	int64_t t = done - 1;

	if (o->epoch == 0 || o->one_phase)
		return t / group + 1;
	return t / o->epoch * ((o->epoch - 1) / group + 1) + t % o->epoch / group + 1;
}
