/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles of one network on several kinds of devices, brought together as a machine has them. */
#pragma once

#include "planner/planner.h"

/*
 * Joins profiles of one batch size each: of every batch size one is left, which has the others
 * (pd_profile_add_kind) in the order of the topology's kinds.  files are their names, for messages.  A kind whose
 * name is only a part of a profile's device name gets all of it, and the memory that the profile says where the
 * topology says none.  Where the topology has no kinds all profiles must be of one device.
 */
int pd_planner_join_kinds(struct pd_profile **profiles, const char **files, int *count_p,
			  struct pd_topology *topology, struct pd_error *err);
