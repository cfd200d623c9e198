/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what is seen of processes that sleep, run, are stopped, and are gone. */
#include "base/activity.h"

#include "base/error.h"
#include "tap.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOKS 2000                      /* ten seconds, until a process does what it is to do */

static volatile unsigned long spun;

static pid_t start(bool spins)
{
	pid_t pid = fork();

	if (pid < 0)
		pd_bug("fork");
	while (pid == 0)
		if (spins)
			spun++;
		else
			pause();
	return pid;
}

/* Looks until the process is seen to do that; returns whether it is. */
static bool comes_to(pid_t pid, long *ticks, enum pd_activity what)
{
	for (int i = 0; i < LOOKS; i++) {
		if (pd_activity_of(pid, ticks) == what)
			return true;
		usleep(5000);
	}
	return false;
}

int main(void)
{
	pid_t sleeps = start(false), runs = start(true);
	long ticks[2] = { 0 };
	bool always = true;

	ok(comes_to(sleeps, &ticks[0], PD_ASLEEP), "a process that pauses sleeps");
	/* however few of the machine's processors are left to it */
	for (int i = 0; i < 50; i++) {
		always = always && pd_activity_of(runs, &ticks[1]) == PD_RUNS;
		usleep(2000);
	}
	ok(always, "one that computes runs, whenever one looks");
	ok(ticks[1] > 0 || comes_to(runs, &ticks[1], PD_RUNS), "its processor time is noted");
	kill(runs, SIGSTOP);
	waitpid(runs, NULL, WUNTRACED);
	ok(comes_to(runs, &ticks[1], PD_ASLEEP), "stopped, it sleeps");
	kill(runs, SIGKILL);
	kill(sleeps, SIGKILL);
	waitpid(runs, NULL, 0);
	waitpid(sleeps, NULL, 0);
	ok(pd_activity_of(sleeps, &ticks[0]) == PD_ASLEEP, "what is gone does nothing");
	return done_testing();
}
