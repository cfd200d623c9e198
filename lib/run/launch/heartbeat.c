/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/heartbeat.h"

#include <errno.h>
#include <time.h>

static void *heartbeat_main(void *argument)
{
	struct pd_heartbeat *heartbeat = argument;
	struct timespec until;

	pthread_mutex_lock(&heartbeat->lock);
	while (!heartbeat->stop) {
		/* from now: a process that was stopped for long does not make up for it */
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		while (!heartbeat->stop &&
		       pthread_cond_timedwait(&heartbeat->ended, &heartbeat->lock, &until) !=
		       ETIMEDOUT)
			;
		if (!heartbeat->stop)
			pd_channel_send(heartbeat->channel, json_pack("{s:s}", "event", "alive"),
					NULL);
	}
	pthread_mutex_unlock(&heartbeat->lock);
	return NULL;
}

void pd_heartbeat_begin(struct pd_heartbeat *heartbeat, struct pd_channel *channel)
{
	pthread_condattr_t monotonic;

	*heartbeat = (struct pd_heartbeat){ .channel = channel };
	pthread_mutex_init(&heartbeat->lock, NULL);
	/* the heartbeat goes on when the time of day is set */
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&heartbeat->ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/*
	 * without a thread no heartbeat is sent, and the supervisor waits as long as it does for
	 * others
	 */
	heartbeat->running = pthread_create(&heartbeat->thread, NULL, heartbeat_main, heartbeat) ==
		0;
}

void pd_heartbeat_end(struct pd_heartbeat *heartbeat)
{
	if (!heartbeat->running)
		return;
	pthread_mutex_lock(&heartbeat->lock);
	heartbeat->stop = true;
	pthread_cond_signal(&heartbeat->ended);
	pthread_mutex_unlock(&heartbeat->lock);
	pthread_join(heartbeat->thread, NULL);
	heartbeat->running = false;
}
