/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's process on this machine, for the launcher that forks: pd-worker, with one end of a
 * socket as its descriptor 3, its share of the processors, and no way to outlive its parent.
 */
#ifndef PD_LAUNCH_PROCESS_H
#define PD_LAUNCH_PROCESS_H

#include "launch/launcher.h"

#include <stdbool.h>
#include <sys/types.h>

#define PD_WORKER_FD 3
#define PD_WORKER_ERROR_FD 4            /* the launcher's standard error, or nothing */

struct pd_process {
	pid_t pid;                      /* 0: not running */
	int status;                     /* of waitpid, once it has ended */
	struct pd_channel channel;
	int words;                      /* what it said before its main(); -1: nobody listens */
};

/*
 * Starts the process of a rank.  The processors that this process may use are dealt out in equal
 * shares to the ranks of this host; with fewer processors than processes, one each, in turn.
 */
int pd_process_start(struct pd_process *process, int rank, const struct pd_seat *seat,
		     struct pd_error *err);
/* Processors that this process may use, and gives to those it starts. */
int pd_process_processors(void);
/* Kills it if it runs, and waits for its end. */
void pd_process_kill(struct pd_process *process);
/* Has it ended?  (does not wait) */
bool pd_process_ended(struct pd_process *process);
/*
 * "was killed by signal 9 (Killed)", "exited with status 3", into buf; of one that did not come as
 * far as its main(), also the last line that it said, such as that a library could not be loaded.
 */
const char *pd_process_fate(const struct pd_process *process, char buf[PD_FATE_TEXT]);

/* In the process that was started, first of all: its standard error is that of the launcher. */
void pd_process_begun(void);

#endif
