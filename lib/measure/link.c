/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/link.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_NS INT64_C(30000000000)
#define GRACE_NS INT64_C(1000000000)
#define SMALL_BYTES 8
#define SMALL_ROUNDS 2000
#define LARGE_BYTES ((size_t)1024 * 1024)
#define LARGE_ROUNDS 100
#define PLACES 16                       /* for large messages: each finds another one */
#define WARM_UP(rounds) ((rounds) / 5)

/* How a child ended; what matters more for the message last. */
enum ending { GOOD, SILENT, LONELY, FAILED, DIED };

/* What a child says at its end; short enough to arrive in one piece. */
struct answer {
	enum ending ending;
	int64_t bandwidth_bytes_per_s;
	int64_t latency_ns;
	struct pd_error err;
};

/* Descriptors, -1 when closed; [r] is that of child r. */
struct wires {
	int socket[2];                  /* between the children */
	int in[2], out[2];              /* answers to the parent */
};

/* One of the two children. */
struct end {
	int rank;
	struct pd_gate gate;
	struct pd_transport *transport;
	char ready;
	char *in, *out;                 /* PLACES * LARGE_BYTES each */
};

static int move(int fd, void *buf, size_t bytes, bool out, struct pd_error *err)
{
	while (bytes > 0) {
		ssize_t n = out ? send(fd, buf, bytes, MSG_NOSIGNAL) : read(fd, buf, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return pd_error_failed(err, "link: no address from the other process: %s",
					       n < 0 ? strerror(errno) : "it has ended");
		buf = (char *)buf + n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Gives the other one this end's address, and connects with both. */
static int meet(struct end *end, int socket, struct pd_error *err)
{
	const struct pd_transport_ops *ops = end->transport->ops;
	const void *addresses[2], *mine;
	size_t lengths[2];
	char *other;
	int status;

	ops->address(end->transport, &mine, &lengths[end->rank]);
	if (move(socket, &lengths[end->rank], sizeof(lengths[0]), true, err) < 0 ||
	    move(socket, (void *)mine, lengths[end->rank], true, err) < 0 ||
	    move(socket, &lengths[1 - end->rank], sizeof(lengths[0]), false, err) < 0)
		return -1;
	other = pd_zalloc(lengths[1 - end->rank]);
	status = move(socket, other, lengths[1 - end->rank], false, err);
	addresses[end->rank] = mine;
	addresses[1 - end->rank] = other;
	if (status == 0)
		status = ops->connect(end->transport, addresses, lengths, err);
	free(other);
	return status;
}

static int until(struct end *end, const struct pd_event *ev, struct pd_error *err)
{
	struct pd_transport *t = end->transport;
	struct pollfd fds[2] = {
		{.fd = end->gate.fd, .events = POLLIN}, {.fd = t->ops->fd(t), .events = POLLIN},
	};

	while (!pd_event_done(ev)) {
		uint64_t count;
		int n = t->ops->progress(t);

		if (n < 0)
			break;
		if (n > 0 || t->ops->arm(t) != 0)
			continue;
		poll(fds, 2, -1);
		if (fds[0].revents && read(end->gate.fd, &count, sizeof(count)) < 0 &&
		    errno != EAGAIN)
			break;
	}
	if (pd_event_done(ev) && !pd_event_failed(ev))
		return 0;
	return pd_error_failed(err, "link: %s", end->gate.err.text);
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/*
 * What is sent has just been computed, and so lies in the sender's caches; what is received goes
 * where something else was a while ago.  Rank 0 begins when rank 1 has written its message too.
 */
static int make_message(struct end *end, char *out, size_t bytes, int round, struct pd_error *err)
{
	const struct pd_transport_ops *ops = end->transport->ops;
	struct pd_event ready;
	int status;

	memset(out, round + 1, bytes);
	pd_event_arm(&ready);
	status = end->rank == 0 ? ops->recv(end->transport, 1, 1, &end->ready, 1, NULL, &ready)
				: ops->send(end->transport, 0, 1, &end->ready, 1, NULL, &ready);
	return status < 0 ? -1 : until(end, &ready, err);
}

/*
 * Rank 0 begins, rank 1 answers.  Half a round trip, the lower quartile: what the machine does
 * for others meanwhile only adds, and a round trip needs both processes to be let alone.
 */
static int ping_pong(struct end *end, size_t bytes, int rounds, int64_t *half_ns_p,
		     struct pd_error *err)
{
	const struct pd_transport_ops *ops = end->transport->ops;
	int64_t *took_ns = pd_calloc((size_t)rounds, sizeof(*took_ns));
	int status = 0;

	for (int i = -WARM_UP(rounds); i < rounds && status == 0; i++) {
		size_t place = (size_t)(i + rounds) % PLACES * bytes;
		struct pd_event sent, received;
		int64_t begun_ns;

		status = make_message(end, end->out + place, bytes, i, err);
		begun_ns = pd_now_ns();
		pd_event_arm(&sent);
		pd_event_arm(&received);
		if (status == 0)
			status = ops->recv(end->transport, 1 - end->rank, 0, end->in + place, bytes,
					   NULL, &received);
		if (status == 0 && end->rank == 1)
			status = until(end, &received, err);
		if (status == 0)
			status = ops->send(end->transport, 1 - end->rank, 0, end->out + place, bytes,
					   NULL, &sent);
		if (status == 0)
			status = until(end, &received, err);
		if (i >= 0)
			took_ns[i] = pd_now_ns() - begun_ns;
		if (status == 0)
			status = until(end, &sent, err);
	}
	qsort(took_ns, (size_t)rounds, sizeof(*took_ns), by_value);
	*half_ns_p = took_ns[rounds / 4] / 2;
	free(took_ns);
	return status;
}

static int measure(struct end *end, struct answer *answer)
{
	int64_t half_ns = 0;

	if (ping_pong(end, SMALL_BYTES, SMALL_ROUNDS, &answer->latency_ns, &answer->err) < 0 ||
	    ping_pong(end, LARGE_BYTES, LARGE_ROUNDS, &half_ns, &answer->err) < 0)
		return -1;
	if (half_ns <= answer->latency_ns)
		return pd_error_failed(&answer->err, "link: %zu bytes take no longer than %d",
				       LARGE_BYTES, SMALL_BYTES);
	answer->bandwidth_bytes_per_s =
		(int64_t)((double)LARGE_BYTES * 1e9 / (double)(half_ns - answer->latency_ns));
	return 0;
}

/* The life of a child. */
static int live(const struct pd_transport_ops *ops, int rank, int socket, struct answer *answer)
{
	struct end end = {.rank = rank};
	struct pd_transport_config config = {.rank = rank, .ranks = 2, .gate = &end.gate};
	int status;

	if (pd_gate_init(&end.gate, &answer->err) < 0)
		return -1;
	end.transport = ops->open(&config, &answer->err);
	if (!end.transport)
		return -1;
	end.in = pd_zalloc(PLACES * LARGE_BYTES);
	end.out = pd_zalloc(PLACES * LARGE_BYTES);
	/* all zeros, but of memory of its own */
	memset(end.in, 1, PLACES * LARGE_BYTES);
	memset(end.out, 1, PLACES * LARGE_BYTES);
	status = meet(&end, socket, &answer->err);
	if (status < 0)
		answer->ending = LONELY;
	else
		status = measure(&end, answer);
	ops->close(end.transport);
	return status;
}

static void hang_up(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static pid_t start(const struct pd_transport_ops *ops, int rank, struct wires *wires)
{
	pid_t parent = getpid(), pid = fork();
	struct answer answer = {.ending = GOOD};

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	/* so that the end of one is seen by the others */
	hang_up(&wires->socket[1 - rank]);
	hang_up(&wires->out[1 - rank]);
	if (live(ops, rank, wires->socket[rank], &answer) < 0 && answer.ending == GOOD)
		answer.ending = FAILED;
	_exit(write(wires->out[rank], &answer, sizeof(answer)) != sizeof(answer));
}

static void hear(int fd, int rank, struct answer *answer)
{
	if (read(fd, answer, sizeof(*answer)) == sizeof(*answer))
		return;
	answer->ending = DIED;
	pd_error_failed(&answer->err, "link: process %d of 2 died", rank + 1);
}

/* Both answers, or why not. */
static int listen_to(const int in[2], int64_t limit_ns, struct answer answers[2],
		     struct pd_error *err)
{
	int64_t end_ns = pd_now_ns() + limit_ns, left_ns;
	const struct answer *worst = &answers[0];

	for (int r = 0; r < 2; r++) {
		answers[r].ending = SILENT;
		pd_error_failed(&answers[r].err, "link: no result within %.1f s",
				(double)limit_ns / 1e9);
	}
	while ((left_ns = end_ns - pd_now_ns()) > 0 &&
	       (answers[0].ending == SILENT || answers[1].ending == SILENT)) {
		struct pollfd fds[2];

		for (int r = 0; r < 2; r++)
			fds[r] = (struct pollfd){
				.fd = answers[r].ending == SILENT ? in[r] : -1, .events = POLLIN,
			};
		if (poll(fds, 2, (int)(left_ns / 1000000) + 1) <= 0)
			continue;
		for (int r = 0; r < 2; r++) {
			if (!fds[r].revents)
				continue;
			hear(in[r], r, &answers[r]);
			/* the other one soon knows, or never */
			if (answers[r].ending != GOOD && end_ns > pd_now_ns() + GRACE_NS)
				end_ns = pd_now_ns() + GRACE_NS;
		}
	}
	if (answers[1].ending > worst->ending)
		worst = &answers[1];
	if (worst->ending == GOOD)
		return 0;
	*err = worst->err;
	return -1;
}

static int measure_in_children(const struct pd_transport_ops *ops, int64_t limit_ns,
			       struct wires *wires, struct answer answers[2], struct pd_error *err)
{
	pid_t pids[2] = {-1, -1};
	int status = 0;

	for (int r = 0; r < 2 && status == 0; r++) {
		pids[r] = start(ops, r, wires);
		if (pids[r] < 0)
			status = pd_error_failed(err, "link: fork: %s", strerror(errno));
	}
	for (int r = 0; r < 2; r++) {
		hang_up(&wires->socket[r]);
		hang_up(&wires->out[r]);
	}
	if (status == 0)
		status = listen_to(wires->in, limit_ns, answers, err);
	for (int r = 0; r < 2; r++) {
		if (pids[r] <= 0)
			continue;
		kill(pids[r], SIGKILL);
		while (waitpid(pids[r], NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	return status;
}

int pd_measure_link_within(const struct pd_transport_ops *ops, int64_t limit_ns,
			   int64_t *bandwidth_bytes_per_s_p, int64_t *latency_ns_p,
			   struct pd_error *err)
{
	struct wires wires = {.socket = {-1, -1}, .in = {-1, -1}, .out = {-1, -1}};
	struct answer answers[2];
	int status = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wires.socket);

	for (int r = 0; r < 2 && status == 0; r++) {
		int ends[2];

		status = pipe2(ends, O_CLOEXEC);
		if (status == 0) {
			wires.in[r] = ends[0];
			wires.out[r] = ends[1];
		}
	}
	status = status < 0 ? pd_error_failed(err, "link: no pipe: %s", strerror(errno))
			    : measure_in_children(ops, limit_ns, &wires, answers, err);
	for (int r = 0; r < 2; r++) {
		hang_up(&wires.socket[r]);
		hang_up(&wires.in[r]);
		hang_up(&wires.out[r]);
	}
	if (status < 0)
		return -1;
	*bandwidth_bytes_per_s_p = answers[0].bandwidth_bytes_per_s;
	*latency_ns_p = answers[0].latency_ns;
	return 0;
}

int pd_measure_link(const struct pd_transport_ops *ops, int64_t *bandwidth_bytes_per_s_p,
		    int64_t *latency_ns_p, struct pd_error *err)
{
	return pd_measure_link_within(ops, LIMIT_NS, bandwidth_bytes_per_s_p, latency_ns_p, err);
}
