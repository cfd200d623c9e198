/* SPDX-License-Identifier: Apache-2.0 */
/* How the CUDA device writes down which algorithms it took (lib/device/cuda/choice.h). */
#include "tap.h"

#include "device/cuda/choice.h"

static void test_codes(void)
{
	bool good = true;

	for (int f = 0; f < 100; f += 9)
		for (int d = 0; d < 100; d += 11)
			for (int w = 0; w < 100; w += 3) {
				int64_t n = pd_choice_with(0, PD_WAY_WEIGHTS, w);

				n = pd_choice_with(n, PD_WAY_FORWARD, f);
				n = pd_choice_with(n, PD_WAY_DATA, d);
				good = good && pd_choice_code(n, PD_WAY_FORWARD) == f &&
				       pd_choice_code(n, PD_WAY_DATA) == d &&
				       pd_choice_code(n, PD_WAY_WEIGHTS) == w;
			}
	ok(good, "three codes in one number");
	ok(pd_choice_code(0, PD_WAY_DATA) == 0, "none in 0");
	ok(pd_choice_code(INT64_MAX, PD_WAY_WEIGHTS) < 100, "a number that nobody wrote has codes");
}

static void test_fastest(void)
{
	ok(pd_choice_fastest((float[]){ 3, 1, 2 }, 3) == 1, "the fastest");
	ok(pd_choice_fastest((float[]){ 1, 0.99f, 0.98f }, 3) == 0,
	   "the heuristics' first where the others are hardly faster");
	ok(pd_choice_fastest((float[]){ -1, 2, 1 }, 3) == 2, "not one that failed");
	ok(pd_choice_fastest((float[]){ -1, -1 }, 2) == -1, "none where all did");
	ok(pd_choice_fastest((float[]){ 0 }, 1) == 0, "the only one");
}

int main(void)
{
	test_codes();
	test_fastest();
	return done_testing();
}
