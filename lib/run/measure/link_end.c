/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/link_end.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "engine/device/submit.h"
#include "profile/rounds.h"
#include "run/device/rehearse.h"
#include "run/transport/routes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SMALL_BYTES 8
#define SMALL_ROUNDS 2000
#define LARGE_BYTES ((size_t)1024 * 1024)
#define LARGE_ROUNDS 100
#define PLACES 16                       /* places for large messages, used in turn */
#define ALL_BYTES (PLACES * LARGE_BYTES)
#define ALL_ROUNDS 40
#define WARM_UP(rounds) ((rounds) / 5)
#define LOAD_FLOATS ((size_t)16 * 1024 * 1024)
#define LOAD_DEPTH 3

/* Keeps a device busy with sums, a few of them queued at any time. */
struct load {
	struct pd_stream *stream;       /* NULL: the device is not kept busy */
	float *numbers;                 /* LOAD_FLOATS */
	struct pd_event done[LOAD_DEPTH];
};

/* One of the two child processes. */
struct end {
	int rank;
	struct pd_gate gate;
	struct pd_device *device;       /* the device with the memory; NULL: the host */
	struct pd_transport *transport;
	struct load load;
	char ready;
	char *in, *out;                 /* ALL_BYTES each */
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

/* Exchanges addresses through the socket and connects. */
static int connect_ends(struct end *end, int socket, struct pd_error *err)
{
	const void *addresses[2], *mine;
	size_t lengths[2];
	char *other;
	int status;

	pd_routes_address(end->transport, &mine, &lengths[end->rank]);
	if (move(socket, &lengths[end->rank], sizeof(lengths[0]), true, err) < 0 ||
	    move(socket, (void *)mine, lengths[end->rank], true, err) < 0 ||
	    move(socket, &lengths[1 - end->rank], sizeof(lengths[0]), false, err) < 0)
		return -1;
	other = pd_zalloc(lengths[1 - end->rank]);
	status = move(socket, other, lengths[1 - end->rank], false, err);
	addresses[end->rank] = mine;
	addresses[1 - end->rank] = other;
	if (status == 0)
		status = pd_routes_connect(end->transport, addresses, lengths, err);
	free(other);
	return status;
}

static int keep_busy(struct end *end, struct pd_error *err)
{
	struct load *load = &end->load;
	const float *parts[2] = { load->numbers, load->numbers };

	for (int i = 0; i < LOAD_DEPTH && load->stream; i++) {
		if (!pd_event_done(&load->done[i]))
			continue;
		pd_event_arm(&load->done[i]);
		if (pd_submit_sum(load->stream, load->numbers, parts, 2, LOAD_FLOATS,
					       &load->done[i]) != 0)
			return pd_error_failed(err, "link: the device refused a sum");
	}
	return 0;
}

static int broken(const struct end *end, struct pd_error *err)
{
	return pd_gate_failed(&end->gate, err, "link");
}

/* These send a message to the other end, or receive one; *ev is done at its end. */
static int give(struct end *end, uint64_t tag, const char *out, size_t bytes, struct pd_event *ev,
		struct pd_error *err)
{
	pd_event_arm(ev);
	return end->transport->ops->send(end->transport, 1 - end->rank, tag, out, bytes, NULL, ev) < 0
		? broken(end, err) : 0;
}

static int get(struct end *end, uint64_t tag, char *in, size_t bytes, struct pd_event *ev,
	       struct pd_error *err)
{
	pd_event_arm(ev);
	return end->transport->ops->recv(end->transport, 1 - end->rank, tag, in, bytes, NULL, ev) < 0
		? broken(end, err) : 0;
}

static int until(struct end *end, const struct pd_event *ev, struct pd_error *err)
{
	struct pd_transport *t = end->transport;

	while (!pd_event_done(ev)) {
		int moved;

		if (keep_busy(end, err) < 0)
			return -1;
		moved = t->ops->progress(t);
		if (moved < 0)
			break;
		if (moved == 0)
			pd_transport_sleep(t, &end->gate, -1, -1);
	}
	return pd_event_done(ev) && !pd_event_failed(ev) ? 0 : broken(end, err);
}

/*
 * Makes a message.  It has just been computed, so it is in the sender's caches; it is received
 * where something else was a while ago.  Rank 0 begins when rank 1 has written its message too.  (A
 * device has no such caches, and the host could not write there.)
 */
static int make_message(struct end *end, char *out, size_t bytes, int round, struct pd_error *err)
{
	struct pd_event ready;
	int status;

	if (end->device)
		return 0;
	memset(out, round + 1, bytes);
	status = end->rank == 0 ? get(end, 1, &end->ready, 1, &ready, err)
				: give(end, 1, &end->ready, 1, &ready, err);
	return status < 0 ? -1 : until(end, &ready, err);
}

/* Returns the lower quartile of the times, and their spread around it in rounds; it sorts them. */
static int64_t quartile_of(int64_t *took_ns, int rounds, struct pd_spread *spread_p)
{
	int64_t count = pd_rounds_of(rounds), quartile;
	double means[count], middle;

	for (int64_t r = 0; r < count; r++)
		means[r] = pd_round_mean(took_ns, rounds, r);
	qsort(took_ns, (size_t)rounds, sizeof(*took_ns), pd_by_value);
	quartile = took_ns[rounds / 4];
	*spread_p = pd_rounds_spread(means, count);
	middle = quartile > 0 ? (means[(count - 1) / 2] + means[count / 2]) / 2 / (double)quartile : 1;
	spread_p->low = fmin(1, round(spread_p->low * middle * 1e4) / 1e4);
	spread_p->high = fmax(1, round(spread_p->high * middle * 1e4) / 1e4);
	return quartile;
}

/*
 * Rank 0 sends and rank 1 answers.  Returns half a round trip, the lower quartile: other work on
 * the machine only adds time, and a round trip needs both processes to be undisturbed.
 */
static int ping_pong(struct end *end, size_t bytes, int rounds, int64_t *half_ns_p,
		     struct pd_spread *spread_p, struct pd_error *err)
{
	int64_t *took_ns = pd_calloc((size_t)rounds, sizeof(*took_ns));
	int status = 0;

	for (int i = -WARM_UP(rounds); i < rounds && status == 0; i++) {
		size_t place = (size_t)(i + rounds) % PLACES * bytes;
		struct pd_event sent, received;
		int64_t begun_ns;

		status = make_message(end, end->out + place, bytes, i, err);
		begun_ns = pd_now_ns();
		if (status == 0)
			status = get(end, 0, end->in + place, bytes, &received, err);
		if (status == 0 && end->rank == 1)
			status = until(end, &received, err);
		if (status == 0)
			status = give(end, 0, end->out + place, bytes, &sent, err);
		if (status == 0)
			status = until(end, &received, err);
		if (i >= 0)
			took_ns[i] = pd_now_ns() - begun_ns;
		if (status == 0)
			status = until(end, &sent, err);
	}
	*half_ns_p = quartile_of(took_ns, rounds, spread_p) / 2;
	free(took_ns);
	return status;
}

/* Sends and receives, and waits for both. */
static int exchange(struct end *end, uint64_t tag, size_t bytes, struct pd_error *err)
{
	struct pd_event received, sent;

	if (get(end, tag, end->in, bytes, &received, err) < 0 ||
	    give(end, tag, end->out, bytes, &sent, err) < 0 || until(end, &received, err) < 0)
		return -1;
	return until(end, &sent, err);
}

/*
 * Both send at once.  Returns the lower quartile of the times until all has been sent and received;
 * each round begins with a word from the other side.
 */
static int both_ways(struct end *end, size_t bytes, int rounds, int64_t *ns_p,
		     struct pd_spread *spread_p, struct pd_error *err)
{
	int64_t *took_ns = pd_calloc((size_t)rounds, sizeof(*took_ns)), begun_ns;
	int status = 0;

	for (int i = -WARM_UP(rounds); i < rounds && status == 0; i++) {
		status = exchange(end, 0, SMALL_BYTES, err);
		begun_ns = pd_now_ns();
		if (status == 0)
			status = exchange(end, 1, bytes, err);
		if (i >= 0)
			took_ns[i] = pd_now_ns() - begun_ns;
	}
	*ns_p = quartile_of(took_ns, rounds, spread_p);
	free(took_ns);
	return status;
}

static int measure(struct end *end, struct pd_link_answer *answer)
{
	size_t bytes = end->device ? ALL_BYTES : LARGE_BYTES;
	struct pd_link_found *found = &answer->found;
	int64_t half_ns = 0;
	int status = ping_pong(end, SMALL_BYTES, SMALL_ROUNDS, &found->latency_ns, &found->spread, &answer->err);

	if (status == 0 && end->device)
		status = both_ways(end, bytes, ALL_ROUNDS, &half_ns, &found->spread, &answer->err);
	else if (status == 0)
		status = ping_pong(end, bytes, LARGE_ROUNDS, &half_ns, &found->spread, &answer->err);
	if (status < 0)
		return -1;
	if (half_ns <= found->latency_ns)
		return pd_error_failed(&answer->err, "link: %zu bytes take no longer than %d",
				       bytes, SMALL_BYTES);
	found->bandwidth_bytes_per_s =
		(int64_t)((double)bytes * 1e9 / (double)(half_ns - found->latency_ns));
	return 0;
}

static char *allocate(struct end *end, size_t bytes, struct pd_error *err)
{
	char *memory = end->device ? end->device->ops->memory.alloc(end->device, bytes, err)
				   : pd_zalloc(bytes);

	/* Zeros, but with pages of their own. */
	if (!end->device)
		memset(memory, 1, bytes);
	return memory;
}

/* Opens a device with separate memory, and work for it. */
static int open_device(struct end *end, const struct pd_device_ops *ops, const struct pd_seat *seat,
		       struct pd_error *err)
{
	struct pd_device_config config = { .ordinal = seat->device, .gate = &end->gate,
					   .untimed = true };

	end->device = ops->open(&config, err);
	if (!end->device)
		return -1;
	end->load.stream = ops->stream.open(end->device, err);
	end->load.numbers = ops->memory.alloc(end->device, LOAD_FLOATS * sizeof(float), err);
	if (!end->load.stream || !end->load.numbers)
		return -1;
	return pd_rehearse_sum(end->device, end->load.stream, &end->gate, err);
}

static int open_ends(struct end *end, const struct pd_link_ends *ends, struct pd_error *err)
{
	const struct pd_seat seat = { .local = end->rank, .locals = 2, .device = end->rank,
				      .device_sharers = 2 };
	struct pd_routes_config config = { .how = ends->how, .rank = end->rank, .ranks = 2,
					   .seat = seat, .host = ends->transport,
					   .gate = &end->gate };
	const struct pd_device_ops *device = NULL;

	if (ends->device && !(device = pd_device_find(ends->device, err)))
		return -1;
	if (device && !device->separate_memory && ends->how && pd_provider_of_devices(ends->how))
		return pd_error_input(err, "--transport=%s: the %s device's workers share a memory,"
				      " and pass everything through that", ends->how, device->name);
	if (device && device->separate_memory)
		pd_routes_prepare(ends->how, device, end->rank, 2, &seat);
	if (device && device->separate_memory && open_device(end, device, &seat, err) < 0)
		return -1;
	config.device = end->device;
	end->transport = pd_routes_open(&config, err);
	return end->transport ? 0 : -1;
}

int pd_link_end_live(const struct pd_link_ends *ends, int rank, int socket,
		     struct pd_link_answer *answer)
{
	struct end end = {.rank = rank};
	int status;

	if (pd_gate_init(&end.gate, &answer->err) < 0 || open_ends(&end, ends, &answer->err) < 0)
		return -1;
	end.in = allocate(&end, ALL_BYTES, &answer->err);
	end.out = allocate(&end, ALL_BYTES, &answer->err);
	if (!end.in || !end.out)
		return -1;
	status = connect_ends(&end, socket, &answer->err);
	if (status < 0)
		answer->ending = PD_LINK_LONELY;
	else
		status = measure(&end, answer);
	/* The last sums end at a gate that is gone once this returns. */
	if (end.load.stream)
		end.device->ops->stream.close(end.load.stream);
	/* After a failure transfers may be left whose events are gone. */
	if (!end.device && status == 0)
		end.transport->ops->close(end.transport);
	return status;
}
