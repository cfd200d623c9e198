/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/flows.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "engine/device/device.h"
#include "run/measure/machine.h"
#include "run/transport/address.h"
#include "run/transport/routes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW 4                        /* messages of a flow under way */
#define PING_TAG (UINT64_C(1) << 32)
#define PING_BYTES 8

struct flow {
	bool receive;
	int peer;
	size_t bytes;
	int64_t count, posted, done;
	int64_t *times_ns;              /* when each message was done */
	struct pd_event events[WINDOW];
	void *buffers[WINDOW];
};

struct end {
	struct pd_rank_process *process;
	int ranks;
	bool *peers;                    /* by rank */
	struct pd_seat seat;
	struct pd_device *device;       /* with the memory; NULL: the host */
	char device_name[PD_DEVICE_NAME];
	struct pd_transport *transport;
	struct pd_gate gate;
};

/* Makes things move, or sleeps until something can. */
static int step(struct end *e, struct pd_error *err)
{
	int moved = e->transport->ops->progress(e->transport);

	if (moved < 0)
		return pd_gate_failed(&e->gate, err, "transport");
	if (moved == 0)
		pd_transport_sleep(e->transport, &e->gate, e->process->channel.fd, 1000);
	return 0;
}

static int transfer(struct end *e, bool receive, int peer, uint64_t tag, void *buffer, size_t bytes,
		    struct pd_event *event)
{
	const struct pd_transport_ops *ops = e->transport->ops;

	pd_event_arm(event);
	return receive ? ops->recv(e->transport, peer, tag, buffer, bytes, NULL, event)
		       : ops->send(e->transport, peer, tag, buffer, bytes, NULL, event);
}

static void *allocate(const struct end *e, size_t bytes, struct pd_error *err)
{
	return e->device ? e->device->ops->memory.alloc(e->device, bytes, err) : pd_zalloc(bytes);
}

static void drop(const struct end *e, void *memory)
{
	if (e->device)
		e->device->ops->memory.free(e->device, memory);
	else
		free(memory);
}

/* ---- flows ---- */

/* Takes what is done, in order, and begins what fits; -1: the transport failed. */
static int advance(struct end *e, struct flow *f)
{
	while (f->done < f->posted && pd_event_done(&f->events[f->done % WINDOW])) {
		if (pd_event_failed(&f->events[f->done % WINDOW]))
			return -1;
		f->times_ns[f->done++] = pd_now_ns();
	}
	for (; f->posted < f->count && f->posted < f->done + WINDOW; f->posted++) {
		int slot = (int)(f->posted % WINDOW);

		if (transfer(e, f->receive, f->peer, (uint64_t)f->posted, f->buffers[slot], f->bytes,
			     &f->events[slot]) < 0)
			return -1;
	}
	return 0;
}

static int do_flows(struct end *e, struct flow *flows, size_t n, struct pd_error *err)
{
	bool all = false;

	while (!all) {
		all = true;
		for (size_t i = 0; i < n; i++) {
			if (advance(e, &flows[i]) < 0)
				return pd_gate_failed(&e->gate, err, "transport");
			all &= flows[i].done == flows[i].count;
		}
		if (!all && step(e, err) < 0)
			return -1;
	}
	return 0;
}

static int set_flow(const struct end *e, struct flow *f, const json_t *value, struct pd_error *err)
{
	f->peer = (int)pd_member_int(value, "peer");
	f->receive = pd_member_true(value, "receive");
	f->bytes = (size_t)pd_member_int(value, "bytes");
	f->count = pd_member_int(value, "count");
	f->times_ns = pd_calloc((size_t)f->count, sizeof(*f->times_ns));
	for (int i = 0; i < WINDOW; i++)
		if (!(f->buffers[i] = allocate(e, f->bytes, err)))
			return -1;
	return 0;
}

static json_t *flow_json(const struct flow *f)
{
	json_t *times = json_array();

	for (int64_t i = 0; i < f->count; i++)
		pd_json_add(times, json_integer(f->times_ns[i]));
	return json_pack("{s:I, s:o}", "bytes", (json_int_t)f->bytes, "times", times);
}

/* Returns those received, with their times; NULL: failed. */
static json_t *run_flows(struct end *e, const json_t *list, struct pd_error *err)
{
	size_t n = json_array_size(list);
	struct flow *flows = pd_calloc(n, sizeof(*flows));
	json_t *received = json_array();
	int status = 0;

	for (size_t i = 0; i < n && status == 0; i++)
		status = set_flow(e, &flows[i], json_array_get(list, i), err);
	if (status == 0)
		status = do_flows(e, flows, n, err);
	for (size_t i = 0; i < n && status == 0; i++)
		if (flows[i].receive)
			pd_json_add(received, flow_json(&flows[i]));
	/* where it failed, the transport may write to buffers yet, and the process ends */
	for (size_t i = 0; i < n && status == 0; i++) {
		free(flows[i].times_ns);
		for (int k = 0; k < WINDOW; k++)
			drop(e, flows[i].buffers[k]);
	}
	if (status == 0)
		free(flows);
	else
		json_decref(received);
	return status == 0 ? received : NULL;
}

/* ---- pings ---- */

static int wait_for(struct end *e, struct pd_event *event, struct pd_error *err)
{
	while (!pd_event_done(event))
		if (step(e, err) < 0)
			return -1;
	return pd_event_failed(event) ? pd_gate_failed(&e->gate, err, "transport") : 0;
}

static int ping(struct end *e, const json_t *value, int64_t *latency_ns_p, struct pd_error *err)
{
	int peer = (int)pd_member_int(value, "peer");
	bool first = pd_member_true(value, "first");
	size_t count = (size_t)pd_member_int(value, "count");
	int64_t *times = pd_calloc(count, sizeof(*times));
	void *word = allocate(e, PING_BYTES, err), *answer = allocate(e, PING_BYTES, err);
	struct pd_event there, back;
	int status = word && answer ? 0 : -1;

	for (size_t i = 0; i < count && status == 0; i++) {
		int64_t since = pd_now_ns();

		if (transfer(e, true, peer, PING_TAG + i, answer, PING_BYTES, &back) < 0 ||
		    (!first && wait_for(e, &back, err) < 0) ||
		    transfer(e, false, peer, PING_TAG + i, word, PING_BYTES, &there) < 0 ||
		    wait_for(e, &there, err) < 0 || wait_for(e, &back, err) < 0)
			status = -1;
		times[i] = pd_now_ns() - since;
	}
	if (status == 0) {
		qsort(times, count, sizeof(*times), pd_by_value);
		drop(e, word);
		drop(e, answer);
	}
	*latency_ns_p = count ? times[count / 4] / 2 : 0;
	free(times);
	return status;
}

/* ---- as told ---- */

static int do_round(struct end *e, const json_t *message, struct pd_error *err)
{
	const json_t *pinged = json_object_get(message, "ping");
	json_t *received = run_flows(e, json_object_get(message, "flows"), err);
	int64_t latency_ns = 0;

	if (!received)
		return -1;
	if (pinged && ping(e, pinged, &latency_ns, err) < 0) {
		json_decref(received);
		return -1;
	}
	return pd_channel_send(&e->process->channel, json_pack("{s:s, s:o, s:I}", "event", "measured", "flows",
						     received, "latency_ns", (json_int_t)latency_ns), err);
}

/* Peers may need this end's transport also when it has nothing to do. */
static int next_message(struct end *e, json_t **message_p, struct pd_error *err)
{
	int verdict;

	while ((verdict = pd_channel_receive(&e->process->channel, message_p)) == 0)
		if (step(e, err) < 0)
			return -1;
	return verdict > 0 ? 0 : pd_error_failed(err, "the launcher is gone");
}

/* The share of a rank in the memory of its device, or of its host. */
static int64_t memory_share(const struct end *e)
{
	struct pd_device_info info;
	struct pd_error none;
	int devices;

	if (!e->device)
		return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / e->seat.locals;
	e->device->ops->describe(e->device, &info);
	devices = e->device->ops->count(&none);
	return info.memory_bytes / ((e->seat.device_sharers + devices - 1) / devices);
}

static int connect_peers(struct end *e, json_t *message, struct pd_error *err)
{
	if (pd_exchange_get(&e->process->exchange, e->peers, e->ranks, message, err) < 0)
		return -1;
	return pd_address_connect(e->transport, message, err);
}

static int obey(struct end *e, struct pd_error *err)
{
	char *address = pd_address_text(e->transport);
	json_t *message = json_pack("{s:s, s:I, s:b, s:o}", "event", "ready", "memory_bytes",
				    (json_int_t)memory_share(e), "separate", e->device != NULL, "device_name",
				    pd_json_shown(e->device_name));
	int status = pd_exchange_put(&e->process->exchange, address, message, err);
	bool exit = false;

	free(address);
	if (status == 0)
		status = pd_channel_send(&e->process->channel, message, err);
	while (status == 0 && !exit && (status = next_message(e, &message, err)) == 0) {
		exit = pd_message_is(message, "exit");
		if (pd_message_is(message, "connect"))
			status = connect_peers(e, message, err);
		else if (pd_message_is(message, "round"))
			status = do_round(e, message, err);
		json_decref(message);
	}
	return status;
}

/* Finds out what the rank's device is, and keeps it open if it has memory of its own. */
static int open_device(struct end *e, const struct pd_routes_config *routes, const char *name,
		       struct pd_error *err)
{
	struct pd_device_config config = { .ordinal = e->seat.device, .gate = &e->gate,
					   .untimed = true };
	const struct pd_device_ops *ops = pd_device_find(name, err);
	struct pd_device_info info;
	struct pd_device *device;

	if (!ops)
		return -1;
	if (ops->separate_memory)
		pd_routes_prepare(NULL, ops, routes->rank, routes->ranks, &e->seat);
	device = ops->open(&config, err);
	if (!device)
		return -1;
	ops->describe(device, &info);
	strcpy(e->device_name, info.name);
	if (ops->separate_memory)
		e->device = device;
	else
		ops->close(device);
	return 0;
}

static bool *find_peers(int rank, int ranks)
{
	bool *peers = pd_calloc((size_t)ranks, sizeof(*peers));

	for (int r = 0; r < ranks; r++)
		peers[r] = pd_machine_meet(ranks, rank, r);
	return peers;
}

static int run(struct pd_rank_process *process, const json_t *message, struct pd_error *err)
{
	static struct end e;            /* which transfers may still use when it has failed */
	const char *device = pd_member_text(message, "device");
	struct pd_routes_config config = { .rank = process->rank, .ranks = (int)pd_member_int(message, "ranks"),
					   .gate = &e.gate };
	int status;

	pd_mem_for("messages that are timed");
	if (pd_seat_parse(json_object_get(message, "seat"), &config.seat) < 0)
		return pd_error_failed(err, "the launcher sent a seat that cannot be read");
	e = (struct end){ .process = process, .seat = config.seat, .ranks = config.ranks };
	if (pd_gate_init(&e.gate, err) < 0 || open_device(&e, &config, device, err) < 0)
		return -1;
	config.device = e.device;
	config.peers = e.peers = find_peers(config.rank, config.ranks);
	e.transport = pd_routes_open(&config, err);
	status = e.transport ? obey(&e, err) : -1;
	free(e.peers);
	if (status == 0) {
		e.transport->ops->close(e.transport);
		pd_gate_release(&e.gate);
	}
	return status;
}

const struct pd_rank_task pd_flows_task = { .event = "measure", .run = run };
