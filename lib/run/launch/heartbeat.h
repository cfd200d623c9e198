/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heartbeat sends {"event": "alive"} every second from a thread of its own, while a process does
 * something that takes long but is not a hang: makes kernels, reads data, writes a checkpoint.
 */
#pragma once

#include "run/launch/channel.h"

#include <pthread.h>
#include <stdbool.h>

struct pd_heartbeat {
	struct pd_channel *channel;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool running, stop;
};

void pd_heartbeat_begin(struct pd_heartbeat *heartbeat, struct pd_channel *channel);
/* Does nothing where none has begun. */
void pd_heartbeat_end(struct pd_heartbeat *heartbeat);
