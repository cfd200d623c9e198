/* SPDX-License-Identifier: Apache-2.0 */
/* A profile's layers as the document has them; private to this folder. */
#ifndef PD_PROFILE_LAYERS_H
#define PD_PROFILE_LAYERS_H

#include "base/json.h"
#include "profile/profile.h"

/*
 * Reads "layers" and brings them into topological order, the model's where there is one; the
 * model and the names of other inputs (profile->names) are there.
 */
int pd_profile_read_layers(const struct pd_place *layers, struct pd_profile *profile,
			   struct pd_error *err);
json_t *pd_profile_layer_json(const struct pd_profile *profile, int index);  /* a new reference */

/* Puts layer order[n] at place n and renumbers; the model, if any, stays as it is. */
void pd_profile_sort(struct pd_profile *profile, const int *order);

#endif
