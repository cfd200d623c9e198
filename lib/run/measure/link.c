/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/link.h"

#include "base/activity.h"
#include "base/awake_clock.h"
#include "base/mem.h"
#include "run/measure/link_end.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS INT64_C(30000000000)
#define DEVICE_LIMIT_NS INT64_C(180000000000)   /* GPUs need time to start */
#define LOOK_MS 100
#define MOST 20                         /* times the limit, for ends that run all the time */
#define GRACE_NS INT64_C(1000000000)

/* Descriptors, -1 when closed; [r] is that of child r. */
struct wires {
	int socket[2];                  /* between the children */
	int in[2], out[2];              /* answers to the parent */
};

static void hang_up(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int answers_to;                  /* where a child sends its answer */

static void out_of_memory(size_t bytes)
{
	struct pd_link_answer answer = {.ending = PD_LINK_FAILED};
	char text[PD_MEM_TEXT];

	pd_error_failed(&answer.err, "link: %s", pd_mem_sentence(bytes, text));
	_exit(write(answers_to, &answer, sizeof(answer)) != sizeof(answer));
}

static pid_t start(const struct pd_link_ends *ends, int rank, struct wires *wires)
{
	pid_t parent = getpid(), pid = fork();
	struct pd_link_answer answer = {.ending = PD_LINK_GOOD};

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	answers_to = wires->out[rank];
	pd_mem_on_end(out_of_memory);
	pd_mem_for("the link that is timed");
	/* Close the other's end, so that each child sees when the other ends. */
	hang_up(&wires->socket[1 - rank]);
	hang_up(&wires->out[1 - rank]);
	if (pd_link_end_live(ends, rank, wires->socket[rank], &answer) < 0 &&
	    answer.ending == PD_LINK_GOOD)
		answer.ending = PD_LINK_FAILED;
	if (write(wires->out[rank], &answer, sizeof(answer)) != sizeof(answer))
		_exit(1);
	/* A device's transport is not closed, and the other end may still need this one. */
	while (ends->device)
		pause();
	_exit(0);
}

static void read_answer(int fd, int rank, struct pd_link_answer *answer)
{
	if (read(fd, answer, sizeof(*answer)) == sizeof(*answer))
		return;
	answer->ending = PD_LINK_DIED;
	pd_error_failed(&answer->err, "link: process %d of 2 died", rank + 1);
}

/* Returns whether a process did anything since the last call. */
static bool any_runs(const pid_t pids[2], long ticks[2])
{
	bool first = pd_activity_of(pids[0], &ticks[0]) != PD_ASLEEP;

	return pd_activity_of(pids[1], &ticks[1]) != PD_ASLEEP || first;
}

/*
 * Reads both answers, or returns why it cannot.  The limit is on the time in which both sleep: a busy
 * machine is not held against them.
 */
static int listen_to(const int in[2], const pid_t pids[2], int64_t limit_ns,
		     struct pd_link_answer answers[2], struct pd_error *err)
{
	struct pd_awake awake = {0};
	int64_t seen_ns = pd_awake_ns(&awake), end_ns = seen_ns + limit_ns;
	int64_t most_ns = seen_ns + MOST * limit_ns;
	long ticks[2] = {0};
	const struct pd_link_answer *worst = &answers[0];

	for (int r = 0; r < 2; r++) {
		answers[r].ending = PD_LINK_SILENT;
		pd_error_failed(&answers[r].err, "link: no result within %.1f s",
				(double)limit_ns / 1e9);
	}
	while (pd_awake_ns(&awake) < end_ns &&
	       (answers[0].ending == PD_LINK_SILENT || answers[1].ending == PD_LINK_SILENT)) {
		struct pollfd fds[2];

		for (int r = 0; r < 2; r++)
			fds[r] = (struct pollfd){
				.fd = answers[r].ending == PD_LINK_SILENT ? in[r] : -1, .events = POLLIN,
			};
		if (poll(fds, 2, LOOK_MS) <= 0) {
			int64_t now = pd_awake_ns(&awake);

			if (now < most_ns && any_runs(pids, ticks))
				end_ns += now - seen_ns;
			seen_ns = now;
			continue;
		}
		for (int r = 0; r < 2; r++) {
			if (!fds[r].revents)
				continue;
			read_answer(in[r], r, &answers[r]);
			if (answers[r].ending == PD_LINK_GOOD)
				continue;
			/* The other one will know soon, or never. */
			most_ns = pd_awake_ns(&awake) + GRACE_NS;
			if (end_ns > most_ns)
				end_ns = most_ns;
		}
	}
	if (answers[1].ending > worst->ending)
		worst = &answers[1];
	if (worst->ending == PD_LINK_GOOD)
		return 0;
	*err = worst->err;
	return -1;
}

static int measure_in_children(const struct pd_link_ends *ends, int64_t limit_ns,
			       struct wires *wires, struct pd_link_answer answers[2], struct pd_error *err)
{
	pid_t pids[2] = {-1, -1};
	int status = 0;

	for (int r = 0; r < 2 && status == 0; r++) {
		pids[r] = start(ends, r, wires);
		if (pids[r] < 0)
			status = pd_error_failed(err, "link: fork: %s", strerror(errno));
	}
	for (int r = 0; r < 2; r++) {
		hang_up(&wires->socket[r]);
		hang_up(&wires->out[r]);
	}
	if (status == 0)
		status = listen_to(wires->in, pids, limit_ns, answers, err);
	for (int r = 0; r < 2; r++) {
		if (pids[r] <= 0)
			continue;
		kill(pids[r], SIGKILL);
		while (waitpid(pids[r], NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	return status;
}

int pd_measure_link_within(const struct pd_link_ends *ends, int64_t limit_ns,
			   struct pd_link_found *found_p, struct pd_error *err)
{
	struct wires wires = {.socket = {-1, -1}, .in = {-1, -1}, .out = {-1, -1}};
	struct pd_link_answer answers[2];
	int status = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires.socket);

	for (int r = 0; r < 2 && status == 0; r++) {
		int pair[2];

		status = pipe2(pair, O_CLOEXEC);
		if (status == 0) {
			wires.in[r] = pair[0];
			wires.out[r] = pair[1];
		}
	}
	status = status < 0 ? pd_error_failed(err, "link: no pipe: %s", strerror(errno))
			    : measure_in_children(ends, limit_ns, &wires, answers, err);
	for (int r = 0; r < 2; r++) {
		hang_up(&wires.socket[r]);
		hang_up(&wires.in[r]);
		hang_up(&wires.out[r]);
	}
	if (status < 0)
		return -1;
	*found_p = answers[0].found;
	return 0;
}

int pd_measure_link(const struct pd_link_ends *ends, struct pd_link_found *found_p, struct pd_error *err)
{
	return pd_measure_link_within(ends, ends->device ? DEVICE_LIMIT_NS : LIMIT_NS, found_p, err);
}
