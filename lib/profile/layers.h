/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes a profile's layers; private to this folder. */
#pragma once

#include "base/json.h"
#include "profile/profile.h"

/*
 * Reads "layers" and brings them into topological order, the model's if there is one.  The model
 * and the names of other inputs (profile->names) must have been read.
 */
int pd_profile_read_layers(const struct pd_place *layers, struct pd_profile *profile,
			   struct pd_error *err);
json_t *pd_profile_layer_json(const struct pd_profile *profile, int index);  /* a new reference */

#define PD_PROFILE_MOST_FACTOR 1e3

/* Reads such a pair where there is one. */
int pd_profile_read_spread(const struct pd_place *object, const char *key, struct pd_spread *out_p,
			   struct pd_error *err);
/* Returns NULL if it was not measured. */
json_t *pd_profile_spread_json(const struct pd_spread *spread);

/* Makes layer order[n] layer n, and renumbers; the model stays as it is. */
void pd_profile_sort(struct pd_profile *profile, const int *order);
