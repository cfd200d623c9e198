/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which rank has failed, and why. */
#include "run/supervisor/internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CAUSE_NS (2 * SECOND_NS)        /* time for a rank that another has lost to report itself */

/* "rank 1 (stage 1 of 2)"; with several hosts "rank 1 (stage 1 of 2, host h3)" */
const char *supervisor_who(const struct supervisor *s, int r, char buf[WHO_TEXT])
{
	const struct pd_seat *seat = s->launcher->ops->seat(s->launcher, r);
	bool several = seat->hosts > 1;

	snprintf(buf, WHO_TEXT, "rank %d (stage %d of %d%s%s)", r, supervisor_stage_of(s, r, NULL),
		 s->job->plan->stage_count, several ? ", host " : "", several ? seat->host : "");
	return buf;
}

/* Writes "; --resume goes on from minibatch 20", or "". */
static const char *way_on(const struct supervisor *s, char *buf, size_t size)
{
	buf[0] = 0;
	if (s->last_checkpoint >= 0)
		snprintf(buf, size, "; --resume goes on from minibatch %" PRId64,
			 s->last_checkpoint);
	return buf;
}

void supervisor_say_stopped(struct supervisor *s, const char *why)
{
	const struct pd_job *job = s->job;
	bool training = !job->only_evaluates && !job->gather && !job->lists;

	pd_progress_bar_hide(&s->report.bar);
	if (!training)
		pd_say("%s", why);
	else if (!job->checkpoint)
		pd_say("%s; without --checkpoint=DIR nothing is kept", why);
	else if (s->last_checkpoint < 0)
		pd_say("%s before the first checkpoint: nothing is kept", why);
	else
		pd_say("%s; %s has the checkpoint of step %" PRId64 ", and the same command with "
		       "--resume goes on from it", why, job->checkpoint, s->last_checkpoint);
}

int supervisor_lost_output(const struct supervisor *s, struct pd_error *err)
{
	char more[160];

	return pd_error_failed(err, "standard output: cannot write: %s; stopped after %" PRId64
			       " minibatches%s", strerror(s->report.lost), s->report.done,
			       way_on(s, more, sizeof(more)));
}

static int rank_failed(struct supervisor *s, int r, struct pd_error *err, const char *fate)
{
	char name[WHO_TEXT], more[160];

	return pd_error_failed(err, "%s %s%s%s%s", supervisor_who(s, r, name), fate,
			       s->connected && s->ranks[r].doing[0] ? " during " : "",
			       s->connected ? s->ranks[r].doing : " while starting",
			       way_on(s, more, sizeof(more)));
}

int supervisor_rank_silent(struct supervisor *s, int r, struct pd_error *err)
{
	int64_t silent_s = (pd_awake_ns(&s->awake) - s->ranks[r].heard_ns) / SECOND_NS;
	char fate[64];

	snprintf(fate, sizeof(fate), "hangs: it has not answered for %" PRId64 " s", silent_s);
	return rank_failed(s, r, err, fate);
}

/* Returns the rank whose last message is the oldest, if it should have sent another since; or -1. */
static int silent_rank(struct supervisor *s)
{
	int64_t now = pd_awake_ns(&s->awake);
	int silent = 0;

	for (int r = 1; r < s->count; r++)
		if (s->ranks[r].heard_ns < s->ranks[silent].heard_ns)
			silent = r;
	return now - s->ranks[silent].heard_ns > LATE_NS ? silent : -1;
}

/* Follows the ranks, each to the one that it waits for, and returns the last. */
static int waited_for(const struct supervisor *s)
{
	int r = 0;

	for (int steps = 0; steps < s->count && s->ranks[r].peer >= 0; steps++)
		r = s->ranks[r].peer;
	return r;
}

/*
 * Blames a rank that is silent, or whose operation does not end: all others wait for it, directly
 * or not.
 */
int supervisor_nothing_moves(struct supervisor *s, struct pd_error *err)
{
	char name[WHO_TEXT], fate[64];
	int r = silent_rank(s);

	snprintf(fate, sizeof(fate), "hangs: nothing has moved for %" PRId64 " s", s->how->timeout_s);
	if (r >= 0)
		return supervisor_rank_silent(s, r, err);
	for (r = 0; r < s->count; r++)
		if (s->ranks[r].computing && !s->ranks[r].busy)
			return rank_failed(s, r, err, fate);
	for (r = 0; r < s->count; r++)
		if (s->ranks[r].busy)
			return pd_error_failed(err, "%s hangs in a checkpoint: nothing has moved for %"
					       PRId64 " s", supervisor_who(s, r, name),
					       s->how->timeout_s);
	r = waited_for(s);
	return pd_error_failed(err, "nothing has moved for %" PRId64 " s; %s %s%s",
			       s->how->timeout_s, supervisor_who(s, r, name),
			       s->ranks[r].doing[0] ? "waits in " : "has nothing left to do",
			       s->ranks[r].doing);
}

/* No rank has become ready for long, and none of those that are not uses a processor. */
int supervisor_nothing_starts(struct supervisor *s, struct pd_error *err)
{
	char name[WHO_TEXT];
	int r = 0;

	while (r < s->count - 1 && s->ranks[r].threads > 0)
		r++;
	return pd_error_failed(err, "nothing has moved for %" PRId64 " s while starting; %s is not ready",
			       s->how->timeout_s, supervisor_who(s, r, name));
}

/* Finds out why a rank's process, or its socket, has ended. */
int supervisor_on_gone(struct supervisor *s, int r, struct pd_error *err)
{
	char fate[PD_FATE_TEXT];

	return rank_failed(s, r, err, pd_launcher_gone(s->launcher, r, fate));
}

/*
 * Returns the other rank that made a rank fail, or -1.  That one is the cause, whether it died or
 * reports an error.
 */
static int blamed(const struct supervisor *s, const json_t *message)
{
	int peer = (int)pd_member_int(message, "peer");

	if (pd_member_int(message, "cause") != PD_CAUSE_PEER)
		return -1;
	return peer >= 0 && peer < s->count ? peer : 0;
}

/* If rank q has ended, or reported an error of its own, sets the error and returns true. */
static bool is_cause(struct supervisor *s, int q, struct pd_error *err)
{
	json_t *message = NULL;
	char name[WHO_TEXT];
	int verdict;

	while ((verdict = pd_channel_receive(supervisor_channel(s, q), &message)) > 0) {
		bool failed = pd_message_is(message, "error"), own = failed && blamed(s, message) < 0;

		if (own)
			pd_error_failed(err, "%s: %s", supervisor_who(s, q, name),
					pd_member_text(message, "text"));
		s->ranks[q].lost_another |= failed;
		json_decref(message);
		if (own)
			return true;
	}
	if (verdict == 0 || s->ranks[q].lost_another)
		return false;
	supervisor_on_gone(s, q, err);
	return true;
}

/* Looks for the cause at all ranks but r, beginning with the one that r blames. */
static bool find_cause(struct supervisor *s, int r, int blames, struct pd_error *err)
{
	s->launcher->ops->look(s->launcher);
	for (int i = 0; i < s->count; i++) {
		int q = (blames + i) % s->count;

		if (q != r && !s->ranks[q].lost_another && is_cause(s, q, err))
			return true;
	}
	return false;
}

int supervisor_on_error(struct supervisor *s, int r, const json_t *message, struct pd_error *err)
{
	char name[WHO_TEXT];
	int status = (int)pd_member_int(message, "status");
	const struct pd_seat *seat = s->launcher->ops->seat(s->launcher, r);
	const char *text = pd_member_text(message, "text");
	int blames = blamed(s, message);

	/* input errors are the same for every rank of a host, so its name is enough */
	if (status == PD_EXIT_USAGE)
		return pd_error_input(err, "%s%s%s%s", seat->hosts > 1 ? "host " : "",
				      seat->hosts > 1 ? seat->host : "", seat->hosts > 1 ? ": " : "", text);
	if (blames >= 0) {
		int64_t until = pd_awake_ns(&s->awake) + CAUSE_NS;

		for (; pd_awake_ns(&s->awake) < until; usleep(1000))
			if (find_cause(s, r, blames, err))
				return -1;
	}
	return pd_error_failed(err, "%s: %s", supervisor_who(s, r, name), text);
}
