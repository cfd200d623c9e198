/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions that are a list of transfers, all posted at once, and a list of waits and sums for the
 * stream.  A reducer writes both lists when it is opened; the rest is done here.
 */
#pragma once

#include "reduce/reduce.h"

#define PD_SCRIPT_NOW   (-2)    /* instead of an event: nothing is waited for, or told */
#define PD_SCRIPT_READY (-1)    /* the event that the buffer is ready (start's `after`) */

/*
 * Where numbers are: in the buffer, in what travels of it (the buffer itself, or in 16 bits what it
 * is rounded to), in staging in f32, in staging as they travel.
 */
enum pd_script_place { PD_SCRIPT_BUFFER, PD_SCRIPT_TRAVELS, PD_SCRIPT_STAGED, PD_SCRIPT_STAGED_NARROW };

/* A position is counted in numbers of the place's width. */
struct pd_script_at {
	enum pd_script_place place;
	size_t at;
};

/* An event is named by its number among those of the script, from 0; each is armed once a sum. */
struct pd_script_transfer {
	bool send;
	enum pd_script_place place;
	int peer;                       /* number of a member */
	int tag;                        /* below PD_REDUCTION_TAGS */
	size_t at, floats;              /* there; of 0 floats nothing is sent and nothing waited for */
	int after, ev;
	int messages;                   /* that it counts as; 0: one */
};

/* A sum of at most PD_SUM_SOURCES; of none, it only completes its event. */
struct pd_script_sum {
	struct pd_script_at to;
	const struct pd_script_at *from;        /* copied */
	int n;
	size_t floats;
};

struct pd_script {
	struct pd_reduction base;
	struct pd_reduction_config config;
	float *staging;
	char *rounded;                  /* in 16 bits: what the buffer is rounded to */
	size_t staging_bytes;           /* with that at its end */
	struct pd_event *events;
	struct pd_script_transfer *transfers;
	struct pd_script_step {
		int ev;                 /* that it waits for; of a sum, completed even if it is of 0 floats */
		int sum;                /* below 0: none, it waits */
	} *steps;
	struct pd_script_kept_sum {
		struct pd_script_at to;
		size_t first_source, floats;
		int n;
	} *sums;
	struct pd_script_at *sources;
	size_t event_count, transfer_count, step_count, sum_count, source_count;
	size_t event_room, transfer_room, step_room, sum_room, source_room;
	size_t first_part;              /* steps until all that is sent may leave */
	/* the one under way */
	float *buf;
	const struct pd_event *after;
	struct pd_event *done;
	size_t step;
};

/* Returns the staging that the row of that reducer says. */
size_t pd_script_row_staging_bytes(enum pd_reducer_kind kind, const struct pd_reduction_config *config);
/* Makes an empty script with so much staging.  NULL: no memory. */
struct pd_script *pd_script_new(const struct pd_reduction_ops *ops, size_t staging_bytes,
				const struct pd_reduction_config *config, struct pd_error *err);
void pd_script_transfer(struct pd_script *script, const struct pd_script_transfer *transfer);
void pd_script_wait(struct pd_script *script, int ev);
void pd_script_add(struct pd_script *script, const struct pd_script_sum *sum, int ev);
/* In 16 bits these are sums of the whole buffer, else nothing: rounds it, brings sums back. */
void pd_script_round(struct pd_script *script, int ev);
void pd_script_widen(struct pd_script *script, int ev);
/* Says that all that is sent may leave after the steps up to here. */
void pd_script_end_first_part(struct pd_script *script);
static inline bool pd_script_narrows(const struct pd_script *script)
{
	return script->config.rounding.dtype != PD_F32;
}

/* The functions of struct pd_reduction_ops, but open. */
void pd_script_close(struct pd_reduction *r);
int pd_script_start(struct pd_reduction *r, float *buf, uint64_t tag_base,
		    const struct pd_event *after, struct pd_event *done);
int pd_script_progress(struct pd_reduction *r, enum pd_reduction_part upto);
bool pd_script_issued(const struct pd_reduction *r, enum pd_reduction_part upto);
int64_t pd_script_started_ns(const struct pd_reduction *r);
size_t pd_script_staging_bytes(const struct pd_reduction *r);
