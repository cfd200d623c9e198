/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the rates which a run reports are steady, though replicas end their minibatches together. */
#include "run/supervisor/pace.h"

#include "tap.h"

#include <math.h>

/* Tests three minibatches that end together every 3 s, with a report after every tenth minibatch. */
static void test_rounds(void)
{
	struct pd_pace_stretch stretch = { 0 };
	int off = 0;

	pd_pace_stretch_begin(&stretch, 3, 1000, 7, 0);
	for (int64_t n = 1; n <= 100; n++) {
		int64_t now_ns = (n + 2) / 3 * 3000000000;

		if (pd_pace_stretch_done(&stretch, 7 + n, now_ns) != (n % 3 == 0))
			off++;
		if (n % 10 == 0 && fabs(pd_pace_stretch_end(&stretch) - 1) > 1e-9)
			off++;
	}
	is_int(off, 0, "in every report one minibatch per second");
}

/* Tests eight replicas with a report after every minibatch, in epochs that end with a round of two. */
static void test_short_stretches(void)
{
	struct pd_pace_stretch stretch = { 0 };
	int unknown = 0, off = 0;
	double rate;

	pd_pace_stretch_begin(&stretch, 8, 10, 0, 0);
	for (int64_t n = 1; n <= 50; n++) {
		int64_t epoch = (n - 1) / 10, in_epoch = (n - 1) % 10;
		int64_t now_ns = (epoch * 10 + (in_epoch < 8 ? 8 : 10)) * 1000000000 + in_epoch;

		pd_pace_stretch_done(&stretch, n, now_ns);
		rate = pd_pace_stretch_end(&stretch);
		unknown += isnan(rate);
		off += !isnan(rate) && fabs(rate - 1) > 1e-6;
	}
	is_int(unknown, 7, "no rate before a round has ended");
	is_int(off, 0, "then that of the newest round, whole or at the end of an epoch");
	pd_pace_stretch_begin(&stretch, 8, 10, 50, 0);
	ok(fabs(pd_pace_stretch_end(&stretch) - 1) < 1e-6, "behind an evaluation it is still known");
}

int main(void)
{
	test_rounds();
	test_short_stretches();
	return done_testing();
}
