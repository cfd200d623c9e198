/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/pulse.h"

#include <errno.h>
#include <time.h>

static void *pulse_main(void *argument)
{
	struct pd_pulse *pulse = argument;
	struct timespec until;

	pthread_mutex_lock(&pulse->lock);
	while (!pulse->stop) {
		/* from now on: a process that was stopped for long does not catch up */
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		while (!pulse->stop &&
		       pthread_cond_timedwait(&pulse->ended, &pulse->lock, &until) != ETIMEDOUT)
			;
		if (!pulse->stop)
			pd_channel_send(pulse->channel, json_pack("{s:s}", "event", "alive"), NULL);
	}
	pthread_mutex_unlock(&pulse->lock);
	return NULL;
}

void pd_pulse_begin(struct pd_pulse *pulse, struct pd_channel *channel)
{
	pthread_condattr_t monotonic;

	*pulse = (struct pd_pulse){ .channel = channel };
	pthread_mutex_init(&pulse->lock, NULL);
	/* whoever sets the time of day does not stop the heartbeat */
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&pulse->ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* without it, the work had better be quick */
	pulse->running = pthread_create(&pulse->thread, NULL, pulse_main, pulse) == 0;
}

void pd_pulse_end(struct pd_pulse *pulse)
{
	if (!pulse->running)
		return;
	pthread_mutex_lock(&pulse->lock);
	pulse->stop = true;
	pthread_cond_signal(&pulse->ended);
	pthread_mutex_unlock(&pulse->lock);
	pthread_join(pulse->thread, NULL);
	pulse->running = false;
}
