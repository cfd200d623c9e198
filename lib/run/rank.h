/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a rank, from the launcher's first message to its last. */
#pragma once

#include "base/error.h"
#include "launch/channel.h"
#include "launch/exchange.h"

/* A task that a rank's process may do instead of training; a message of its own begins it. */
struct pd_rank_task {
	const char *event;
	int (*run)(struct pd_channel *channel, struct pd_exchange *exchange, const json_t *message,
		   struct pd_error *err);
};

/*
 * Runs rank `number`, or one of the other tasks, of which there is a list that ends with NULL; fd leads to the launcher, exchange_fd to its exchange of addresses, if it has
 * one, or is -1.  Returns the exit status.  Errors are reported to
 * the launcher, running out of memory included (pd_mem_on_end).
 */
enum pd_exit pd_rank_main(int number, int fd, int exchange_fd, const struct pd_rank_task *const *others);
