/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's process on this machine, as the launcher that forks starts it: pd-worker, with one end
 * of a socket as its descriptor 3 and its share of the processors.  It does not outlive its parent.
 */
#pragma once

#include "run/launch/launcher.h"

#include <stdbool.h>
#include <sys/types.h>

#define PD_WORKER_FD 3
#define PD_WORKER_ERROR_FD 4            /* the launcher's standard error, or nothing */
#define PD_WORKER_EXCHANGE_FD 5         /* the launcher's exchange of addresses, or nothing */

struct pd_process {
	pid_t pid;                      /* 0: it does not run */
	int status;                     /* from waitpid, once it has ended */
	long ticks;                     /* its processor time when it was last looked at */
	struct pd_channel channel;
	int words;                      /* what it said before its main(); -1: nobody listens */
	int exchange;                   /* the rank's end of its launcher's exchange; -1: none */
};

/*
 * Starts the process of a rank.  The processors that this process may use are dealt out in equal
 * shares to the ranks that have the same; with fewer processors than processes, one each, in turn.
 */
int pd_process_start(struct pd_process *process, int rank, const struct pd_seat *seat,
		     struct pd_error *err);
/* Starts it where the rank's end of its channel is there: fd, which stays open here, too. */
int pd_process_start_on(struct pd_process *process, int fd, int rank, const struct pd_seat *seat,
			struct pd_error *err);
/* Kills the process if it runs, and waits for its end. */
void pd_process_kill(struct pd_process *process);
/* Returns whether the process has ended, without waiting. */
bool pd_process_ended(struct pd_process *process);
/*
 * Writes "was killed by signal 9 (Killed)" or "exited with status 3" into buf.  Where the process
 * did not reach its main(), its last line follows, such as that a library could not be loaded.
 */
const char *pd_process_fate(const struct pd_process *process, char buf[PD_FATE_TEXT]);

/* Is called first in the started process: gives it the launcher's standard error. */
void pd_process_begun(void);
