/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/shared_processor.h"

#include "base/mem.h"
#include "run/measure/bench.h"
#include "run/measure/companions.h"
#include "run/measure/in_child.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP 3                       /* steps */
#define ROUNDS 3
#define ENOUGH_NS INT64_C(200000000)    /* processor time of a round's steps, of which it has one at
					   least */

struct turns {
	const struct pd_model *model;
	struct pd_measure_options options;
};

static int64_t spent_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int take_steps(struct pd_bench *bench, int64_t count, int64_t *spent_ns_p,
		      struct pd_error *err)
{
	struct pd_event events[BENCH_WHOLE_PARTS] = { 0 };
	int64_t before_ns = spent_ns();

	for (int64_t i = 0; i < count; i++)
		if (pd_bench_step(bench, 0, BENCH_WHOLE_PARTS, events, err) < 0)
			return -1;
	*spent_ns_p = spent_ns() - before_ns;
	return 0;
}

/* Stops itself once it is warm; then takes steps whenever it may go on, until it is killed. */
static void take_turns(const struct turns *turns, pid_t parent)
{
	struct pd_bench bench;
	struct pd_error err;
	int64_t spent_ns;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || pd_bench_open(&bench, turns->model, &turns->options, &err) < 0 ||
	    take_steps(&bench, WARM_UP, &spent_ns, &err) < 0)
		_exit(PD_EXIT_FAILED);
	raise(SIGSTOP);
	while (take_steps(&bench, 1, &spent_ns, &err) == 0)
		;
	_exit(PD_EXIT_FAILED);
}

/* The first step of either kind finds the caches of the other, and does not count. */
static int compare(struct pd_bench *bench, pid_t other, double *in_turns_p, struct pd_error *err)
{
	int64_t spent_ns[2], sum_ns[2] = { 0, 0 }, count, ignored_ns;

	if (take_steps(bench, WARM_UP, &ignored_ns, err) < 0 ||
	    take_steps(bench, 1, spent_ns, err) < 0)
		return -1;
	count = spent_ns[0] > 0 && spent_ns[0] < ENOUGH_NS ? ENOUGH_NS / spent_ns[0] : 1;
	for (int i = 0; i < 2 * ROUNDS; i++) {
		kill(other, i % 2 ? SIGCONT : SIGSTOP);
		if (take_steps(bench, 1, &ignored_ns, err) < 0 ||
		    take_steps(bench, count, &spent_ns[i % 2], err) < 0)
			return -1;
		sum_ns[i % 2] += spent_ns[i % 2];
	}
	*in_turns_p = sum_ns[0] > 0 ? (double)sum_ns[1] / (double)sum_ns[0] : 1;
	return 0;
}

static int measure(const void *of, double *in_turns_p, struct pd_error *err)
{
	const struct turns *turns = of;
	pid_t parent = getpid(), other;
	struct pd_bench bench;
	int status = 0;

	pd_measure_pin(0, 1);
	other = fork();
	if (other == 0)
		take_turns(turns, parent);
	if (other < 0)
		return pd_error_failed(err, "fork: %s", strerror(errno));
	while (waitpid(other, &status, WUNTRACED) < 0 && errno == EINTR)
		;
	if (!WIFSTOPPED(status))
		return pd_error_failed(err, "one of them has ended by itself: out of memory, perhaps");
	status = pd_bench_open(&bench, turns->model, &turns->options, err);
	if (status == 0) {
		status = compare(&bench, other, in_turns_p, err);
		pd_bench_close(&bench);
	}
	kill(other, SIGKILL);
	while (waitpid(other, NULL, 0) < 0 && errno == EINTR)
		;
	return status;
}

int pd_measure_shared_processor(const struct pd_model *model, const struct pd_measure_options *options,
				double *in_turns_p, struct pd_error *err)
{
	struct turns turns = { .model = model, .options = *options };

	turns.options.threads = 1;
	return pd_measure_in_child("two workers that were to take turns", measure, &turns, in_turns_p,
				   err);
}
