/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/beside.h"

#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct pd_beside {
	int count;
	pid_t *pids;
};

void pd_measure_pin(int worker, int threads)
{
	cpu_set_t all, mine;
	int first = worker * threads, n = 0;

	CPU_ZERO(&mine);
	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		if (n >= first && n < first + threads)
			CPU_SET(i, &mine);
		n++;
	}
	sched_setaffinity(0, sizeof(mine), &mine);
}

/* Reports that the process cannot run beside the one that is timed. */
static void out_of_memory(size_t bytes)
{
	(void)bytes;
	_exit(PD_EXIT_FAILED);
}

/* Takes steps until it is killed by the process that started it. */
static void neighbour(const struct pd_model *model, const struct pd_measure_options *options,
		      int worker, pid_t parent)
{
	struct pd_measure_options endless = *options;
	struct pd_error err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PD_EXIT_FAILED);
	pd_mem_on_end(out_of_memory);
	pd_measure_pin(worker, options->threads);
	endless.endless = true;
	endless.progress = NULL;
	pd_measure_layers(model, &endless, &err);
	_exit(PD_EXIT_FAILED);
}

struct pd_beside *pd_beside_start(const struct pd_model *model,
				  const struct pd_measure_options *options, int count,
				  struct pd_error *err)
{
	struct pd_beside *beside = pd_zalloc(sizeof(*beside));
	struct pd_error ignored;
	pid_t parent = getpid();

	beside->pids = pd_calloc((size_t)count, sizeof(*beside->pids));
	while (beside->count < count) {
		pid_t pid = fork();

		if (pid == 0)
			neighbour(model, options, beside->count + 1, parent);
		if (pid < 0) {
			pd_error_failed(err, "fork: %s", strerror(errno));
			pd_beside_end(beside, &ignored);
			return NULL;
		}
		beside->pids[beside->count++] = pid;
	}
	return beside;
}

int pd_beside_end(struct pd_beside *beside, struct pd_error *err)
{
	int result = 0, status;

	for (int i = 0; i < beside->count; i++) {
		kill(beside->pids[i], SIGKILL);
		while (waitpid(beside->pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			result = pd_error_failed(err, "a worker beside the one that was timed has "
						 "ended by itself: out of memory, perhaps");
	}
	free(beside->pids);
	free(beside);
	return result;
}
