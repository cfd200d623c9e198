/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the orders in which a search has looked at a profile, each of which is kept once. */
#include "planner/cut/views.h"
#include "small_profile.h"
#include "tap.h"

#include <string.h>

#define ORDERS 20               /* orders of b to g between a and h, of which there are 720 */

/* Stores the n-th permutation of the six layers in the middle. */
static void order_of(int n, int *order)
{
	int left[6] = { 1, 2, 3, 4, 5, 6 };

	order[0] = 0;
	order[7] = 7;
	for (int at = 6; at > 0; n /= at--) {
		order[7 - at] = left[n % at];
		memmove(&left[n % at], &left[n % at + 1], (size_t)(at - 1 - n % at) * sizeof(int));
	}
}

static bool has_order(const struct pd_profile *view, const int *order)
{
	for (int l = 0; l < view->layer_count; l++)
		if (pd_profile_number(view, l) != order[l] ||
		    view->layers[l].forward_ns != 10 * (order[l] + 1))
			return false;
	return true;
}

int main(void)
{
	struct pd_profile *profile = small_profile("a<x b<a c<a d<a e<a f<a g<a h<bcdefg");
	struct pd_profile *list[ORDERS];
	struct pd_views views;
	int order[8], good = 0, same = 0;

	pd_views_init(&views, profile, profile, PD_STATES_ALL);
	ok(views.points.states, "a network with branches has more than one order");
	ok(pd_views_get(&views, NULL) == profile, "no order is the profile's");
	for (int n = 0; n < ORDERS; n++) {
		order_of(n + 1, order);
		list[n] = pd_views_get(&views, order);
		good += has_order(list[n], order);
	}
	is_int(good, ORDERS, "every view has its order");
	for (int n = ORDERS - 1; n >= 0; n--) {
		order_of(n + 1, order);
		same += pd_views_get(&views, order) == list[n];
	}
	ok(same == ORDERS && views.count == ORDERS, "who asks again gets the same");
	pd_views_release(&views);
	pd_profile_free(profile);
	return done_testing();
}
