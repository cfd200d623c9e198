/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/process.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER "pd-worker"

/* The processors of share `index` of `count`; returns how many. */
static int share(int index, int count, cpu_set_t *out)
{
	cpu_set_t all;
	int cpus[CPU_SETSIZE], n = 0, first, last;

	CPU_ZERO(out);
	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return 0;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all))
			cpus[n++] = i;
	if (count >= n) {
		CPU_SET(cpus[index % n], out);
		return 1;
	}
	first = (int)((long)n * index / count);
	last = first + n / count;
	for (int i = first; i < last; i++)
		CPU_SET(cpus[i], out);
	return last - first;
}

int pd_process_processors(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

int pd_process_share(int index, int count)
{
	cpu_set_t cpus;

	return share(index, count, &cpus);
}

/*
 * pd-worker is beside the program that runs (a build tree), or where it was installed.
 */
static int find_worker(char *path, size_t size, struct pd_error *err)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n > 0) {
		self[n] = 0;
		slash = strrchr(self, '/');
		if (slash) {
			*slash = 0;
			if ((size_t)snprintf(path, size, "%s/%s", self, WORKER) < size &&
			    access(path, X_OK) == 0)
				return 0;
		}
	}
	snprintf(path, size, "%s/%s", PD_LIBEXECDIR, WORKER);
	if (access(path, X_OK) == 0)
		return 0;
	return pd_error_failed(err, "%s not found beside this program nor in %s", WORKER,
			       PD_LIBEXECDIR);
}

/* Descriptors of pd-worker: its socket, and file, or none (-1). */
static int pass(int fd, int file)
{
	/* out of the way: it may be where the socket goes */
	if (file >= 0 && (file = fcntl(file, F_DUPFD_CLOEXEC, PD_WORKER_FILE_FD + 1)) < 0)
		return -1;
	if (fd == PD_WORKER_FD ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, PD_WORKER_FD) < 0)
		return -1;
	return file < 0 || dup2(file, PD_WORKER_FILE_FD) >= 0 ? 0 : -1;
}

static void child(const char *path, int fd, int file, pid_t parent, const cpu_set_t *cpus,
		  bool shared, int index)
{
	sigset_t none;
	char number[16];

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Ctrl-C reaches the whole terminal: the launcher decides what becomes of us */
	signal(SIGINT, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(PD_EXIT_FAILED);
	sched_setaffinity(0, sizeof(*cpus), cpus);
	/* threads that spin take the processor from the other ranks on it */
	if (shared)
		setenv("OMP_WAIT_POLICY", "passive", 0);
	/* UCX makes a named segment of shared memory while it loads, unless told not to */
	setenv("UCX_MEM_EVENTS", "n", 0);
	/* a GPU's streams get queues of their own: one whose transfer waits for another rank must
	 * not stand before one that this other rank waits for */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	if (pass(fd, file) < 0)
		_exit(PD_EXIT_FAILED);
	snprintf(number, sizeof(number), "%d", index);
	execl(path, WORKER, number, (char *)NULL);
	_exit(PD_EXIT_FAILED);
}

int pd_process_start(struct pd_process *process, int index, int count, int file,
		     struct pd_error *err)
{
	pid_t parent = getpid();
	char path[PATH_MAX];
	cpu_set_t cpus;
	int pair[2], threads;

	if (find_worker(path, sizeof(path), err) < 0)
		return -1;
	threads = share(index, count, &cpus);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return pd_error_failed(err, "socketpair: %s", strerror(errno));
	process->pid = fork();
	if (process->pid == 0)
		child(path, pair[1], file, parent, &cpus,
		      threads * count > pd_process_processors(), index);
	close(pair[1]);
	if (process->pid < 0) {
		process->pid = 0;
		close(pair[0]);
		return pd_error_failed(err, "fork: %s", strerror(errno));
	}
	pd_channel_init(&process->channel, pair[0]);
	return 0;
}

bool pd_process_ended(struct pd_process *process)
{
	if (process->pid && waitpid(process->pid, &process->status, WNOHANG) == process->pid)
		process->pid = 0;
	return process->pid == 0;
}

void pd_process_kill(struct pd_process *process)
{
	if (process->pid && !pd_process_ended(process)) {
		kill(process->pid, SIGKILL);
		while (waitpid(process->pid, &process->status, 0) < 0 && errno == EINTR)
			;
		process->pid = 0;
	}
	pd_channel_release(&process->channel);
}

const char *pd_process_fate(const struct pd_process *process, char *buf)
{
	if (WIFSIGNALED(process->status))
		snprintf(buf, 96, "was killed by signal %d (%s)", WTERMSIG(process->status),
			 strsignal(WTERMSIG(process->status)));
	else
		snprintf(buf, 96, "exited with status %d", WEXITSTATUS(process->status));
	return buf;
}
