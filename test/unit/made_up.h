/* SPDX-License-Identifier: Apache-2.0 */
/* A profile of layers that a test makes up. */
#pragma once

#include "base/json.h"
#include "profile/profile.h"
#include "tap.h"

/* Returns a profile with these elements of "layers", which it frees; ends the test if they are wrong. */
static inline struct pd_profile *made_up_profile(json_t *layers)
{
	json_t *root = json_pack("{s:s, s:i, s:s, s:i, s:s, s:{s:s, s:s}, s:o}", "format",
				 "pd-profile", "version", 1, "name", "random", "batch_size", 8,
				 "dtype", "f32", "device", "kind", "cpu", "name", "made up", "layers",
				 layers);
	struct pd_place place = pd_place_root("made up", root);
	struct pd_profile *profile;
	struct pd_error err;

	profile = pd_profile_parse_at(&place, &err);
	if (!profile)
		diag("%s", err.text);
	json_decref(root);
	return profile;
}
