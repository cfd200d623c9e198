/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a heartbeat goes on when the time of day is set. */
#include "run/launch/heartbeat.h"

#include "tap.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 20000                  /* milliseconds that a loaded machine may take */

static long ahead_s;                    /* seconds by which the time of day is ahead */

/* Replaces the C library's function, so that the time of day seems to have been set. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	int status = (int)syscall(SYS_clock_gettime, clock, time);

	if (clock == CLOCK_REALTIME)
		time->tv_sec += ahead_s;
	return status;
}

static void beats(long seconds, const char *what)
{
	struct pd_channel here, there;
	struct pd_heartbeat heartbeat;
	json_t *message = NULL;
	int pair[2];

	ahead_s = seconds;
	if (!ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "a socket"))
		return;
	pd_channel_init(&here, pair[0], 0);
	pd_channel_init(&there, pair[1], 0);
	pd_heartbeat_begin(&heartbeat, &here);
	for (int n = 0; n < 2; n++) {
		ok(pd_channel_wait(&there, LIMIT_MS, &message) == 1 &&
		   pd_message_is(message, "alive"), "%s: alive, %d", what, n + 1);
		json_decref(message);
		message = NULL;
	}
	pd_heartbeat_end(&heartbeat);
	pd_channel_release(&here);
	pd_channel_release(&there);
}

int main(void)
{
	beats(0, "a clock that is right");
	beats(3600, "one that is an hour ahead");
	return done_testing();
}
