/* SPDX-License-Identifier: Apache-2.0 */
/* This launcher starts every rank as a child of this process, on this machine. */
#include "run/launch/launcher.h"

#include "base/mem.h"
#include "base/processors.h"
#include "run/launch/process.h"

#include <stdlib.h>
#include <unistd.h>

struct forked {
	struct pd_seat seat;
	struct pd_process process;
};

struct launcher {
	struct pd_launcher base;
	struct forked *ranks;
};

static struct forked *forked(const struct pd_launcher *launcher, int rank)
{
	return &((const struct launcher *)launcher)->ranks[rank];
}

static struct pd_launcher *fork_open(int ranks, struct pd_error *err)
{
	struct launcher *launcher = pd_zalloc(sizeof(*launcher));
	char host[PD_SEAT_HOST] = "";

	/* gethostname() does not end a name that it cuts off */
	gethostname(host, sizeof(host) - 1);
	launcher->base.ops = &pd_launcher_fork;
	launcher->ranks = pd_calloc((size_t)ranks, sizeof(*launcher->ranks));
	for (int r = 0; r < ranks; r++) {
		struct pd_seat *seat = &launcher->ranks[r].seat;

		*seat = (struct pd_seat){ .local = r, .locals = ranks, .hosts = 1, .sharer = r,
					  .sharers = ranks, .device = r, .device_sharers = ranks };
		memcpy(seat->host, host, sizeof(host));
		launcher->ranks[r].process = (struct pd_process){ .channel.fd = -1, .words = -1,
								  .exchange = -1 };
	}
	return &launcher->base;
}

static void fork_close(struct pd_launcher *launcher)
{
	free(((struct launcher *)launcher)->ranks);
	free(launcher);
}

static const struct pd_seat *fork_seat(const struct pd_launcher *launcher, int rank)
{
	return &forked(launcher, rank)->seat;
}

static int fork_processors(const struct pd_launcher *launcher)
{
	return pd_processors();
}

static struct pd_drift fork_drift(struct pd_launcher *launcher, int rank)
{
	return (struct pd_drift){ 0 };
}

static int fork_start(struct pd_launcher *launcher, int rank, struct pd_error *err)
{
	struct forked *f = forked(launcher, rank);

	return pd_process_start(&f->process, rank, &f->seat, err);
}

static struct pd_channel *fork_channel(struct pd_launcher *launcher, int rank)
{
	return &forked(launcher, rank)->process.channel;
}

static enum pd_ended fork_ended(struct pd_launcher *launcher, int rank)
{
	struct pd_process *process = &forked(launcher, rank)->process;

	if (!pd_process_ended(process))
		return PD_STILL_RUNS;
	return process->status == 0 ? PD_ENDED_WELL : PD_ENDED_BADLY;
}

static enum pd_activity fork_activity(struct pd_launcher *launcher, int rank)
{
	struct pd_process *process = &forked(launcher, rank)->process;

	return pd_activity_of(process->pid, &process->ticks);
}

/* A channel ends with its rank. */
static int fork_fd(const struct pd_launcher *launcher)
{
	return -1;
}

static void fork_look(struct pd_launcher *launcher)
{
}

static const char *fork_fate(const struct pd_launcher *launcher, int rank, char buf[PD_FATE_TEXT])
{
	return pd_process_fate(&forked(launcher, rank)->process, buf);
}

static void fork_kill(struct pd_launcher *launcher, int rank)
{
	pd_process_kill(&forked(launcher, rank)->process);
}

const struct pd_launcher_ops pd_launcher_fork = {
	.name = "fork",
	.open = fork_open,
	.close = fork_close,
	.seat = fork_seat,
	.processors = fork_processors,
	.drift = fork_drift,
	.start = fork_start,
	.channel = fork_channel,
	.ended = fork_ended,
	.activity = fork_activity,
	.fd = fork_fd,
	.look = fork_look,
	.fate = fork_fate,
	.kill = fork_kill,
};
