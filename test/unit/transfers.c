/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "run/socket/socket.h"
#include "tap.h"
#include "unit/ranks.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024 * 1024)

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Fills a message with bytes that its seed determines. */
static void fill(void *buf, size_t bytes, uint64_t seed)
{
	unsigned char *p = buf;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(seed + i);

		memcpy(p + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static bool filled(const void *buf, size_t bytes, uint64_t seed)
{
	const unsigned char *p = buf;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(seed + i);

		if (memcmp(p + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
			return false;
	}
	return true;
}

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* Returns the bytes of shared memory that UCX has made in this process. */
static long long shared_bytes(void)
{
	long long bytes = 0;

	for (int fd = 0; fd < 256; fd++) {
		char link[64], name[64] = "";
		struct stat st;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (readlink(link, name, sizeof(name) - 1) > 0 &&
		    strncmp(name, "/memfd:ucx_shm", strlen("/memfd:ucx_shm")) == 0 &&
		    fstat(fd, &st) == 0)
			bytes += st.st_size;
	}
	return bytes;
}

static int small(struct rank *me)
{
	long long bytes = shared_bytes();

	diag("rank %d: %lld bytes", me->rank, bytes);
	return !rank_ok(me, bytes > 0 && bytes < 2 * MIB, "room for few messages");
}

/* Transfers many sizes in both directions at once. */
static int sizes(struct rank *me)
{
	static const size_t list[] = {
		0, 1, 7, 64, 100, 4095, 7999, 8000, 8001, 8192, 8193, 65536, 100001, 524288,
		1048577, 4 * MIB, 16 * MIB + 3, 32 * MIB,
	};
	int peer = 1 - me->rank, bad = 0;
	char *out = malloc(32 * MIB), *in = malloc(32 * MIB + 1);

	for (size_t i = 0; i < PD_COUNT(list); i++) {
		struct pd_event sent, received;
		int64_t begun_ns = pd_now_ns();

		fill(out, list[i], i * 2 + (uint64_t)me->rank);
		memset(in, 0xa5, list[i] + 1);
		bad += ranks_recv(me, peer, i, in, list[i], NULL, &received) != 0;
		bad += ranks_send(me, peer, i, out, list[i], NULL, &sent) != 0;
		bad += ranks_until(me, &received) != 0 || ranks_until(me, &sent) != 0;
		bad += !rank_ok(me, filled(in, list[i], i * 2 + (uint64_t)peer), "same bytes");
		bad += !rank_ok(me, in[list[i]] == (char)0xa5, "nothing written behind them");
		bad += !rank_ok(me, received.start_ns >= begun_ns &&
				received.end_ns >= received.start_ns &&
				received.end_ns <= pd_now_ns(), "times make sense");
	}
	free(out);
	free(in);
	return bad;
}

/* Sends in one order and receives in the other; half of the receives are posted before the sends. */
static int order(struct rank *me)
{
	enum { COUNT = 200, BYTES = 20000 };
	static char buf[COUNT][BYTES];
	static struct pd_event ev[COUNT];
	int bad = 0;

	if (me->rank == 0) {
		ranks_barrier(me);
		for (int i = 0; i < COUNT; i++) {
			fill(buf[i], (size_t)i * 100, (uint64_t)i);
			bad += ranks_send(me, 1, (uint64_t)i, buf[i], (size_t)i * 100, NULL,
					  &ev[i]) != 0;
		}
	} else {
		for (int i = COUNT - 1; i >= 0; i -= 2)
			bad += ranks_recv(me, 0, (uint64_t)i, buf[i], (size_t)i * 100, NULL,
					  &ev[i]) != 0;
		ranks_barrier(me);
		for (int k = 0; k < 20; k++)
			bad += ranks_step(me, 1) < 0;
		for (int i = COUNT - 2; i >= 0; i -= 2)
			bad += ranks_recv(me, 0, (uint64_t)i, buf[i], (size_t)i * 100, NULL,
					  &ev[i]) != 0;
	}
	for (int i = 0; i < COUNT; i++)
		bad += ranks_until(me, &ev[i]) != 0 ||
		       !rank_ok(me, filled(buf[i], (size_t)i * 100, (uint64_t)i), "same bytes");
	return bad;
}

/* Sends with one tag from each rank to every rank, itself included. */
static int pairwise(struct rank *me)
{
	enum { BYTES = 30000 };
	char out[BYTES], in[4][BYTES];
	struct pd_event sent[4], received[4];
	uint64_t tag = (UINT64_C(1) << PD_TRANSPORT_TAG_BITS) - 1;
	int bad = 0;

	fill(out, BYTES, (uint64_t)me->rank);
	for (int r = 0; r < me->ranks; r++)
		bad += ranks_send(me, r, tag, out, BYTES, NULL, &sent[r]) != 0;
	for (int r = me->ranks - 1; r >= 0; r--)
		bad += ranks_recv(me, r, tag, in[r], BYTES, NULL, &received[r]) != 0;
	for (int r = 0; r < me->ranks; r++)
		bad += ranks_until(me, &sent[r]) != 0 || ranks_until(me, &received[r]) != 0 ||
		       !rank_ok(me, filled(in[r], BYTES, (uint64_t)r), "from the right rank");
	return bad;
}

static int to_itself(struct rank *me)
{
	static const size_t list[] = {0, 8, 8000, 100000, 3 * MIB};
	char *out = malloc(3 * MIB), *in = malloc(3 * MIB);
	int bad = 0;

	for (size_t i = 0; i < PD_COUNT(list); i++) {
		struct pd_event sent, received;

		fill(out, list[i], i + 1);
		bad += ranks_send(me, me->rank, i, out, list[i], NULL, &sent) != 0;
		bad += ranks_recv(me, me->rank, i, in, list[i], NULL, &received) != 0;
		bad += ranks_until(me, &received) != 0 || ranks_until(me, &sent) != 0;
		bad += !rank_ok(me, filled(in, list[i], i + 1), "same bytes");
	}
	free(out);
	free(in);
	return bad;
}

/* Checks that a transfer starts only when the event that it waits for is done, and others overtake it. */
static int after(struct rank *me)
{
	struct pd_event ready, first, second, go;
	int values[2] = {0, 2}, said = 0, bad = 0;

	pd_event_arm(&ready);
	if (me->rank == 0) {
		bad += ranks_send(me, 1, 1, &values[0], sizeof(int), &ready, &first) != 0;
		bad += ranks_send(me, 1, 2, &values[1], sizeof(int), NULL, &second) != 0;
		bad += ranks_recv(me, 1, 3, &said, sizeof(int), NULL, &go) != 0;
		bad += ranks_until(me, &go) != 0 || ranks_until(me, &second) != 0;
		bad += !rank_ok(me, !pd_event_done(&first), "send waits");
		values[0] = 1;
		int64_t now_ns = pd_now_ns();
		pd_event_complete(&ready, now_ns, now_ns, &me->gate);
		bad += ranks_until(me, &first) != 0;
		return bad + !rank_ok(me, first.start_ns >= now_ns, "begun when ready");
	}
	values[1] = 0;
	bad += ranks_recv(me, 0, 1, &values[0], sizeof(int), NULL, &first) != 0;
	bad += ranks_recv(me, 0, 2, &values[1], sizeof(int), &ready, &second) != 0;
	for (int i = 0; i < 10; i++)
		bad += ranks_step(me, 10) < 0;
	bad += !rank_ok(me, !pd_event_done(&first), "the other side waits");
	bad += !rank_ok(me, !pd_event_done(&second) && values[1] == 0, "receive waits");
	pd_event_complete(&ready, 0, 0, &me->gate);
	bad += ranks_until(me, &second) != 0;
	bad += ranks_send(me, 0, 3, &said, sizeof(int), NULL, &go) != 0;
	bad += ranks_until(me, &go) != 0 || ranks_until(me, &first) != 0;
	return bad + !rank_ok(me, values[0] == 1 && values[1] == 2, "what was written meanwhile");
}

static int after_failure(struct rank *me)
{
	struct pd_event ready, done, sent, received;
	struct pd_error why;
	int x = 0, y = 0, bad = 0;

	pd_event_arm(&ready);
	bad += ranks_send(me, 1 - me->rank, 1, &x, sizeof(x), &ready, &done) != 0;
	pd_error_failed(&why, "expected here: the kernel failed");
	pd_event_fail(&ready, &why, &me->gate);
	bad += !rank_ok(me, ranks_until(me, &done) == -1, "its transfer fails");
	bad += ranks_recv(me, 1 - me->rank, 2, &y, sizeof(y), NULL, &received) != 0 ||
	       ranks_send(me, 1 - me->rank, 2, &x, sizeof(x), NULL, &sent) != 0 ||
	       ranks_until(me, &received) != 0 || ranks_until(me, &sent) != 0;
	return bad + !rank_ok(me, strcmp(me->gate.err.text, why.text) == 0, "the first reason");
}

/* Sends 2,000 messages among all ranks, of random sizes, in random order and posted at random times. */
static int stress(struct rank *me)
{
	enum { COUNT = 2000, WINDOW = 64 };
	struct { struct pd_event ev; char *buf; size_t bytes; int seed; bool in; } slot[WINDOW];
	int bad = 0, used = 0;

	for (int m = 0; m < COUNT; m++) {
		uint64_t random = mix((uint64_t)m * 77 + 5);
		int from = (int)(random % (unsigned)me->ranks);
		int to = (int)(random / 16 % (unsigned)me->ranks);
		size_t bytes = random >> 20 & ((1u << (random >> 50) % 19) - 1);

		for (int side = 0; side < 2; side++) {
			if ((side ? to : from) != me->rank)
				continue;
			slot[used].buf = malloc(bytes + 1);
			slot[used].bytes = bytes;
			slot[used].seed = m;
			slot[used].in = side == 1;
			if (side == 0) {
				fill(slot[used].buf, bytes, (uint64_t)m);
				bad += ranks_send(me, to, (uint64_t)m, slot[used].buf, bytes, NULL,
						  &slot[used].ev) != 0;
			} else {
				bad += ranks_recv(me, from, (uint64_t)m, slot[used].buf, bytes,
						  NULL, &slot[used].ev) != 0;
			}
			used++;
		}
		/* When the window is full, and at some other times, waits for all in reverse. */
		if (used < WINDOW - 1 && m < COUNT - 1 && mix((uint64_t)m + 9) % 50)
			continue;
		while (used-- > 0) {
			bad += ranks_until(me, &slot[used].ev) != 0;
			if (slot[used].in)
				bad += !filled(slot[used].buf, slot[used].bytes,
					       (uint64_t)slot[used].seed);
			free(slot[used].buf);
		}
		used = 0;
	}
	return !rank_ok(me, bad == 0, "2000 messages");
}

/* Measures a rank that sleeps for a second, which costs nothing, until a message wakes it at once. */
static int sleeping(struct rank *me)
{
	char *buf = calloc(1, MIB);
	int bad = 0;

	for (int large = 0; large < 2; large++) {
		size_t bytes = large ? MIB : 8;
		struct pd_event ev;
		int64_t sent_ns = 0;

		ranks_barrier(me);
		if (me->rank == 0) {
			usleep(1000000);
			sent_ns = pd_now_ns();
			memcpy(buf, &sent_ns, sizeof(sent_ns));
			bad += ranks_send(me, 1, 1, buf, bytes, NULL, &ev) != 0;
			bad += ranks_until(me, &ev) != 0;
		} else {
			double before_ms = cpu_ms();

			bad += ranks_recv(me, 0, 1, buf, bytes, NULL, &ev) != 0;
			bad += ranks_until(me, &ev) != 0;
			memcpy(&sent_ns, buf, sizeof(sent_ns));
			me->result[2 * large] = cpu_ms() - before_ms;
			me->result[2 * large + 1] = (double)(ev.end_ns - sent_ns) / 1e6;
		}
	}
	free(buf);
	return bad;
}

/* Measures the memory that transfers allocate after a warm-up. */
static int steady(struct rank *me)
{
	static char out[100000], in[100000];
	size_t before = 0;
	int bad = 0;

	for (int i = 0; i < 3000; i++) {
		size_t bytes = i % 3 == 0 ? sizeof(in) : 1000;
		struct pd_event sent, received;

		if (i == 1000)
			before = mallinfo2().uordblks;
		bad += ranks_recv(me, 1 - me->rank, 1, in, bytes, NULL, &received) != 0;
		bad += ranks_send(me, 1 - me->rank, 1, out, bytes, NULL, &sent) != 0;
		bad += ranks_until(me, &sent) != 0 || ranks_until(me, &received) != 0;
	}
	me->result[0] = (double)mallinfo2().uordblks - (double)before;
	return bad;
}

/*
 * Checks that a message which is sent while a longer one comes from its receiver arrives before
 * that. Rank 1 pauses between its steps, so that a fast link is full most of the time and rank 0
 * finds time to look for messages.
 */
static int overtaking(struct rank *me)
{
	enum { LONG = 128 * MIB, SHORT = MIB, BEGUN_MS = 5, PAUSE_US = 200 };
	char *buf = calloc(2, LONG);
	struct pd_event sent, received;
	bool first = me->rank == 0;
	int bad = ranks_recv(me, 1 - me->rank, 0, buf, first ? SHORT : LONG, NULL, &received) != 0;
	int64_t since;

	ranks_barrier(me);
	since = pd_now_ns();
	while (!first && pd_now_ns() < since + BEGUN_MS * 1000000)
		bad += ranks_step(me, 1) < 0;
	bad += ranks_send(me, 1 - me->rank, 0, buf + LONG, first ? LONG : SHORT, NULL, &sent) != 0;
	while (!first && !pd_event_done(&received) && ranks_step(me, 0) >= 0)
		usleep(PAUSE_US);
	bad += ranks_until(me, &sent) != 0 || ranks_until(me, &received) != 0;
	if (!first) {
		diag("%.1f and %.1f ms", (double)(sent.end_ns - since) / 1e6,
		     (double)(received.end_ns - since) / 1e6);
		bad += !rank_ok(me, sent.end_ns < received.end_ns, "the short one was first");
	}
	free(buf);
	return bad;
}

/* Checks that a short message need not wait until a long one to the same rank has been sent. */
static int brief(struct rank *me)
{
	enum { LONG = 128 * MIB, SHORT = 8 };
	char *buf = calloc(1, LONG), word[SHORT] = { 0 };
	struct pd_event ev[2];
	int bad = 0;

	if (me->rank == 0) {
		bad += ranks_send(me, 1, 0, buf, LONG, NULL, &ev[0]) != 0;
		bad += ranks_send(me, 1, 1, word, SHORT, NULL, &ev[1]) != 0;
	} else {
		bad += ranks_recv(me, 0, 0, buf, LONG, NULL, &ev[0]) != 0;
		bad += ranks_recv(me, 0, 1, word, SHORT, NULL, &ev[1]) != 0;
	}
	bad += ranks_until(me, &ev[1]) != 0 || ranks_until(me, &ev[0]) != 0;
	if (me->rank == 1)
		bad += !rank_ok(me, ev[1].end_ns < ev[0].end_ns, "the short one was first");
	free(buf);
	return bad;
}

static void test_all(const char *how)
{
	double result[RANKS_MAX * RANKS_RESULT];

	is_int(run_ranks(2, sizes, NULL, -1), 0, "%s: 0 bytes to 32 MiB, both ways at once", how);
	is_int(run_ranks(2, order, NULL, -1), 0, "%s: posted in any order, early or late", how);
	is_int(run_ranks(4, pairwise, NULL, -1), 0, "%s: tags are per pair", how);
	is_int(run_ranks(1, to_itself, NULL, -1), 0, "%s: a rank sends to itself", how);
	is_int(run_ranks(2, after, NULL, -1), 0, "%s: transfers wait for their events", how);
	is_int(run_ranks(2, after_failure, NULL, -1), 0, "%s: a failed event fails its transfer", how);
	is_int(run_ranks(2, stress, NULL, -1), 0, "%s: 2000 random messages, 2 processes", how);
	is_int(run_ranks(4, stress, NULL, -1), 0, "%s: 2000 random messages, 4 processes", how);

	is_int(run_ranks(2, sleeping, result, -1), 0, "%s: a message wakes a sleeper", how);
	for (int large = 0; large < 2; large++) {
		double *r = result + RANKS_RESULT + 2 * large;

		diag("%s: %.3f ms of processor in 1 s, %.3f ms from sending to the end",
		     large ? "1 MiB" : "8 bytes", r[0], r[1]);
		ok(r[0] < 50, "%s: sleeping costs less than 50 ms", large ? "1 MiB" : "8 bytes");
		ok(r[1] < 200, "%s: awake at once", large ? "1 MiB" : "8 bytes");
	}
	is_int(run_ranks(2, steady, result, -1), 0, "%s: 3000 transfers one after another", how);
	/* Pools grow when one side is late, but no transfer needs an allocation of its own. */
	diag("the last 2000 allocated %.0f and %.0f bytes", result[0], result[RANKS_RESULT]);
	ok(result[0] < 4000 * 16 && result[RANKS_RESULT] < 4000 * 16,
	   "the last 4000 transfers allocate less than 16 bytes each");
}

/* Exchanges messages of two sizes, again and again, and counts what was allocated for staging them. */
static int allocated_once(struct rank *me)
{
	static char out[2][MIB], in[2][MIB];
	int bad = 0;

	for (uint64_t n = 0; n < 20; n++) {
		struct pd_event sent[2], received[2];

		for (int i = 0; i < 2; i++) {
			size_t bytes = i == 0 ? MIB : MIB / 3;

			bad += ranks_recv(me, 1 - me->rank, 2 * n + i, in[i], bytes, NULL, &received[i]) != 0;
			bad += ranks_send(me, 1 - me->rank, 2 * n + i, out[i], bytes, NULL, &sent[i]) != 0;
		}
		for (int i = 0; i < 2; i++)
			bad += ranks_until(me, &received[i]) != 0 || ranks_until(me, &sent[i]) != 0;
	}
	return bad + !rank_ok(me, ranks_allocations() == 1, "one allocation, before the first transfer");
}

static void by_ipv6(void)
{
	struct pd_error err;
	int port, fd = pd_socket_listen("::1", &port, &err);

	if (fd < 0) {
		skip(err.text, "tcp: by IPv6");
		return;
	}
	close(fd);
	ranks_apart = true;
	ranks_address = "::1";
	is_int(run_ranks(2, sizes, NULL, -1), 0, "tcp: by IPv6");
	ranks_apart = false;
}

int main(void)
{
	is_int(run_ranks(2, small, NULL, -1), 0, "a rank begins with less than 2 MiB of shared memory");
	test_all("ucx");
	ranks_apart = true;
	is_int(run_ranks(2, sizes, NULL, -1), 0, "several hosts: 0 bytes to 32 MiB, both ways at once");
	is_int(run_ranks(4, stress, NULL, -1), 0, "several hosts: 2000 random messages, 4 processes");
	is_int(run_ranks(2, overtaking, NULL, -1), 0, "several hosts: a short message overtakes a long one");
	ranks_apart = false;
	ranks_staged = true;
	test_all("staged");
	ranks_under_way_bytes = 3 * MIB;
	is_int(run_ranks(2, allocated_once, NULL, -1), 0, "staged: no memory is allocated while transfers are under way");
	ranks_staged = false;
	ranks_provider = &pd_provider_tcp;
	test_all("tcp");
	is_int(run_ranks(2, overtaking, NULL, -1), 0, "tcp: a short message overtakes a long one");
	is_int(run_ranks(2, brief, NULL, -1), 0, "tcp: also one that its own sender is sending");
	by_ipv6();
	return done_testing();
}
