/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl_ranks.h"

#include "base/mem.h"
#include "engine/device/submit.h"
#include "nccl.h"
#include "tap.h"
#include "ucx_leaks.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world world;

/* The rank that the calling thread is. */
static __thread struct rank *self;

int counted;
bool queues_first = true;
bool two_hosts;
bool sums;
const char *refusal;

static int count_places(struct pd_error *why)
{
	queues_first = queues_first && getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	return counted > 0 ? counted : world.places;
}

static void describe(struct pd_device *device, struct pd_device_info *info_p)
{
	memset(info_p, 0, sizeof(*info_p));
	snprintf(info_p->place, sizeof(info_p->place), "place %d", self->number % world.places);
}

/* Lets a stream's thread make communicators for its rank's GPU. */
static int use_device(void *context, void *native, struct pd_error *err)
{
	double_nccl_use_device(((struct rank *)context)->number % world.places);
	return 0;
}

static int used(void *context, struct pd_error *err)
{
	return 0;
}

static struct pd_stream *open_stream(struct pd_device *device, struct pd_error *err)
{
	struct pd_stream *stream = pd_device_cpu.stream.open(device, err);
	struct pd_call call = { .post = use_device, .check = used, .context = self };

	if (stream)
		pd_submit_call(stream, &call, NULL);
	return stream;
}

void expect(struct rank *me, bool good, const char *what)
{
	if (good)
		return;
	me->failures++;
	diag("rank %d of %d: not so: %s", me->number, me->world->n, what);
}

bool *peers_of(const struct rank *me)
{
	bool *peers = pd_calloc(MOST, sizeof(*peers));

	for (int r = 0; r < me->world->n; r++)
		peers[r] = !me->world->chain || abs(r - me->number) <= 1;
	return peers;
}

struct pd_seat seat_of(int r, int n)
{
	struct pd_seat seat = { .host = "even", .local = r, .locals = n, .device = r, .device_sharers = n };

	if (two_hosts) {
		strcpy(seat.host, r % 2 == 1 ? "odd" : "even");
		seat.hosts = 2;
		seat.local = r / 2;
		seat.locals = seat.device_sharers = (n + 1 - r % 2) / 2;
		seat.device = seat.local;
	}
	return seat;
}

void open_device(struct rank *me)
{
	struct pd_device_config device = { .threads = 1, .gate = &me->gate };

	self = me;
	me->device = pd_device_cpu.open(&device, &me->err);
	me->ops = pd_device_cpu;
	me->ops.count = count_places;
	me->ops.describe = describe;
	me->ops.stream.open = open_stream;
	me->device->ops = &me->ops;
}

static void open_rank(struct rank *me)
{
	bool *peers = peers_of(me);
	struct pd_routes_config config = {
		.how = me->world->how, .rank = me->number, .ranks = me->world->n,
		.seat = seat_of(me->number, me->world->n), .peers = peers, .gate = &me->gate,
	};

	open_device(me);
	config.device = me->device;
	me->transport = pd_routes_open(&config, &me->err);
	free(peers);
	if (sums)
		open_sums(me);
	pd_routes_address(me->transport, &me->world->addresses[me->number], &me->world->lengths[me->number]);
}

static void *live(void *argument)
{
	struct rank *me = argument;
	struct world *w = me->world;

	pd_gate_init(&me->gate, &me->err);
	open_rank(me);
	pthread_barrier_wait(&w->barrier);
	me->connected = pd_routes_connect(me->transport, w->addresses, w->lengths, &me->err) == 0;
	if (me->connected && !refusal)
		w->body(me);
	else
		expect(me, refusal && !me->connected && strstr(me->err.text, refusal), me->err.text);
	pthread_barrier_wait(&w->barrier);
	me->transport->ops->close(me->transport);
	if (sums)
		close_sums(me);
	pd_device_cpu.close(me->device);
	pd_gate_release(&me->gate);
	return NULL;
}

int run(int n, const char *how, int places, bool chain, void (*body)(struct rank *me))
{
	const struct pd_device_ops counts = { .count = count_places };
	const struct pd_seat seat = seat_of(0, n);
	int failures = 0;

	world = (struct world){ .n = n, .how = how, .places = places, .chain = chain,
				.body = body };
	pthread_barrier_init(&world.barrier, NULL, (unsigned)n);
	/* Threads share an environment, which is prepared as rank 0's process would do it. */
	pd_routes_prepare(how, &counts, 0, n, &seat);
	for (int r = 0; r < n; r++) {
		world.ranks[r] = (struct rank){ .world = &world, .number = r };
		pthread_create(&world.ranks[r].thread, NULL, live, &world.ranks[r]);
	}
	for (int r = 0; r < n; r++) {
		pthread_join(world.ranks[r].thread, NULL);
		failures += world.ranks[r].failures;
	}
	pthread_barrier_destroy(&world.barrier);
	if (double_nccl_living() != 0) {
		diag("%d communicators are left", double_nccl_living());
		failures++;
	}
	if (double_nccl_stuck() != 0) {
		diag("%d aborts waited for other communicators' transfers", double_nccl_stuck());
		failures++;
	}
	double_nccl_reset();
	return failures;
}

int step(struct rank *me, struct pd_transport *t)
{
	struct pollfd fds[2] = { { .fd = me->gate.fd, .events = POLLIN },
				 { .fd = t->ops->fd(t), .events = POLLIN } };
	int moved = t->ops->progress(t);
	uint64_t count;

	if (moved != 0)
		return moved;
	if (t->ops->arm(t) == 0)
		poll(fds, 2, 100);
	return read(me->gate.fd, &count, sizeof(count)) < 0 ? 0 : 0;
}

bool until(struct rank *me, struct pd_event *ev)
{
	while (!pd_event_done(ev))
		if (step(me, me->transport) < 0)
			break;
	return pd_event_done(ev) && !pd_event_failed(ev);
}
