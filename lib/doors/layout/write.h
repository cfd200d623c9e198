/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the stages of a plan in the words of another system. */
#pragma once

#include "plan/plan.h"

#include <stdio.h>

enum pd_layout_kind {
#define LAYOUT_KIND(name, ...) PD_LAYOUT_##name,
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND
	PD_LAYOUT_KINDS
};

/*
 * Has pd-plan cut only where the system can (pd_profile_layer.joined): between modules, or between E, decoder
 * layers and L.  Fails where the network is none that it knows.
 */
int pd_layout_join(enum pd_layout_kind kind, struct pd_profile *profile, struct pd_error *err);
/* Returns whose memory model plans for the system have where none is said, and what the system is called. */
enum pd_memory_model pd_layout_memory(enum pd_layout_kind kind);
const char *pd_layout_system(enum pd_layout_kind kind);
/* Tells whether some stages of a plan recompute and others do not, in a way that the system cannot. */
bool pd_layout_recomputes_apart(enum pd_layout_kind kind, const struct pd_plan *plan);
/* Tells whether a rank of the system's can be several devices that share layers out. */
bool pd_layout_takes_tensor(enum pd_layout_kind kind);
/* Returns 1 << kind of the schedules that the system has. */
unsigned pd_layout_schedules(enum pd_layout_kind kind);
/* Checks that the system can train as a plan says, as pd_layout_write() does. */
int pd_layout_check(enum pd_layout_kind kind, const struct pd_plan *plan, struct pd_error *err);
/* Refuses what the system cannot say, by name, with what to do. */
int pd_layout_write(enum pd_layout_kind kind, const struct pd_plan *plan, FILE *out, struct pd_error *err);
