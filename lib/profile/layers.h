/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes a profile's layers; private to this folder. */
#pragma once

#include "base/rows.h"
#include "profile/profile.h"

/*
 * Reads "layers" and brings them into topological order, the model's if there is one.  The model
 * and the names of other inputs (profile->names) must have been read.
 */
int pd_profile_read_layers(const struct pd_place *layers, struct pd_profile *profile,
			   struct pd_error *err);
json_t *pd_profile_layer_json(const struct pd_profile *profile, int index);  /* a new reference */

#define PD_PROFILE_MOST_FACTOR 1e3

extern const struct pd_key_row pd_profile_layer_rows[];
/* A row's functions for a struct pd_spread; one that was not measured is left out. */
int pd_profile_read_spread(const struct pd_place *place, void *member, struct pd_error *err);
json_t *pd_profile_spread_json(const void *member);

/* The row of a struct pd_degrees. */
extern const struct pd_key_row pd_degrees_rows[];
int pd_degrees_read(const struct pd_place *place, void *member, struct pd_error *err);
/* Leaves out a single device. */
json_t *pd_degrees_write(const void *member);

/* Makes layer order[n] layer n, and renumbers; the model stays as it is. */
void pd_profile_sort(struct pd_profile *profile, const int *order);
