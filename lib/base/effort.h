/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a search does, counted in steps that take about a nanosecond, so that one that would go on for ever
 * ends, and with the same result wherever it runs.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_effort {
	int64_t done, most;
	bool early;                     /* something was not done, because all steps were */
	/* Is told now and then how far it is; may be NULL. */
	void (*progress)(void *context, int64_t done, int64_t most);
	void *context;
	int64_t told;                   /* when it was told last */
	/* not 0: all counts as spent; NULL: nobody stops it */
	const volatile sig_atomic_t *stopped;
};

#define PD_EFFORT_TELL (INT64_C(1) << 26)

/* The least part (pd_effort_share): what small searches need for what is at hand. */
#define PD_EFFORT_LEAST INT64_C(1000000000)

/* All of these take NULL for one without an end. */
static inline void pd_effort_begin(struct pd_effort *effort)
{
	if (effort)
		effort->done = effort->told = 0;
}

static inline void pd_effort_spend(struct pd_effort *effort, int64_t steps)
{
	if (!effort)
		return;
	effort->done += steps;
	if (effort->progress && effort->done - effort->told >= PD_EFFORT_TELL) {
		effort->told = effort->done;
		effort->progress(effort->context, effort->done, effort->most);
	}
}

/*
 * Gives what follows one part in so many of all steps, however many are spent.  Returns the limit, which
 * pd_effort_return() sets again.
 */
static inline int64_t pd_effort_share(struct pd_effort *effort, int64_t parts)
{
	int64_t most = effort ? effort->most : 0, part = most / parts;

	if (effort)
		effort->most = effort->done + (part > PD_EFFORT_LEAST ? part : PD_EFFORT_LEAST);
	return most;
}

static inline void pd_effort_return(struct pd_effort *effort, int64_t most)
{
	if (effort)
		effort->most = most;
}

/* Tells how far it is. */
static inline void pd_effort_tell(struct pd_effort *effort)
{
	if (effort && effort->progress)
		effort->progress(effort->context, effort->done, effort->most);
}

static inline bool pd_effort_stopped(const struct pd_effort *effort)
{
	return effort && effort->stopped && *effort->stopped;
}

/* Tells whether all of it is spent; then something is left out. */
static inline bool pd_effort_spent(struct pd_effort *effort)
{
	if (!effort || (effort->done < effort->most && !pd_effort_stopped(effort)))
		return false;
	effort->early = true;
	return true;
}
