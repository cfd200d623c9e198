/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the transport of GPUs without a GPU: its code runs over a double of NCCL (test/double), with
 * ranks that are threads, and the CPU's device, whose streams are threads, too.
 */
#include "nccl_ranks.h"
#include "tap.h"

#include "base/clock.h"
#include "base/mem.h"
#include "nccl.h"
#include "run/transport/nccl/nccl.h"
#include "unit/dense_open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- transfers ---- */

static const size_t sizes[] = { 1, 0, 4099, 64, 1 << 20 };
#define SIZES PD_COUNT(sizes)

static char content(int from, int to, size_t t, size_t i)
{
	return (char)(from * 71 + to * 31 + (int)t * 13 + (int)(i % 251));
}

struct exchange {
	char *out[SIZES], *in[SIZES];
	struct pd_event sent[SIZES], came[SIZES];
};

static void post_to(struct rank *me, int peer, struct exchange *e, struct pd_event *ready)
{
	struct pd_transport *t = me->transport;

	for (size_t k = 0; k < SIZES; k++) {
		size_t back = SIZES - 1 - k;    /* not the sender's order */

		e->out[k] = malloc(sizes[k] + 1);
		e->in[back] = calloc(1, sizes[back] + 1);
		memset(e->out[k], 0x55, sizes[k]);      /* must not be sent */
		pd_event_arm(&e->sent[k]);
		pd_event_arm(&e->came[back]);
		expect(me, t->ops->send(t, peer, 100 + k, e->out[k], sizes[k], ready,
					&e->sent[k]) == 0 &&
		       t->ops->recv(t, peer, 100 + back, e->in[back], sizes[back],
				    k % 2 ? ready : NULL, &e->came[back]) == 0, "posted");
	}
}

static void check_from(struct rank *me, int peer, struct exchange *e)
{
	bool good = true;

	for (size_t k = 0; k < SIZES; k++) {
		expect(me, until(me, &e->sent[k]) && until(me, &e->came[k]), "a transfer is done");
		expect(me, e->came[k].start_ns <= e->came[k].end_ns, "times");
		for (size_t i = 0; i < sizes[k]; i++)
			good = good && e->in[k][i] == content(peer, me->number, k, i);
		expect(me, e->in[k][sizes[k]] == 0, "nothing behind it");
		free(e->out[k]);
		free(e->in[k]);
	}
	expect(me, good, "what came is what was sent");
}

/* Exchanges messages twice with every peer and with the rank itself. */
static void exchange(struct rank *me)
{
	struct exchange all[MOST];
	bool *peers = peers_of(me);

	for (int round = 0; round < 2; round++) {
		struct pd_event ready;

		pd_event_arm(&ready);
		for (int r = 0; r < me->world->n; r++)
			if (peers[r])
				post_to(me, r, &all[r], &ready);
		for (int i = 0; i < 5; i++)
			step(me, me->transport);
		for (int r = 0; r < me->world->n; r++)
			for (size_t k = 0; k < SIZES && peers[r]; k++)
				for (size_t i = 0; i < sizes[k]; i++)
					all[r].out[k][i] = content(me->number, r, k, i);
		pd_event_complete(&ready, 1, 2, &me->gate);
		for (int r = 0; r < me->world->n; r++)
			if (peers[r])
				check_from(me, r, &all[r]);
	}
	free(peers);
}

/* ---- many ---- */

enum { MANY = 1000 };

/* Transfers more messages than fit into a stream's queue, and than a receiver is ready to be told of. */
static void many(struct rank *me)
{
	struct pd_transport *t = me->transport;
	struct pd_event *events = pd_calloc(MANY, sizeof(*events)), go;
	int *numbers = pd_calloc(MANY, sizeof(*numbers)), other = 1 - me->number;
	bool good = true;

	pd_event_arm(&go);
	for (int i = 0; i < MANY; i++) {
		numbers[i] = me->number == 0 ? i * 3 : -1;
		pd_event_arm(&events[i]);
		if (me->number == 0)
			t->ops->send(t, other, (uint64_t)i, &numbers[i], sizeof(int), &go, &events[i]);
		else
			t->ops->recv(t, other, (uint64_t)i, &numbers[i], sizeof(int), NULL, &events[i]);
	}
	pd_event_complete(&go, 1, 2, &me->gate);
	for (int i = 0; i < MANY; i++)
		good = until(me, &events[i]) && numbers[i] == i * 3 && good;
	expect(me, good, "a thousand transfers");
	free(events);
	free(numbers);
}

/* ---- all-reduce ---- */

static float value(int rank, size_t i)
{
	return (float)((int)((i * 2654435761u + (size_t)rank * 40503u) % 16777216u) - 8388608) *
	       (rank % 2 ? 1.0f / 1048576 : 1);
}

static void reduce(struct rank *me, struct pd_allreduce how)
{
	enum { FLOATS = 10007 };
	struct pd_stream *stream = me->ops.stream.open(me->device, &me->err);
	float *buf = pd_calloc(FLOATS, sizeof(*buf));
	int ranks[MOST] = { 0, 1, 2, 3 };
	struct pd_reduction *c = dense_open(&(struct pd_reduction_config){
			.transport = me->transport, .device = me->device, .stream = stream,
			.ranks = ranks, .me = me->number, .floats = FLOATS }, &how, &me->err);
	bool good = true;

	for (uint64_t round = 0; round < 3; round++) {
		struct pd_event done;

		for (size_t i = 0; i < FLOATS; i++)
			buf[i] = value(me->number, i + round);
		pd_event_arm(&done);
		expect(me, c->ops->start(c, buf, 64 * round, NULL, &done) == 0, "begun");
		while (!pd_event_done(&done) && step(me, me->transport) >= 0)
			c->ops->progress(c, PD_REDUCTION_ALL);
		for (size_t i = 0; i < FLOATS; i++) {
			float sum = value(0, i + round);

			for (int r = 1; r < me->world->n; r++)
				sum += value(r, i + round);
			good = good && memcmp(&sum, &buf[i], sizeof(sum)) == 0;
		}
	}
	expect(me, good, "the sum in the order of the ranks, bit for bit");
	me->ops.stream.close(stream);
	c->ops->close(c);
	free(buf);
}

static void all_reduce(struct rank *me)
{
	int n = me->world->n;

	reduce(me, (struct pd_allreduce){ n, 1, 3 * n });
	pthread_barrier_wait(&me->world->barrier);
	reduce(me, (struct pd_allreduce){ n, n, n + 1 });
	pthread_barrier_wait(&me->world->barrier);
	reduce(me, (struct pd_allreduce){ n, (n + 1) / 2, 6 });
}

/* ---- failures ---- */

/* Tells whether the transport breaks with this error, for which it waits a minute at most. */
static bool breaks(struct rank *me, const char *why)
{
	int64_t end_ns = pd_now_ns() + 60 * SECOND_NS;

	while (pd_now_ns() < end_ns)
		if (step(me, me->transport) < 0) {
			bool said = strstr(me->gate.err.text, why) != NULL;

			if (!said)
				diag("rank %d: %s", me->number, me->gate.err.text);
			return said;
		}
	return false;
}

/* Events that a broken transport ends only when it is closed, and that must live until then. */
static struct pd_event late[MOST][2];
static int late_number[MOST];

static void mismatch(struct rank *me)
{
	struct pd_transport *t = me->transport;
	struct pd_event *ev = &late[me->number][0];
	int *number = &late_number[me->number];

	pd_event_arm(ev);
	if (me->number == 0) {
		t->ops->send(t, 1, 7, number, 4, NULL, ev);
		for (int i = 0; i < 20; i++)
			step(me, t);
		pthread_barrier_wait(&me->world->barrier);
		return;
	}
	/* The mismatch may be found as soon as the receive is posted, or later. */
	expect(me, t->ops->recv(t, 0, 7, number, 2, NULL, ev) < 0 || breaks(me, "expected 2"),
	       "the lengths do not fit: that is said");
	expect(me, strstr(me->gate.err.text, "rank 1: rank 0 sends 4 bytes, expected 2 (tag 0x7)"),
	       "in these words");
	expect(me, pd_event_failed(ev), "its event fails");
	pthread_barrier_wait(&me->world->barrier);
}

/* Waits for rank 1, which never sends, until NCCL finds out that it is lost. */
static void loses(struct rank *me)
{
	struct pd_transport *t = me->transport;
	struct pd_event *ev = late[me->number];
	int *number = &late_number[me->number];

	pthread_barrier_wait(&me->world->barrier);
	if (me->number == 1) {
		double_nccl_lose_all();
	} else {
		pd_event_arm(&ev[0]);
		pd_event_arm(&ev[1]);
		t->ops->recv(t, 1, 7, number, 4, NULL, &ev[0]);
		expect(me, breaks(me, "rank 0: lost rank 1: NCCL: remote process exited"),
		       "a lost rank is noticed");
		expect(me, t->ops->send(t, 1, 8, number, 4, NULL, &ev[1]) < 0,
		       "and nothing is sent any more");
	}
	pthread_barrier_wait(&me->world->barrier);
}

/* Events of transfers that still wait when the transport is closed, and an event that is never done. */
static struct pd_event left[MOST][2], never;
static int left_number[MOST];

static void leaves(struct rank *me)
{
	struct pd_transport *t = me->transport;

	for (int k = 0; k < 2; k++)
		pd_event_arm(&left[me->number][k]);
	if (me->number == 0)
		pd_event_arm(&never);
	pthread_barrier_wait(&me->world->barrier);
	t->ops->send(t, 1 - me->number, 1, &left_number[me->number], 4, &never,
		     &left[me->number][0]);
	t->ops->recv(t, 1 - me->number, 2, &left_number[me->number], 4, NULL,
		     &left[me->number][1]);
	for (int i = 0; i < 5; i++)
		step(me, t);
}

/*
 * Events of rank 0's transfers to two others, which never post: they wait on two connections when the
 * transport is closed.
 */
static struct pd_event held[2];

static void holds(struct rank *me)
{
	struct pd_transport *t = me->transport;

	for (int k = 0; k < 2 && me->number == 0; k++) {
		pd_event_arm(&held[k]);
		t->ops->send(t, 1 + k, 1, &late_number[k], 4, NULL, &held[k]);
	}
	for (int i = 0; i < 20; i++) {
		step(me, t);
		usleep(5000);
	}
}

/* Holds rank 0's transfers, and loses another rank, which is told before the aborts have ended. */
static void tells(struct rank *me)
{
	int64_t begun_ns;

	holds(me);
	pthread_barrier_wait(&me->world->barrier);
	if (me->number == 0) {
		double_nccl_slow_aborts(500);
		double_nccl_lose_all();
		begun_ns = pd_now_ns();
		/* The error names either of the two lost ranks. */
		expect(me, breaks(me, ": NCCL: remote process exited"), "a lost rank is noticed");
		expect(me, pd_now_ns() - begun_ns < 2 * SECOND_NS,
		       "four aborts of half a second each do not hold that up");
	}
	pthread_barrier_wait(&me->world->barrier);
}

static void nothing(struct rank *me)
{
}

static const char *chosen_name;
static const char *chosen_why;
static char chosen_text[256];

static void note_choice(struct rank *me)
{
	exchange(me);
	if (me->number > 0)
		return;
	chosen_name = pd_routes_chosen(me->transport, &chosen_why)->name;
	snprintf(chosen_text, sizeof(chosen_text), "%s", chosen_why ? chosen_why : "");
}

/* Expects that NCCL joins rank 1, which has its own GPU, with ranks 0 and 2, which share one: two pairs
 * of ranks, each side of which has two connections. */
static void mixed(struct rank *me)
{
	note_choice(me);
	expect(me, double_nccl_living() == 8, "NCCL connects those that share no GPU");
}

static void test_two_hosts(void)
{
	struct pd_error err = { .text = "" };
	struct rank me = { .number = 0, .world = &world };
	const void *addresses[2];
	struct pd_transport *ends[2];
	size_t lengths[2];

	two_hosts = true;
	pd_gate_init(&me.gate, &err);
	for (int r = 0; r < 2; r++) {
		struct pd_routes_config config = {
			.rank = r, .ranks = 2, .seat = seat_of(r, 2), .gate = &me.gate,
		};

		config.seat.hosts = 1;  /* the transport is told so, and has no network */
		ends[r] = pd_routes_open(&config, &err);
		pd_routes_address(ends[r], &addresses[r], &lengths[r]);
	}
	ok(pd_routes_connect(ends[0], addresses, lengths, &err) < 0, "a rank on another host");
	is_str(err.text, "rank 0 is on host even, rank 1 on host odd: ucx does not reach from one to "
	       "the other", "is not reached through shared memory");
	for (int r = 0; r < 2; r++)
		ends[r]->ops->close(ends[r]);
	pd_gate_release(&me.gate);
	two_hosts = false;
}

/* Tests hosts of two ranks that are joined by a network. */
static void test_between_hosts(void)
{
	unsetenv("NCCL_SOCKET_IFNAME");
	two_hosts = true;
	is_int(run(4, NULL, 4, false, note_choice), 0, "two hosts of two ranks");
	is_str(chosen_name, "nccl", "auto is NCCL");
	is_str(chosen_text, "", "and nothing is to be said");
	counted = 1;
	is_int(run(4, NULL, 2, true, note_choice), 0, "two hosts of one GPU each, for two ranks");
	is_str(chosen_name, "staged", "auto is staged between all");
	counted = 0;
	sums = true;
	is_int(run(4, NULL, 4, false, own_sums), 0, "NCCL's own all-reduce");
	sums = false;
	ok(!getenv("NCCL_SOCKET_IFNAME"), "NCCL's users choose the interface");
	ok(!getenv("NCCL_HOSTID") && !getenv("NCCL_NET"), "and NCCL the way between hosts");
	two_hosts = false;
}

/* ---- connections with other processes, without routes ---- */

/* Opens rank 0 with a rank 1 that is another process, which does nothing, or ends. */
static struct pd_transport *open_alone(struct rank *me, pid_t other, int64_t limit_ns)
{
	const struct pd_device_ops *ops = &pd_device_cpu;
	struct pd_device_config device = { .threads = 1, .gate = &me->gate };
	struct pd_transport_config ends = { .ranks = 2, .gate = &me->gate };
	static const bool peers[2] = { false, true };
	char *ids = pd_nccl_ids(0, 2, peers, &me->err);
	const char *both[2] = { ids, ids };
	const pid_t pids[2] = { getpid(), other };
	struct pd_provided host = { .by = &pd_provider_ucx };
	struct pd_nccl_config config = {
		.host = &host, .ranks = 2, .peers = peers, .gate = &me->gate, .ids = both, .pids = pids,
		.limit_ns = limit_ns,
	};
	const void *address, *addresses[2];
	struct pd_transport *t;
	size_t lengths[2];

	pd_gate_init(&me->gate, &me->err);
	me->device = config.device = ops->open(&device, &me->err);
	host.transport = pd_provider_ucx.open(&ends, &me->err);
	host.by->connector->address(host.transport, &address, &lengths[0]);
	addresses[0] = addresses[1] = address;
	lengths[1] = lengths[0];
	host.by->connector->connect(host.transport, addresses, lengths, &me->err);
	t = pd_nccl_open(&config, &me->err);
	pd_transport_ucx.close(host.transport);
	free(ids);
	return t;
}

static void test_absent_peer(bool dies)
{
	struct rank me = { .world = &world };
	int64_t begun_ns = pd_now_ns();
	pid_t other = fork();

	if (other == 0) {
		usleep(dies ? 300000 : 30000000);
		_exit(0);
	}
	ok(!open_alone(&me, other, dies ? 30 * SECOND_NS : SECOND_NS / 2),
	   "no connection with a process that %s", dies ? "ends" : "does nothing");
	is_str(me.err.text, dies ? "rank 0: lost rank 1: its process has ended"
	       : "rank 0: NCCL: no connection with rank 1 within 0.5 s; --transport=staged does without",
	       "that is said");
	ok(me.err.cause == PD_CAUSE_PEER && me.err.peer == 1, "and because of whom");
	ok(pd_now_ns() - begun_ns < 10 * SECOND_NS, "in time");
	is_int(double_nccl_living(), 0, "no communicator is left");
	pd_device_cpu.close(me.device);
	pd_gate_release(&me.gate);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	double_nccl_reset();
}

static void test_old_version(void)
{
	static const bool peers[2] = { false, true };
	struct pd_error err;

	double_nccl_say_version(22105);
	ok(!pd_nccl_ids(0, 2, peers, &err), "NCCL 2.21 is not taken");
	is_str(err.text, "NCCL 2.21 is too old: from 2.22 on several connections can be ended together",
	       "that is said");
	double_nccl_say_version(2708);
	ok(!pd_nccl_ids(0, 2, peers, &err) && strncmp(err.text, "NCCL 2.7 is too old", 19) == 0,
	   "nor is one from when versions had fewer digits");
	double_nccl_reset();
}

int main(void)
{
	unsetenv("NCCL_HOSTID");
	unsetenv("NCCL_SOCKET_IFNAME");
	unsetenv("NCCL_RAS_ENABLE");
	unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
	alarm(1200);     /* ends waits that would never end */
	for (int n = 1; n <= MOST; n++)
		is_int(run(n, "nccl", n, false, exchange), 0, "%d ranks, all with all", n);
	is_int(run(4, "nccl", 4, true, exchange), 0, "4 ranks, each with its neighbours");
	is_int(run(2, "nccl", 2, false, many), 0, "a thousand transfers");
	for (int n = 2; n <= MOST; n++)
		is_int(run(n, "nccl", n, false, all_reduce), 0, "all-reduce of %d ranks", n);

	test_own_sums();
	test_no_own_sums("staged", true);
	test_no_own_sums(NULL, false);

	is_int(run(2, "nccl", 2, false, mismatch), 0, "lengths that differ are found");
	is_int(run(2, "nccl", 2, false, loses), 0, "what NCCL finds wrong is told");
	is_int(run(2, "nccl", 2, false, leaves), 0, "closed before it is done");
	for (int i = 0; i < 4; i++)
		ok(pd_event_failed(&left[i / 2][i % 2]), "what was under way has failed");
	is_int(run(3, "nccl", 3, false, holds), 0, "closed while two lanes wait on the GPU");
	ok(pd_event_failed(&held[0]) && pd_event_failed(&held[1]), "which fails both transfers");
	is_int(run(3, "nccl", 3, false, tells), 0, "lost while two lanes wait on the GPU");
	test_absent_peer(false);
	test_absent_peer(true);
	test_old_version();

	is_int(run(3, NULL, 3, false, note_choice), 0, "each rank has a GPU");
	is_str(chosen_name, "nccl", "auto is NCCL");
	is_str(chosen_text, "", "and nothing is to be said");
	is_int(run(3, NULL, 2, false, note_choice), 0, "two share one");
	is_str(chosen_name, "staged", "auto is staged");
	is_str(chosen_text, "ranks 0 and 2 share GPU place 0", "and why");
	counted = 3;
	is_int(run(3, NULL, 2, false, mixed), 0, "two share one and the third has its own: both ways");
	is_str(chosen_name, "staged", "staged between those two");
	is_str(chosen_text, "ranks 0 and 2 share GPU place 0", "and why");
	counted = 0;
	test_two_hosts();
	is_int(run(3, "staged", 3, false, note_choice), 0, "asked for: staged");
	is_str(chosen_name, "staged", "it is");
	is_str(chosen_text, "", "and nothing is to be said");
	ok(getenv("NCCL_SOCKET_IFNAME") && strcmp(getenv("NCCL_SOCKET_IFNAME"), "lo") == 0,
	   "NCCL listens on the loopback interface");
	ok(getenv("NCCL_RAS_ENABLE") && strcmp(getenv("NCCL_RAS_ENABLE"), "0") == 0,
	   "and nowhere while it runs");
	ok(getenv("CUDA_DEVICE_MAX_CONNECTIONS") != NULL, "streams get queues of their own");
	ok(queues_first, "which CUDA is told before it is called");
	ok(!getenv("NCCL_HOSTID"), "all on one machine");
	is_int(run(2, "nccl", 1, false, note_choice), 0, "asked for, on one GPU: NCCL");
	is_str(chosen_name, "nccl", "it is");
	is_str(chosen_text, "ranks 0 and 1 share GPU place 0", "who shares it is told");
	ok(getenv("NCCL_HOSTID") && strcmp(getenv("NCCL_HOSTID"), "pd-rank-0") == 0,
	   "each rank as a machine of its own");
	setenv("NCCL_HOSTID", "mine", 1);
	is_int(run(2, "nccl", 1, false, nothing), 0, "again");
	is_str(getenv("NCCL_HOSTID"), "mine", "what is set already stays");
	is_int(run(2, "nccl", 2, false, nothing), 0, "nothing to do");
	unsetenv("NCCL_HOSTID");
	unsetenv("NCCL_NET");
	test_between_hosts();
	return done_testing();
}
