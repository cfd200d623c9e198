/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The task seam is the other end of a launcher's: what the process of a rank is there for, from the first
 * message to the last.
 */
#pragma once

#include "run/launch/channel.h"
#include "run/launch/exchange.h"

/* What the process has from its launcher. */
struct pd_rank_process {
	int rank;
	struct pd_channel channel;
	struct pd_exchange exchange;    /* of addresses */
};

struct pd_rank_task {
	const char *event;              /* the message that begins it */
	/* Returns -1 where it failed; the process then ends with all that the task has. */
	int (*run)(struct pd_rank_process *process, const json_t *message, struct pd_error *err);
};

/*
 * Runs one of the tasks, of which there is a list that ends with NULL, in the process of a rank; fd leads to the
 * launcher, exchange_fd to its exchange of addresses, if it has one, or is -1.  Returns the exit status.  Errors
 * are reported to the launcher, running out of memory included (pd_mem_on_end).
 */
enum pd_exit pd_rank_main(int rank, int fd, int exchange_fd, const struct pd_rank_task *const *tasks);
