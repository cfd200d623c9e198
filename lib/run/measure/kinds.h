/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of one network where the ranks of a run would be: each rank times its own device, all at once, and of
 * each kind of device there is one profile.  That is the one of the rank in the middle, by the time of a step; of
 * two, of the slower.
 */
#pragma once

#include "run/launch/launcher.h"
#include "run/launch/task.h"
#include "run/measure/layers.h"

struct pd_kind_profile {
	struct pd_profile *profile;     /* owned */
	int ranks;                      /* that have such a device */
	int64_t least_ns, most_ns;      /* a step of theirs */
};

/*
 * Sets *list_p to one profile for each kind, in the order of ranks, which the caller frees with
 * pd_kinds_free().  Of the options, those count that say what is computed and how long; threads 0: the rank's share
 * of its host's processors.
 */
int pd_kinds_measure(const struct pd_launcher_ops *ops, int ranks, const struct pd_model *model, const char *device,
		     const struct pd_measure_options *options, struct pd_kind_profile **list_p, int *count_p,
		     struct pd_error *err);
void pd_kinds_free(struct pd_kind_profile *list, int count);

/* For pd-worker; begins with {"event": "profile", "device", "seat", "model", ...}. */
extern const struct pd_rank_task pd_kinds_task;
