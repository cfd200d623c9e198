/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/rounds.h"

#include "tap.h"

static void test_middle(void)
{
	int64_t odd[] = { 5, 1, 3 }, even[] = { 8, 2, 4, 6 };
	int64_t few[] = { 1, 2, 6 }, many[] = { 1000, 3, 4, 5, 6, 7, 8, 0 };

	is_int(pd_median(odd, 3), 3, "the median of three");
	is_int(pd_median(even, 4), 5, "of four: between the two in the middle");
	ok(pd_trimmed_mean(few, 3) == 3, "the mean of a few is that of all");
	ok(pd_trimmed_mean(many, 8) == 5.5, "of eight the least and the greatest are left out");
}

static void test_whole(void)
{
	struct pd_profile_layer layers[] = {
		{ .forward_ns = 10, .backward_ns = 20, .backward_input_ns = 12,
		  .backward_weight_ns = 8, .update_ns = 0, .update_apart_ns = 0 },
		{ .forward_ns = 30, .backward_ns = 60, .backward_input_ns = -1,
		  .backward_weight_ns = -1, .update_ns = 100, .update_apart_ns = 160 },
	};
	struct pd_profile profile = { .layer_count = 2, .layers = layers };
	struct pd_whole whole = { .forward_ns = 60, .backward_ns = 120, .update_ns = 50 };

	pd_share_whole(&profile, &whole);
	ok(layers[0].forward_ns == 15 && layers[1].forward_ns == 45, "forward in proportion");
	ok(layers[0].backward_ns == 30 && layers[1].backward_ns == 90, "backward in proportion");
	ok(layers[0].backward_input_ns == 18 && layers[0].backward_weight_ns == 12,
	   "the parts of backward as backward");
	ok(layers[1].backward_input_ns == -1 && layers[1].backward_weight_ns == -1,
	   "what was not measured stays so");
	ok(layers[0].update_ns == 0 && layers[1].update_ns == 50 &&
	   layers[0].update_apart_ns == 0 && layers[1].update_apart_ns == 80,
	   "the update into another buffer as that in place");
	layers[0].forward_ns = layers[1].forward_ns = 0;
	pd_share_whole(&profile, &whole);
	ok(layers[0].forward_ns == 0, "nothing to share out in proportion to");
}

int main(void)
{
	test_middle();
	test_whole();
	return done_testing();
}
