/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher seam: the processes of a run's ranks, and a channel to each.
 *
 * A launcher knows where its ranks are before it starts one.  A rank's process ends by itself or is
 * killed; that it has ended is asked, and nobody waits for it.  A channel stays until its rank is
 * killed, which every rank is in the end: what has been said is read from it after the end, too.
 */
#ifndef PD_LAUNCH_LAUNCHER_H
#define PD_LAUNCH_LAUNCHER_H

#include "launch/channel.h"
#include "topology/seat.h"

#define PD_FATE_TEXT 256

enum pd_ended { PD_STILL_RUNS, PD_ENDED_WELL, PD_ENDED_BADLY };

struct pd_launcher { const struct pd_launcher_ops *ops; };

struct pd_launcher_ops {
	const char *name;
	struct pd_launcher *(*open)(int ranks, struct pd_error *err);
	/* All ranks have been killed. */
	void (*close)(struct pd_launcher *launcher);
	const struct pd_seat *(*seat)(const struct pd_launcher *launcher, int rank);
	int (*start)(struct pd_launcher *launcher, int rank, struct pd_error *err);
	struct pd_channel *(*channel)(struct pd_launcher *launcher, int rank);
	/* One that was never started has ended. */
	enum pd_ended (*ended)(struct pd_launcher *launcher, int rank);
	/* What follows a rank's name in a sentence, such as "was killed by signal 9 (Killed)". */
	const char *(*fate)(const struct pd_launcher *launcher, int rank, char buf[PD_FATE_TEXT]);
	/* Kills it if it runs, waits for its end, and closes its channel. */
	void (*kill)(struct pd_launcher *launcher, int rank);
};

/* A process for each rank, on this machine (lib/launch/fork.c). */
extern const struct pd_launcher_ops pd_launcher_fork;

#endif
