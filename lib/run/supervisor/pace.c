/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor/pace.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define BETWEEN_NS INT64_C(1000000000)  /* rates are computed so often */
#define KEPT 0.7                        /* the weight of the rates before */

static double mix(double before, int64_t count, int64_t ns)
{
	double now = (double)count * 1e9 / (double)ns;

	return before > 0 ? KEPT * before + (1 - KEPT) * now : now;
}

void pd_pace_measure(struct pd_pace *pace, int64_t done, int64_t samples)
{
	int64_t now = pd_now_ns(), ns = now - pace->at_ns;

	if (pace->at_ns && ns < BETWEEN_NS)
		return;
	if (pace->at_ns) {
		pace->samples_per_s = mix(pace->samples_per_s, samples - pace->at_samples, ns);
		pace->minibatches_per_s = mix(pace->minibatches_per_s, done - pace->at_done, ns);
	}
	pace->at_ns = now;
	pace->at_done = done;
	pace->at_samples = samples;
}

void pd_pace_interrupt(struct pd_pace *pace)
{
	pace->at_ns = 0;
}

void pd_pace_stretch_begin(struct pd_pace_stretch *stretch, int64_t round, int64_t epoch, int64_t done,
			   int64_t now_ns)
{
	*stretch = (struct pd_pace_stretch){ .round = round, .epoch = epoch, .begun = done, .from = done,
					     .to = done, .from_ns = now_ns, .to_ns = now_ns,
					     .rate = stretch->rate };
}

bool pd_pace_stretch_done(struct pd_pace_stretch *stretch, int64_t done, int64_t now_ns)
{
	int64_t first = done - 1 - (done - 1) % stretch->epoch;
	bool ends = (done - (first > stretch->begun ? first : stretch->begun)) % stretch->round == 0 ||
		    done % stretch->epoch == 0;

	if (ends) {
		stretch->to = done;
		stretch->to_ns = now_ns;
	}
	return ends;
}

double pd_pace_stretch_end(struct pd_pace_stretch *stretch)
{
	int64_t ns = stretch->to_ns - stretch->from_ns;

	if (stretch->to > stretch->from && ns > 0)
		stretch->rate = (double)(stretch->to - stretch->from) * 1e9 / (double)ns;
	stretch->from = stretch->to;
	stretch->from_ns = stretch->to_ns;
	return stretch->rate > 0 ? stretch->rate : NAN;
}

size_t pd_pace_place(const struct pd_pace *pace, int64_t done, char *text, size_t size)
{
	int64_t last = pace->total > 0 ? pace->total - 1 : 0, now = done < last ? done : last;
	int length = snprintf(text, size, "%" PRId64 "/%" PRId64 ", epoch %" PRId64 "/%" PRId64,
			      done, pace->total, now / pace->epoch_minibatches + 1,
			      last / pace->epoch_minibatches + 1);

	return (size_t)length < size ? (size_t)length : size - 1;
}

void pd_pace_rate(const struct pd_pace *pace, int64_t done, char *text, size_t size)
{
	double left = (double)(pace->total - done) / pace->minibatches_per_s;
	int64_t s = left < 1e9 ? (int64_t)(left + 0.5) : 1000000000;
	char hours[24] = "";

	text[0] = '\0';
	if (pace->minibatches_per_s <= 0)
		return;
	if (s >= 3600)
		snprintf(hours, sizeof(hours), "%" PRId64 ":", s / 3600);
	snprintf(text, size, ", %.*f samples/s, %s%0*d:%02d left", pace->samples_per_s < 10,
		 pace->samples_per_s, hours, s >= 3600 ? 2 : 1, (int)(s / 60 % 60), (int)(s % 60));
}
