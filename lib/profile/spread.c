/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/spread.h"

#include <math.h>

static const struct pd_spread none = { 1, 1 };

bool pd_profile_has_spread(const struct pd_profile *profile)
{
	return profile->rounds.count > 0 || profile->estimated_spread > 0;
}

struct pd_spread pd_spread_common(const struct pd_profile *profile)
{
	double part = profile->estimated_spread;

	if (profile->rounds.count > 0)
		return profile->rounds.step;
	return part > 0 ? (struct pd_spread){ 1 / (1 + part), 1 + part } : none;
}

struct pd_spread pd_spread_own(const struct pd_profile_layer *layer, enum pd_timed part)
{
	return layer->spreads[part].high > 0 ? layer->spreads[part] : none;
}

static int64_t time_of(const struct pd_profile_layer *layer, enum pd_timed part)
{
	return part == PD_TIMED_FORWARD ? layer->forward_ns
	     : part == PD_TIMED_BACKWARD ? layer->backward_ns : layer->update_ns;
}

struct pd_spread pd_spread_of(const struct pd_profile *profile, int first, int count, enum pd_timed part)
{
	double sum = 0, below = 0, above = 0;

	for (int l = first; l < first + count; l++) {
		struct pd_spread own = pd_spread_own(&profile->layers[l], part);
		double ns = (double)time_of(&profile->layers[l], part);

		sum += ns;
		below += ns * (1 - own.low) * ns * (1 - own.low);
		above += ns * (own.high - 1) * ns * (own.high - 1);
	}
	if (sum <= 0)
		return none;
	return pd_spread_both(pd_spread_common(profile),
			      (struct pd_spread){ 1 - sqrt(below) / sum, 1 + sqrt(above) / sum });
}

/* The same to the bit on every machine, which hypot() is not. */
static double joined(double x, double y)
{
	return sqrt(x * x + y * y);
}

struct pd_spread pd_spread_both(struct pd_spread a, struct pd_spread b)
{
	return (struct pd_spread){ fmax(0, 1 - joined(1 - a.low, 1 - b.low)),
				   1 + joined(a.high - 1, b.high - 1) };
}
