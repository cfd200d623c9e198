/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/worker/optimizer.h"

#include "base/mem.h"
#include "tap.h"

#include <math.h>

struct point { int64_t version; double rate; };

/* Compares the rates at some versions with those worked out by hand. */
static void test_rates(const char *what, const struct pd_optimizer *o, const struct point *points,
		       int count)
{
	for (int i = 0; i < count; i++) {
		double got = pd_optimizer_rate(o, points[i].version);

		if (!ok(fabs(got - points[i].rate) < 1e-14, "%s: version %d", what,
			(int)points[i].version))
			diag("got %.17g, expected %.17g", got, points[i].rate);
	}
}

static void test_schedules(void)
{
	struct pd_optimizer o = { .rate = 0.5, .epoch = 10, .total = 100, .step_epochs = 2,
				  .gamma = 0.1, .power = 2 };
	static const struct point constant[] = { { 1, 0.5 }, { 100, 0.5 } };
	static const struct point step[] = { { 1, 0.5 }, { 20, 0.5 }, { 21, 0.05 }, { 40, 0.05 },
					     { 41, 0.005 }, { 100, 0.5e-4 } };
	static const struct point polynomial[] = { { 1, 0.5 }, { 11, 0.5 * 0.81 },
						   { 51, 0.125 }, { 100, 0.5e-4 } };
	static const struct point cosine[] = { { 1, 0.5 }, { 26, 0.25 + 0.125 * M_SQRT2 },
					       { 51, 0.25 }, { 101, 0 }, { 300, 0 } };
	static const struct point warm[] = { { 1, 0.025 }, { 10, 0.25 }, { 20, 0.5 }, { 21, 0.5 },
					     { 61, 0.25 }, { 101, 0 } };

	test_rates("constant", &o, constant, PD_COUNT(constant));
	o.schedule = PD_LR_STEP;
	test_rates("step", &o, step, PD_COUNT(step));
	o.schedule = PD_LR_POLYNOMIAL;
	test_rates("polynomial", &o, polynomial, PD_COUNT(polynomial));
	o.schedule = PD_LR_COSINE;
	test_rates("cosine", &o, cosine, PD_COUNT(cosine));
	o.warmup = 20;
	test_rates("cosine after a warm-up of 20", &o, warm, PD_COUNT(warm));
	o.total = 15;
	ok(pd_optimizer_rate(&o, 15) == 0.375, "a warm-up longer than the run");
	o.schedule = PD_LR_STEP;
	o.epoch = o.total = o.warmup = 0;
	ok(pd_optimizer_rate(&o, INT64_C(1) << 40) == 0.5, "no end, no epochs: as it was");
}

/* Compares the number of updates with a count of groups, of which the last of an epoch may be partial. */
static void test_count(int64_t epoch, int64_t group)
{
	struct pd_optimizer o = { .epoch = epoch };
	int64_t made = 0, in_group = 0;
	bool good = true;

	for (int64_t b = 0; b < 4 * epoch; b++) {
		if (++in_group < group && (b + 1) % epoch != 0)
			continue;
		in_group = 0;
		good = good && pd_optimizer_count(&o, group, b + 1) == ++made;
	}
	ok(good && made == 4 * ((epoch + group - 1) / group),
	   "updates counted: epochs of %d, groups of %d", (int)epoch, (int)group);
}

/* Tests PipeMare's T1, whose factor of the rate goes from 1 / delay to 1, along a power. */
static void test_divisor(void)
{
	struct pd_optimizer o = { .reschedule = 100 }, off = { 0 };

	ok(pd_optimizer_divisor(&o, 16, 1) == 16, "at first a late rate is divided by the delay");
	ok(fabs(pd_optimizer_divisor(&o, 16, 51) - 4) < 1e-14, "half-way by its root");
	ok(fabs(pd_optimizer_divisor(&o, 16, 76) - 2) < 1e-14, "later by its fourth root");
	ok(pd_optimizer_divisor(&o, 16, 101) == 1 && pd_optimizer_divisor(&o, 16, 1000) == 1,
	   "in the end not at all");
	ok(pd_optimizer_divisor(&o, 0, 1) == 1 && pd_optimizer_divisor(&o, 1, 1) == 1,
	   "nor where gradients are an update late or none");
	ok(pd_optimizer_divisor(&off, 16, 1) == 1, "nor where nobody asks for it");
	is_int(pd_optimizer_moments(&o).count, 0, "nothing is kept for that");
	o.corrects = true;
	ok(pd_optimizer_moments(&o).corrects, "a correction keeps arenas");
}

int main(void)
{
	struct pd_optimizer endless = { 0 };

	test_schedules();
	test_divisor();
	for (int64_t group = 1; group <= 5; group++) {
		test_count(27, group);
		test_count(3, group);
	}
	is_int(pd_optimizer_count(&endless, 4, 40), 10, "updates counted without epochs");
	return done_testing();
}
