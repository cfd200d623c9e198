/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one member of a sum does: a list of transfers, all posted at once, and a list of waits and sums for
 * its stream.  A reducer writes both (sums/reducer.h); lib/engine/reduce plays them, and who meets whom and
 * who sends how much to whom is read off them.
 */
#pragma once

#include "model/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_SCRIPT_SOURCES 16    /* of one sum, at most */
#define PD_SCRIPT_NOW   (-2)    /* instead of an event: nothing is waited for, or told */
#define PD_SCRIPT_READY (-1)    /* the event that the buffer is ready */

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
	int peer;                       /* number of a member */
	int tag;                        /* below PD_REDUCTION_TAGS (engine/reduce/reduce.h) */
	struct pd_script_at at;
	size_t floats;                  /* there; of 0 floats nothing is sent and nothing waited for */
	int after, ev;
	int messages;                   /* that it counts as; 0: one */
	double part;                    /* coarse: times the bytes of the buffer; 0: by the floats */
};

/* A wait, or a sum, of n sources from `first` on; of none, it only completes its event. */
struct pd_script_step {
	int ev;                         /* that it waits for; of a sum, completed even if it is of 0 floats */
	bool adds;
	struct pd_script_at to;
	size_t floats, first;
	int n;
};

struct pd_script {
	/* What is asked for: */
	size_t floats;                  /* of the buffer */
	enum pd_dtype dtype;            /* of what travels, as struct pd_members says */
	bool one_at_a_time;             /* a link has one transfer at a time, else they share it */
	bool coarse;                    /* one transfer may stand for many, and there are no steps */
	/* What is written: */
	struct pd_script_transfer *transfers;
	struct pd_script_step *steps;
	struct pd_script_at *sources;
	size_t transfer_count, step_count, source_count;
	size_t transfer_room, step_room, source_room;
	size_t event_count;
	size_t first_part;              /* steps until all that is sent may leave */
};

/* Write a transfer, and return it, to be completed before the next one is written. */
struct pd_script_transfer *pd_script_send(struct pd_script *script, int peer, int tag, struct pd_script_at at,
					  size_t floats, int after, int ev);
struct pd_script_transfer *pd_script_receive(struct pd_script *script, int peer, int tag, struct pd_script_at at,
					     size_t floats, int after, int ev);
void pd_script_wait(struct pd_script *script, int ev);
/* Adds n sources, at most PD_SCRIPT_SOURCES; of none, it only completes the event. */
void pd_script_add(struct pd_script *script, struct pd_script_at to, const struct pd_script_at *from, int n,
		   size_t floats, int ev);
/*
 * Waits for the buffer, and in 16 bits rounds it, which completes event `rounded`.  Returns the event after
 * which gradients may leave.
 */
int pd_script_begin(struct pd_script *script, int rounded);
/* In 16 bits brings the sums back to the buffer. */
void pd_script_widen(struct pd_script *script, int ev);
/* Says that all that is sent may leave after the steps up to here. */
void pd_script_end_first_part(struct pd_script *script);
void pd_script_release(struct pd_script *script);

static inline bool pd_script_narrows(const struct pd_script *script)
{
	return script->dtype != PD_F32;
}

/* Returns the bytes of a number there. */
static inline size_t pd_script_width(const struct pd_script *script, enum pd_script_place place)
{
	bool travels = place == PD_SCRIPT_TRAVELS || place == PD_SCRIPT_STAGED_NARROW;

	return travels && pd_script_narrows(script) ? sizeof(uint16_t) : sizeof(float);
}

/* Returns what a transfer of a coarse script carries, as a part of the bytes of the buffer. */
double pd_script_part(const struct pd_script *script, const struct pd_script_transfer *transfer);
