/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher seam starts the processes of a run's ranks and gives a channel to each.
 *
 * A launcher knows each rank's seat before it starts one.  A rank's process ends by itself or is
 * killed; ended() asks and does not wait.  A channel stays open until its rank is killed, as every
 * rank is in the end, so that messages can be read after the process has ended.
 *
 * A launcher also says what a rank's process does (base/activity.h): silence is held against one
 * that sleeps, and against none that computes or that its host gives no time.  What many ranks are
 * told is compressed once (packed.h).  A path may have any bytes, which JSON has not: message.h
 * carries them.  Over the channel go messages and, between them, the rank's part of the trace, as
 * a stream (channel.h): nothing else is shared.
 */
#pragma once

#include "base/activity.h"
#include "base/drift.h"
#include "run/launch/channel.h"
#include "topology/seat.h"

#define PD_FATE_TEXT 256
#define PD_SEND_PATIENCE_S 60           /* for a rank, which may be starting, to take what it is told */

enum pd_ended { PD_STILL_RUNS, PD_ENDED_WELL, PD_ENDED_BADLY };

struct pd_launcher { const struct pd_launcher_ops *ops; };

struct pd_launcher_ops {
	const char *name;
	struct pd_launcher *(*open)(int ranks, struct pd_error *err);
	/* Frees the launcher; all ranks have been killed before. */
	void (*close)(struct pd_launcher *launcher);
	const struct pd_seat *(*seat)(const struct pd_launcher *launcher, int rank);
	/*
	 * Returns how many processors all ranks have together.  Hosts under one kernel (containers)
	 * may have the same ones, which count once.
	 */
	int (*processors)(const struct pd_launcher *launcher);
	/*
	 * Measures the clock of a rank's host again, and how it has drifted since its seat was known;
	 * zeroes where it is this process's.  To be called for all ranks in order, while they run.
	 */
	struct pd_drift (*drift)(struct pd_launcher *launcher, int rank);
	int (*start)(struct pd_launcher *launcher, int rank, struct pd_error *err);
	struct pd_channel *(*channel)(struct pd_launcher *launcher, int rank);
	/* Returns whether a rank's process has ended; one that was never started has. */
	enum pd_ended (*ended)(struct pd_launcher *launcher, int rank);
	/*
	 * Returns what a rank's process does and did since the last call, which is to be a second ago or
	 * more.
	 */
	enum pd_activity (*activity)(struct pd_launcher *launcher, int rank);
	/*
	 * A descriptor that can be read when there is news of ranks that are lost with their hosts,
	 * and what takes that news: the channel of such a rank ends.  -1: nobody has such news.
	 */
	int (*fd)(const struct pd_launcher *launcher);
	void (*look)(struct pd_launcher *launcher);
	/* Says how a rank ended, as the end of a sentence: "was killed by signal 9 (Killed)". */
	const char *(*fate)(const struct pd_launcher *launcher, int rank, char buf[PD_FATE_TEXT]);
	/* Kills a rank's process if it runs, waits for its end, and closes its channel. */
	void (*kill)(struct pd_launcher *launcher, int rank);
};

/* Says why a rank's channel has ended, as fate() does: its process, which may take two seconds for that, has ended, too. */
const char *pd_launcher_gone(struct pd_launcher *launcher, int rank, char fate[PD_FATE_TEXT]);

/* Forks a process for each rank, on this machine (lib/run/launch/fork.c). */
extern const struct pd_launcher_ops pd_launcher_fork;
