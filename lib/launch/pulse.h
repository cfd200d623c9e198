/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says {"event": "alive"} every second from a thread of its own, while a process does
 * something long that is not a hang: makes kernels, reads data, writes a checkpoint.
 */
#ifndef PD_LAUNCH_PULSE_H
#define PD_LAUNCH_PULSE_H

#include "launch/channel.h"

#include <pthread.h>
#include <stdbool.h>

struct pd_pulse {
	struct pd_channel *channel;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool running, stop;
};

void pd_pulse_begin(struct pd_pulse *pulse, struct pd_channel *channel);
/* A no-op when it has not begun. */
void pd_pulse_end(struct pd_pulse *pulse);

#endif
