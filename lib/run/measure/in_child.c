/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/in_child.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct answer {
	int status;
	double figure;
	struct pd_error err;
};

static int answers_to;                  /* where the child sends its answer */

static void out_of_memory(size_t bytes)
{
	struct answer answer = { .status = -1 };
	char text[PD_MEM_TEXT];

	pd_error_failed(&answer.err, "%s", pd_mem_sentence(bytes, text));
	_exit(write(answers_to, &answer, sizeof(answer)) != sizeof(answer));
}

/* Runs the child, whose output is discarded. */
static void run_child(pd_measure_function *measure, const void *of, int out)
{
	struct answer answer = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	answers_to = out;
	pd_mem_on_end(out_of_memory);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	answer.status = measure(of, &answer.figure, &answer.err);
	_exit(write(out, &answer, sizeof(answer)) != sizeof(answer));
}

int pd_measure_in_child(const char *who, pd_measure_function *measure, const void *of, double *figure_p,
			struct pd_error *err)
{
	pid_t parent = getpid(), pid;
	struct answer answer;
	int ends[2];
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return pd_error_failed(err, "no pipe: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		run_child(measure, of, ends[1]);
	}
	close(ends[1]);
	n = pid < 0 ? 0 : read(ends[0], &answer, sizeof(answer));
	close(ends[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	if (n != sizeof(answer))
		return pd_error_failed(err, "%s: the process that watched them died", who);
	if (answer.status < 0) {
		*err = answer.err;
		return pd_error_prefix(err, "%s", who);
	}
	*figure_p = answer.figure;
	return 0;
}
