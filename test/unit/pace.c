/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the rates which a run reports are steady, though replicas end their minibatches together. */
#include "run/pace.h"

#include "tap.h"

#include <math.h>

/* Tests three minibatches that end together every 3 s, with a report after every tenth minibatch. */
static void test_rounds(void)
{
	struct pd_pace_stretch stretch;
	int off = 0;

	pd_pace_stretch_begin(&stretch, 3, 7, 0);
	for (int64_t n = 1; n <= 100; n++) {
		int64_t now_ns = (n + 2) / 3 * 3000000000;

		if (pd_pace_stretch_done(&stretch, 7 + n, now_ns) != (n % 3 == 0))
			off++;
		if (n % 10 == 0 && fabs(pd_pace_stretch_end(&stretch, 7 + n, now_ns) - 1) > 1e-9)
			off++;
	}
	is_int(off, 0, "in every report one minibatch per second");
}

static void test_short_stretch(void)
{
	struct pd_pace_stretch stretch;

	pd_pace_stretch_begin(&stretch, 16, 0, 1000000000);
	pd_pace_stretch_done(&stretch, 4, 3000000000);
	ok(pd_pace_stretch_end(&stretch, 4, 3000000000) == 2, "without a whole round: of what there is");
	ok(pd_pace_stretch_end(&stretch, 4, 3000000000) == 0, "no time: no rate");
}

int main(void)
{
	test_rounds();
	test_short_stretch();
	return done_testing();
}
