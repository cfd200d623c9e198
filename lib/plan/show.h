/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a plan in few characters, for tables and pictures. */
#pragma once

#include "plan/plan.h"

/* Writes "0-2,4" for the ranks of a stage, cut short with "...", into buf (of room bytes) and returns it. */
const char *pd_show_ranks(const struct pd_stage *stage, char *buf, size_t room);

/* Writes "4 of 8 devices", or "4 of 8 ranks of 2 devices", what the plan uses of the machine, and returns buf. */
#define PD_SHOW_PLACES 96
const char *pd_show_places(const struct pd_plan *plan, char buf[PD_SHOW_PLACES]);
/* Writes what one device has of a rank's bytes. */
const char *pd_show_device_bytes(const struct pd_plan *plan, int64_t bytes, char *buf);
/* The same for the kinds of devices that they are: "A100, V100"; "" where all of the machine are alike. */
const char *pd_show_kinds(const struct pd_plan *plan, const struct pd_stage *stage, char *buf, size_t room);
/* Returns "ranks 0-15 A100, 16-31 V100"; NULL where all devices are alike.  free() it. */
char *pd_show_devices(const struct pd_topology *topology);

/*
 * Returns with how many bytes the names of all layers begin, up to a separator such as a full stop, if
 * these are enough to be worth leaving out; else 0.
 */
size_t pd_layers_prefix(const struct pd_profile *profile);

/* How names are put together, in a terminal or in a picture. */
struct pd_name_style {
	const char *between;            /* the first and the last */
	const char *dots;               /* instead of what is left out */
	int most;                       /* characters in all */
};
/* Returns the name without its middle if it is too long; free() it. */
char *pd_show_name(const char *name, const struct pd_name_style *style);
/*
 * Returns the names of a stage's first and last layer without their first `prefix` bytes.  If they are
 * too long, the last one lacks what it shares with the first, and names are cut in their middle.
 * free() it.
 */
char *pd_show_layers(const struct pd_profile *profile, const struct pd_stage *stage, size_t prefix,
		     const struct pd_name_style *style);

#define PD_RECOMPUTED_TEXT 48
/* Writes `before` and "recomputed", or how many of its layers are, into buf; "" if stage s recomputes nothing. */
const char *pd_show_recomputed(const struct pd_plan *plan, int s, const char *before,
			       char buf[PD_RECOMPUTED_TEXT]);
