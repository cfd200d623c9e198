/* SPDX-License-Identifier: Apache-2.0 */
/* Watches ranks, signals and the clock until all is done. */
#include "run/supervisor/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank may be late by LATE_NS, and is seen to sleep by two looks at least. */
static int64_t silence_ns(const struct supervisor *s)
{
	const struct pd_supervision *how = s->how;
	int64_t ns = (how->silence_s < how->timeout_s ? how->silence_s : how->timeout_s) * SECOND_NS;

	return ns > LATE_NS ? ns : LATE_NS + 1;
}

/*
 * Looks at what a rank's process does, once a second.  Where it is late, time that it sleeps counts, from
 * its last message on; the first look is what the next is compared with.  While ranks start, one that runs
 * gets on.
 */
static void look_at(struct supervisor *s, int r, bool late)
{
	struct watched *w = &s->ranks[r];
	int64_t now = pd_awake_ns(&s->awake);
	enum pd_activity activity;

	if (now - w->looked_ns < SECOND_NS)
		return;
	activity = s->launcher->ops->activity(s->launcher, r);
	if (late && w->asleep_ns == 0)
		w->asleep_ns = LATE_NS;
	else if (late && activity == PD_ASLEEP)
		w->asleep_ns += now - w->looked_ns;
	if (activity == PD_RUNS && !s->connected)
		s->moved_ns = now;
	w->looked_ns = now;
}

bool supervisor_is_silent(struct supervisor *s, int r)
{
	int64_t now = pd_awake_ns(&s->awake);
	bool late = now - s->ranks[r].heard_ns > LATE_NS;

	if (late || (!s->connected && now - s->moved_ns > LATE_NS))
		look_at(s, r, late);
	return late && s->ranks[r].asleep_ns >= silence_ns(s);
}

static int check_silence(struct supervisor *s, struct pd_error *err)
{
	for (int r = 0; r < s->count; r++)
		if (supervisor_is_silent(s, r))
			return supervisor_rank_silent(s, r, err);
	/* ranks report progress once a second, and perhaps late */
	if (pd_awake_ns(&s->awake) - s->moved_ns <= s->how->timeout_s * SECOND_NS + LATE_NS)
		return 0;
	return s->connected ? supervisor_nothing_moves(s, err) : supervisor_nothing_starts(s, err);
}

/*
 * Nobody can follow the training any more.  What has been trained is kept: the run ends as when
 * asked to stop, and the last sentence says why (supervisor_lost_output).
 */
static int on_lost_output(struct supervisor *s, struct pd_error *err)
{
	if (s->stop_asked)
		return 0;
	if (s->job->lists)
		return supervisor_lost_output(s, err);
	s->stop_asked = true;
	supervisor_ask_stop(s);
	return 0;
}

int supervisor_watch(struct supervisor *s, struct pd_error *err)
{
	struct pollfd *fds = pd_calloc((size_t)s->count + 2, sizeof(*fds));
	struct pd_launcher *launcher = s->launcher;
	int status = 0;

	while (s->done < s->count && status == 0) {
		for (int r = 0; r < s->count; r++)
			fds[r] = (struct pollfd){ .fd = supervisor_channel(s, r)->fd,
						  .events = POLLIN };
		fds[s->count] = (struct pollfd){ .fd = s->signal_fd, .events = POLLIN };
		fds[s->count + 1] = (struct pollfd){ .fd = launcher->ops->fd(launcher),
						     .events = POLLIN };
		if (poll(fds, (nfds_t)s->count + 2, 1000) < 0 && errno != EINTR) {
			status = pd_error_failed(err, "poll: %s", strerror(errno));
			break;
		}
		if (fds[s->count].revents)
			supervisor_read_signals(s);
		if (s->at_once)
			break;
		if (fds[s->count + 1].revents)
			launcher->ops->look(launcher);
		for (int r = 0; r < s->count && status == 0; r++)
			if (fds[r].revents)
				status = supervisor_read_rank(s, r, err);
		if (supervisor_gives_up(s)) {
			/* the loss that led to bad weights was sent before these */
			for (int r = 0; r < s->count && status == 0; r++)
				status = supervisor_read_rank(s, r, err);
			break;
		}
		if (status == 0)
			status = check_silence(s, err);
		if (status == 0 && s->report.lost)
			status = on_lost_output(s, err);
		/* interrupted at the start: there is nothing to finish */
		if (status == 0 && s->stop_asked && !s->connected)
			break;
	}
	free(fds);
	return status;
}

/* Lets all ranks exit once every checkpoint is written. */
int supervisor_settle(struct supervisor *s, struct pd_error *err)
{
	struct pd_launcher *launcher = s->launcher;

	while (supervisor_writes(s)) {
		supervisor_read_signals(s);
		if (s->at_once)
			return 0;
		launcher->ops->look(launcher);
		for (int r = 0; r < s->count; r++)
			if (supervisor_read_rank(s, r, err) < 0)
				return -1;
		if (check_silence(s, err) < 0)
			return -1;
		usleep(1000);
	}
	supervisor_tell_all(s, json_pack("{s:s}", "event", "exit"));
	for (int r = 0; r < s->count; r++) {
		char fate[PD_FATE_TEXT], name[WHO_TEXT];
		enum pd_ended ended;

		supervisor_heard(s, r);
		while ((ended = launcher->ops->ended(launcher, r)) == PD_STILL_RUNS &&
		       !supervisor_is_silent(s, r))
			usleep(500);
		if (ended != PD_ENDED_WELL)
			return pd_error_failed(err, "%s %s after its work was done",
					       supervisor_who(s, r, name),
					       ended == PD_STILL_RUNS ? "hangs"
					       : launcher->ops->fate(launcher, r, fate));
	}
	return 0;
}
