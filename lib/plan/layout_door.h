/* SPDX-License-Identifier: Apache-2.0 */
/* How others cut networks and what they recompute: doors/layout knows, programs pass it to the planner. */
#pragma once

#include "profile/profile.h"

struct pd_layout_door {
	/*
	 * Returns how many layers each of so many stages of equally many blocks has, owned by the
	 * caller, or NULL: the network has no such blocks, or too few.
	 */
	int *(*even_stages)(const struct pd_profile *profile, int stages);
	/* Returns what is recomputed, by layer (doors/layout/segments.h); or NULL. */
	int *(*segments)(const struct pd_profile *profile, const char *what, struct pd_error *err);
};
