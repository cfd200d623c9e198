/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/pulse.h"

#include <errno.h>
#include <time.h>

static void *pulse_main(void *argument)
{
	struct pd_pulse *pulse = argument;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	pthread_mutex_lock(&pulse->lock);
	while (!pulse->stop) {
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
	*pulse = (struct pd_pulse){ .channel = channel };
	pthread_mutex_init(&pulse->lock, NULL);
	pthread_cond_init(&pulse->ended, NULL);
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
