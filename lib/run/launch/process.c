/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/process.h"

#include "base/mem.h"
#include "base/processors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER "pd-worker"
#define WORDS_BYTES_MOST 16384          /* of what a worker has said, that is looked at */

/* Selects the processors of share `index` of `count`; returns how many. */
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

/* Finds pd-worker beside the running program (in a build tree), or where it was installed. */
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

/* Moves a descriptor away from where another will go; -1 stays that. */
static int move_away(int *fd)
{
	if (*fd >= 0)
		*fd = fcntl(*fd, F_DUPFD_CLOEXEC, PD_WORKER_EXCHANGE_FD + 1);
	return *fd;
}

/*
 * Gives pd-worker its descriptors: the socket, its end of the exchange, if there is one, and, where
 * `words` collects what it says before its main(), the launcher's standard error for later.
 */
static int pass(int fd, int exchange, int words)
{
	int error = words < 0 ? -1 : STDERR_FILENO;
	bool exchanges = exchange >= 0;

	if (move_away(&fd) < 0 || (words >= 0 && (move_away(&words) < 0 || move_away(&error) < 0)) ||
	    (exchanges && move_away(&exchange) < 0))
		return -1;
	if (dup2(fd, PD_WORKER_FD) < 0)
		return -1;
	close(PD_WORKER_EXCHANGE_FD);   /* whatever this process was given there */
	if (exchanges && dup2(exchange, PD_WORKER_EXCHANGE_FD) < 0)
		return -1;
	return words < 0 || (dup2(error, PD_WORKER_ERROR_FD) >= 0 && dup2(words, STDERR_FILENO) >= 0)
	       ? 0 : -1;
}

void pd_process_begun(void)
{
	char text[4096];
	off_t at = 0;
	ssize_t n;

	if (fcntl(PD_WORKER_ERROR_FD, F_GETFD) < 0)
		return;
	while ((n = pread(STDERR_FILENO, text, sizeof(text), at)) > 0) {
		if (write(PD_WORKER_ERROR_FD, text, (size_t)n) != n)
			break;
		at += n;
	}
	if (ftruncate(STDERR_FILENO, 0) == 0)
		dup2(PD_WORKER_ERROR_FD, STDERR_FILENO);
	close(PD_WORKER_ERROR_FD);
}

/*
 * These signals ask a program to end.  They reach the whole process group from a terminal,
 * timeout(1) or a batch system, and every process from systemd; the launcher alone decides how its
 * ranks end.  SIGTSTP is not among them: a worker stops and continues with the others.
 */
static const int launchers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 };

static void child(const struct pd_process *process, const char *path, int fd, pid_t parent,
		  const cpu_set_t *cpus, bool shared, int rank)
{
	sigset_t none;
	char number[16];

	/* before signals are unblocked: one that is pending is dropped */
	for (size_t i = 0; i < PD_COUNT(launchers); i++)
		signal(launchers[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
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
	snprintf(number, sizeof(number), "%d", rank);
	if (pass(fd, process->exchange, process->words) == 0)
		execl(path, WORKER, number, (char *)NULL);
	dprintf(process->words, "%s: %s\n", path, strerror(errno));
	_exit(PD_EXIT_FAILED);
}

int pd_process_start_on(struct pd_process *process, int fd, int rank, const struct pd_seat *seat,
			struct pd_error *err)
{
	pid_t parent = getpid();
	char path[PATH_MAX];
	cpu_set_t cpus;
	int threads;

	if (find_worker(path, sizeof(path), err) < 0)
		return -1;
	threads = share(seat->sharer, seat->sharers, &cpus);
	process->words = memfd_create("words", MFD_CLOEXEC);
	if (process->words < 0)
		return pd_error_failed(err, "rank %d cannot be started: %s", rank, strerror(errno));
	process->pid = fork();
	if (process->pid == 0)
		child(process, path, fd, parent, &cpus,
		      threads * seat->sharers > pd_processors(), rank);
	if (process->pid > 0)
		return 0;
	process->pid = 0;
	return pd_error_failed(err, "fork: %s", strerror(errno));
}

int pd_process_start(struct pd_process *process, int rank, const struct pd_seat *seat,
		     struct pd_error *err)
{
	int pair[2], status;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return pd_error_failed(err, "socketpair: %s", strerror(errno));
	status = pd_process_start_on(process, pair[1], rank, seat, err);
	close(pair[1]);
	if (status < 0)
		close(pair[0]);
	else
		pd_channel_init(&process->channel, pair[0], PD_SEND_PATIENCE_S);
	return status;
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
	if (process->words >= 0)
		close(process->words);
	process->words = -1;
}

/* Is it words, and no rule, nor a frame of a backtrace, which begins with its number? */
static bool says_something(const char *line)
{
	line += strspn(line, " \t");
	return *line && !strchr("=-*#0123456789", *line) &&
	       strpbrk(line, "abcdefghijklmnopqrstuvwxyz");
}

/* Reads the last line of a file that says something, without its newline; "" if there is none. */
static void last_line(int words, char *line, size_t size)
{
	char text[WORDS_BYTES_MOST + 1], *begin;
	off_t end = words >= 0 ? lseek(words, 0, SEEK_END) : 0;
	off_t from = end > WORDS_BYTES_MOST ? end - WORDS_BYTES_MOST : 0;
	ssize_t n = end > 0 ? pread(words, text, WORDS_BYTES_MOST, from) : 0;

	line[0] = 0;
	text[n > 0 ? n : 0] = 0;
	while (!line[0] && text[0]) {
		begin = strrchr(text, '\n');
		if (says_something(begin ? begin + 1 : text))
			snprintf(line, size, "%.*s", (int)size - 1,
				 begin ? begin + 1 : text);
		*(begin ? begin : text) = 0;
	}
}

const char *pd_process_fate(const struct pd_process *process, char buf[PD_FATE_TEXT])
{
	char line[160];
	int n;

	if (WIFSIGNALED(process->status))
		n = snprintf(buf, PD_FATE_TEXT, "was killed by signal %d (%s)",
			     WTERMSIG(process->status), strsignal(WTERMSIG(process->status)));
	else
		n = snprintf(buf, PD_FATE_TEXT, "exited with status %d",
			     WEXITSTATUS(process->status));
	last_line(process->words, line, sizeof(line));
	if (line[0])
		snprintf(buf + n, PD_FATE_TEXT - (size_t)n, " (%s)", line);
	return buf;
}
