/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/order.h"

/* Returns the first of a tensor's users that is in an earlier stage than one before it, or -1. */
static int too_early(const int *users, size_t count, const int *stage)
{
	for (size_t u = 0; u + 2 < count; u++) {
		if (stage[users[u + 1]] < stage[users[u]])
			return users[u + 1];
		if (u + 3 == count && stage[users[u + 2]] < stage[users[u]])
			return users[u + 2];
	}
	return -1;
}

bool pd_order_keeps_sums(const struct pd_profile *profile, const int *stage, int *tensor_p,
			 int *user_p)
{
	size_t n = (size_t)profile->layer_count;
	struct pd_uses uses;

	*user_p = -1;
	pd_profile_uses(profile, &uses);
	for (size_t t = 0; profile->model && t < n && *user_p < 0; t++) {
		*tensor_p = (int)t;
		*user_p = too_early(&uses.users[uses.first[t]], uses.first[t + 1] - uses.first[t],
				    stage);
	}
	pd_uses_release(&uses);
	return *user_p < 0;
}
