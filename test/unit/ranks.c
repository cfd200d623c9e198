/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "run/device/rehearse.h"
#include "unit/ranks.h"
#include "unit/ucx_leaks.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
	_Atomic int arrived;
	_Atomic pid_t pid[RANKS_MAX];
	size_t length[RANKS_MAX];
	char address[RANKS_MAX][4096];
	double result[RANKS_MAX][RANKS_RESULT];
};

bool rank_ok(struct rank *me, bool ok, const char *what)
{
	if (!ok)
		fprintf(stderr, "# rank %d of %d: not so: %s\n", me->rank, me->ranks, what);
	return ok;
}

int ranks_step(struct rank *me, int timeout_ms)
{
	struct pd_transport *t = me->transport;
	struct pollfd fds[2] = {
		{.fd = me->gate.fd, .events = POLLIN}, {.fd = t->ops->fd(t), .events = POLLIN},
	};
	uint64_t count;
	int n = t->ops->progress(t);

	if (n != 0)
		return n;
	if (t->ops->arm(t) != 0)
		return 0;
	poll(fds, 2, timeout_ms);
	if (fds[0].revents && read(me->gate.fd, &count, sizeof(count)) < 0)
		return 0;
	return 0;
}

void ranks_barrier(struct rank *me)
{
	int before = atomic_fetch_add(&me->shared->arrived, 1);
	int wanted = (before / me->ranks + 1) * me->ranks;

	while (atomic_load(&me->shared->arrived) < wanted)
		if (!me->transport || ranks_step(me, 1) < 0)
			usleep(1000);
}

void ranks_outlive(struct rank *me, int other)
{
	struct pollfd end = {
		.fd = (int)syscall(SYS_pidfd_open, atomic_load(&me->shared->pid[other]), 0),
		.events = POLLIN,
	};

	/* The parent may already have reaped the process. */
	if (end.fd < 0)
		return;
	poll(&end, 1, -1);
	close(end.fd);
}

int ranks_until(struct rank *me, struct pd_event *ev)
{
	while (!pd_event_done(ev))
		if (ranks_step(me, -1) < 0)
			break;
	return pd_event_done(ev) && !pd_event_failed(ev) ? 0 : -1;
}

int ranks_send(struct rank *me, int peer, uint64_t tag, const void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done)
{
	pd_event_arm(done);
	return me->transport->ops->send(me->transport, peer, tag, buf, bytes, after, done);
}

int ranks_recv(struct rank *me, int peer, uint64_t tag, void *buf, size_t bytes,
	       const struct pd_event *after, struct pd_event *done)
{
	pd_event_arm(done);
	return me->transport->ops->recv(me->transport, peer, tag, buf, bytes, after, done);
}

bool ranks_staged;
int64_t ranks_under_way_bytes;
const struct pd_device_ops *ranks_device;
const char *ranks_how;
const struct pd_transport_provider *ranks_provider = &pd_provider_ucx;
bool ranks_apart;
const char *ranks_address = "";
int ranks_limit_s = 60;

/* Rehearses the sums of an all-reduce. */
static int rehearse(struct rank *me, struct pd_error *err)
{
	struct pd_stream *stream = me->device->ops->stream.open(me->device, err);
	int status = stream ? pd_rehearse_sum(me->device, stream, &me->gate, err) : -1;

	if (stream)
		me->device->ops->stream.close(stream);
	return status;
}

static int allocations;

static void *counted_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	allocations++;
	return pd_device_cpu.memory.host_alloc(device, bytes, err);
}

/* Has the device count what is allocated of the host's memory. */
static void count_allocations(struct pd_device *device)
{
	static struct pd_device_ops counting;

	counting = pd_device_cpu;
	counting.memory.host_alloc = counted_alloc;
	device->ops = &counting;
}

int ranks_allocations(void)
{
	return allocations;
}

static int open_device(struct rank *me, struct pd_error *err)
{
	struct pd_device_config config = { .gate = &me->gate, .threads = 1, .ordinal = me->rank };

	me->device = (ranks_device ? ranks_device : &pd_device_cpu)->open(&config, err);
	if (me->device && ranks_staged)
		count_allocations(me->device);
	return me->device ? 0 : -1;
}

/* Opens routes as a rank of a run does. */
static int open_routes(struct rank *me, struct pd_error *err)
{
	struct pd_routes_config config = {
		.how = ranks_how, .rank = me->rank, .ranks = me->ranks, .gate = &me->gate,
		.seat = { .local = me->rank, .locals = me->ranks, .device = me->rank },
	};

	pd_routes_prepare(ranks_how, ranks_device, me->rank, me->ranks, &config.seat);
	if (open_device(me, err) < 0)
		return -1;
	config.device = me->device;
	me->transport = pd_routes_open(&config, err);
	return me->transport ? rehearse(me, err) : -1;
}

static const struct pd_connector routes_connector = { .address = pd_routes_address, .connect = pd_routes_connect };

static int connect_all(struct rank *me, const struct pd_connector *connector, struct pd_error *err)
{
	const void *bytes, *addresses[RANKS_MAX];
	size_t length;

	connector->address(me->transport, &bytes, &length);
	if (length > sizeof(me->shared->address[0]))
		return pd_error_failed(err, "an address of %zu bytes", length);
	memcpy(me->shared->address[me->rank], bytes, length);
	me->shared->length[me->rank] = length;
	ranks_barrier(me);
	for (int r = 0; r < me->ranks; r++)
		addresses[r] = me->shared->address[r];
	if (connector->connect(me->transport, addresses, me->shared->length, err) < 0)
		return -1;
	ranks_barrier(me);      /* a rank that ended earlier could not be reached */
	return 0;
}

static int join(struct rank *me, struct pd_error *err)
{
	struct pd_seat seat = { .locals = 1, .hosts = me->ranks };
	struct pd_transport_config config = {
		.rank = me->rank, .ranks = me->ranks, .gate = &me->gate,
		.seat = ranks_apart ? &seat : NULL, .asked = true,
	};

	snprintf(seat.host, sizeof(seat.host), "h%d", me->rank);
	snprintf(seat.address, sizeof(seat.address), "%s", ranks_address);
	if (pd_gate_init(&me->gate, err) != 0)
		return -1;
	if (ranks_device)
		return open_routes(me, err) < 0 ? -1 : connect_all(me, &routes_connector, err);
	me->transport = ranks_provider->open(&config, err);
	if (!me->transport || connect_all(me, ranks_provider->connector, err) < 0)
		return -1;
	if (!ranks_staged)
		return 0;
	me->host = me->transport;
	config.host = &(struct pd_provided){ ranks_provider, me->host };
	config.under_way_bytes = ranks_under_way_bytes;
	if (open_device(me, err) < 0)
		return -1;
	config.device = me->device;
	me->transport = pd_provider_staged.open(&config, err);
	return me->transport ? 0 : -1;
}

static int live(struct rank *me, pid_t parent, int (*body)(struct rank *me))
{
	struct pd_error err;
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	atomic_store(&me->shared->pid[me->rank], getpid());
	if (getppid() != parent)        /* the parent ended before prctl() */
		return 1;
	if (join(me, &err) != 0) {
		fprintf(stderr, "# rank %d: %s\n", me->rank, err.text);
		return 1;
	}
	status = body(me);
	if (ranks_apart && me->transport && !atomic_load(&me->gate.failed)) /* others would lose a rank that ends */
		ranks_barrier(me);
	if (atomic_load(&me->gate.failed))
		fprintf(stderr, "# rank %d: %s\n", me->rank, me->gate.err.text);
	if (me->transport)
		me->transport->ops->close(me->transport);
	if (me->host)
		me->host->ops->close(me->host);
	if (me->device)
		me->device->ops->close(me->device);
	pd_gate_release(&me->gate);
	return status != 0;
}

static int reap(const pid_t *pids, int n, int victim)
{
	int64_t limit_ns = pd_now_ns() + ranks_limit_s * INT64_C(1000000000);
	int failed = 0;

	for (int r = 0; r < n; r++) {
		int status;

		while (waitpid(pids[r], &status, WNOHANG) == 0) {
			if (pd_now_ns() > limit_ns)
				kill(pids[r], SIGKILL);
			usleep(1000);
		}
		if (r != victim && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
			fprintf(stderr, "# rank %d ended with status %#x\n", r, (unsigned)status);
			failed++;
		}
	}
	return failed;
}

int run_ranks(int n, int (*body)(struct rank *me), double *results, int victim)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[RANKS_MAX];
	pid_t parent = getpid();
	int failed;

	fflush(stdout);
	for (int r = 0; r < n; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			struct rank me = {
				.rank = r, .ranks = n, .shared = shared,
				.result = shared->result[r],
			};

			exit(live(&me, parent, body));
		}
	}
	failed = reap(pids, n, victim);
	if (results)
		memcpy(results, shared->result, (size_t)n * sizeof(shared->result[0]));
	munmap(shared, sizeof(*shared));
	return failed;
}
