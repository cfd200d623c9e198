/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/machine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/processors.h"
#include "run/measure/ranks.h"
#include "run/transport/address.h"

#include <stdlib.h>
#include <string.h>

#define PINGS 40
#define PROBE_BYTES 65536
#define PROBE_COUNT 24
#define SECONDS 0.5                     /* that the transfers of a round take */
#define LEAST_BYTES (2 << 20)           /* of a transfer: more than token buckets hold at once */
#define MESSAGES 48                     /* of a transfer, where they are not too small or large */
#define TRIES 3
#define MOST_TOGETHER 4                 /* pairs of components of a level that are measured */
#define SAME 0.75                       /* links that are so much of each other count as alike */

struct measuring {
	struct pd_launcher *launcher;
	struct pd_machine *machine;
	const struct pd_machine_progress *progress;
	bool own_processors;            /* ranks compute on devices, not on the host's */
	int done, total;
	json_t **rounds;                /* by rank: what it is told next, or NULL */
};

/* ---- messages ---- */

static struct pd_channel *channel(struct measuring *m, int r)
{
	return m->launcher->ops->channel(m->launcher, r);
}

/* ---- rounds ---- */

static json_t *round_of(struct measuring *m, int r)
{
	if (!m->rounds[r])
		m->rounds[r] = json_pack("{s:s, s:[]}", "event", "round", "flows");
	return m->rounds[r];
}

static void add_flow(struct measuring *m, int from, int to, int64_t bytes, int64_t count)
{
	for (int receive = 0; receive < 2; receive++)
		pd_json_add(json_object_get(round_of(m, receive ? to : from), "flows"),
			json_pack("{s:i, s:b, s:I, s:I}", "peer", receive ? from : to, "receive",
				  receive, "bytes", (json_int_t)bytes, "count", (json_int_t)count));
}

/* The result of a round. */
struct outcome {
	json_t *flows;                  /* of all that received, with times on the first host's clock */
	int64_t latency_ns;             /* of one that pinged, or 0 */
};

/* Brings the times of a flow to the first host's clock. */
static void add_received(struct outcome *out, const json_t *flows, int64_t clock_ahead_ns)
{
	json_t *flow, *time;
	size_t i, k;

	json_array_foreach(flows, i, flow) {
		json_array_foreach(json_object_get(flow, "times"), k, time)
			json_integer_set(time, json_integer_value(time) - clock_ahead_ns);
		json_array_append(out->flows, flow);
	}
}

/* Has all do their parts. */
static int do_round(struct measuring *m, struct outcome *out, struct pd_error *err)
{
	int ranks = m->machine->ranks, status = 0;

	*out = (struct outcome){ .flows = json_array() };
	for (int r = 0; r < ranks && status == 0; r++)
		if (m->rounds[r])
			status = pd_channel_send(channel(m, r), json_incref(m->rounds[r]), err);
	for (int r = 0; r < ranks; r++) {
		json_t *answer;

		if (!m->rounds[r])
			continue;
		json_decref(m->rounds[r]);
		m->rounds[r] = NULL;
		answer = status == 0 ? pd_ranks_hear(m->launcher, r, "measured", err) : NULL;
		if (!answer) {
			status = -1;
			continue;
		}
		add_received(out, json_object_get(answer, "flows"),
			     m->machine->seats[r].clock_ahead_ns);
		if (out->latency_ns == 0)
			out->latency_ns = pd_member_int(answer, "latency_ns");
		json_decref(answer);
	}
	if (status < 0)
		json_decref(out->flows);
	return status;
}

/* ---- what arrives while all send ---- */

static double time_of(const json_t *times, size_t i)
{
	return (double)json_integer_value(json_array_get(times, i));
}

/* Returns how many messages of a flow had come at a time, with the part of the next that had. */
static double come_at(const json_t *times, double ns)
{
	size_t n = json_array_size(times), i = 0;

	while (i < n && time_of(times, i) <= ns)
		i++;
	if (i == 0 || i == n)
		return (double)i;
	return (double)i + (ns - time_of(times, i - 1)) / (time_of(times, i) - time_of(times, i - 1));
}

static double bytes_at(const json_t *flows, double ns)
{
	double bytes = 0;
	json_t *flow;
	size_t i;

	json_array_foreach(flows, i, flow)
		bytes += come_at(json_object_get(flow, "times"), ns) *
			 (double)pd_member_int(flow, "bytes");
	return bytes;
}

/* Returns when the first flow had all its messages. */
static double first_end(const json_t *flows)
{
	double end = 0;
	json_t *flow;
	size_t i;

	json_array_foreach(flows, i, flow) {
		const json_t *times = json_object_get(flow, "times");
		double last = time_of(times, json_array_size(times) - 1);

		end = i == 0 || last < end ? last : end;
	}
	return end;
}

/*
 * Returns the bytes per second of all flows together, from when a quarter of one flow's bytes have
 * come, which is more than what buffers and token buckets let through at once, until the first flow
 * ends; 0: that is no time.  Who gets how much of a link that they share makes no difference.
 */
static double rate_of(const json_t *flows)
{
	const json_t *flow = json_array_get(flows, 0), *times = json_object_get(flow, "times");
	double quarter = (double)pd_member_int(flow, "bytes") *
			 (double)(json_array_size(times) / 4);
	double end = first_end(flows), early = time_of(times, 0) - 60e9, late = end;

	while (late - early > 1000) {
		double middle = early + (late - early) / 2;

		if (bytes_at(flows, middle) < quarter)
			early = middle;
		else
			late = middle;
	}
	return end > late ? (bytes_at(flows, end) - bytes_at(flows, late)) * 1e9 / (end - late) : 0;
}

/*
 * The bytes per second that `size` ranks from `from` on get together, each sending to its like from
 * `to` on; both: while as much goes the other way.  First some messages show about how fast that is.
 */
static int measure_rate(struct measuring *m, int from, int to, int size, bool both, double *rate_p,
			struct pd_error *err)
{
	int64_t bytes = PROBE_BYTES, count = PROBE_COUNT;

	for (int attempt = 0; attempt < 2; attempt++) {
		struct outcome outcome;
		double each;

		for (int i = 0; i < size; i++) {
			add_flow(m, from + i, to + i, bytes, count);
			if (both)
				add_flow(m, to + i, from + i, bytes, count);
		}
		if (do_round(m, &outcome, err) < 0)
			return -1;
		*rate_p = rate_of(outcome.flows) / (both ? 2 : 1);
		json_decref(outcome.flows);
		if (*rate_p <= 0)
			return pd_error_failed(err, "what rank %d sends to rank %d arrives all at once: "
					       "no bandwidth can be told", from, to);
		each = *rate_p / size * SECONDS;
		if (each < LEAST_BYTES)
			each = LEAST_BYTES;
		bytes = (int64_t)each / MESSAGES;
		if (bytes > 1 << 20)
			bytes = 1 << 20;
		count = (int64_t)(each / (double)bytes);
	}
	return 0;
}

static int measure_latency(struct measuring *m, int a, int b, int64_t *latency_ns_p,
			   struct pd_error *err)
{
	struct outcome outcome;

	for (int k = 0; k < 2; k++)
		pd_json_set(round_of(m, k ? b : a), "ping",
			    json_pack("{s:i, s:b, s:i}", "peer", k ? a : b, "first", !k, "count",
				      PINGS));
	if (do_round(m, &outcome, err) < 0)
		return -1;
	*latency_ns_p = outcome.latency_ns;
	json_decref(outcome.flows);
	return 0;
}

static void show_progress(struct measuring *m)
{
	m->done++;
	if (m->progress)
		m->progress->step(m->progress->context, m->done, m->total);
}

/* ---- between one rank and the next ---- */

/* A host is measured inside once. */
static bool is_first_inside(const struct pd_machine *machine, int i)
{
	const struct pd_seat *seats = machine->seats;

	return i == 0 || !pd_seat_beside(&seats[i - 1], &seats[i]);
}

/*
 * Measures a gap.  Other activity makes a transfer slower, never faster: the best of several tries
 * counts.
 */
static int measure_gap(struct measuring *m, int i, struct pd_error *err)
{
	struct pd_machine_gap *gap = &m->machine->gaps[i];
	int64_t latency_ns;
	double rate;

	if (measure_latency(m, i, i + 1, &latency_ns, err) < 0 ||
	    measure_rate(m, i, i + 1, 1, false, &rate, err) < 0)
		return -1;
	if (gap->latency_ns == 0 || latency_ns < gap->latency_ns)
		gap->latency_ns = latency_ns;
	if (rate > gap->bytes_per_s)
		gap->bytes_per_s = rate;
	return 0;
}

static int measure_gaps(struct measuring *m, struct pd_error *err)
{
	struct pd_machine *machine = m->machine;

	m->done = m->total = 0;
	for (int i = 0; i < machine->ranks - 1; i++) {
		struct pd_machine_gap *gap = &machine->gaps[i];

		gap->measured = !pd_seat_beside(&machine->seats[i], &machine->seats[i + 1]) ||
				is_first_inside(machine, i);
		m->total += gap->measured;
	}
	for (int i = 0; i < machine->ranks - 1; i++) {
		struct pd_machine_gap *gap = &machine->gaps[i];

		if (!gap->measured) {
			*gap = machine->gaps[i - 1];
			gap->measured = false;
			continue;
		}
		if (measure_gap(m, i, err) < 0)
			return -1;
		show_progress(m);
	}
	return 0;
}

/* A machine that does not look regular may only have been disturbed. */
static int find_levels(struct measuring *m, struct pd_error *err)
{
	for (int attempt = 0; attempt < TRIES; attempt++) {
		if (measure_gaps(m, err) < 0)
			return -1;
		if (pd_machine_find_levels(m->machine, err) == 0)
			return 0;
	}
	return -1;
}

/* ---- levels ---- */

static int ascending(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), ascending);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Sets what a single rank gets at a level: the medians of all that was measured. */
static void median_alone(const struct pd_machine *machine, int level, struct pd_machine_level *out)
{
	double *rates = pd_calloc((size_t)machine->ranks, sizeof(*rates));
	double *latencies = pd_calloc((size_t)machine->ranks, sizeof(*latencies));
	int n = 0;

	for (int i = 0; i < machine->ranks - 1; i++) {
		const struct pd_machine_gap *gap = &machine->gaps[i];

		if (!gap->measured || gap->level != level)
			continue;
		rates[n] = gap->bytes_per_s;
		latencies[n++] = (double)gap->latency_ns;
	}
	out->alone = median(rates, n);
	out->latency_ns = (int64_t)median(latencies, n);
	free(rates);
	free(latencies);
}

/*
 * Tells whether the components of `size` ranks before and behind a gap of this level are measured, and counts
 * them: a few of all or, on the innermost level, of each kind of device.
 */
static bool is_measured(const struct measuring *m, int gap, int level, int size, int counts[PD_MAX_KINDS])
{
	const struct pd_topology *topology = &m->machine->topology;
	int kind = level == 0 ? pd_topology_kind_of(topology, gap) : 0;

	if (gap < size - 1 || m->machine->gaps[gap].level != level || counts[kind] == MOST_TOGETHER ||
	    (level == 0 && pd_topology_kind_of(topology, gap + 1) != kind))
		return false;
	counts[kind]++;
	return true;
}

/*
 * Gives the devices of each kind, whose innermost links carry so much, these where they differ by a quarter; 0: of
 * a kind nothing was measured.
 */
static void set_links(struct pd_topology *topology, const double rates[PD_MAX_KINDS], int64_t latency_ns)
{
	struct pd_level *level = &topology->level[0];
	double usual = (double)level->bandwidth_bytes_per_s, least = usual, most = usual;

	for (int k = 0; k < topology->kinds; k++) {
		least = rates[k] > 0 && rates[k] < least ? rates[k] : least;
		most = rates[k] > most ? rates[k] : most;
	}
	if (!pd_topology_mixed(topology) || least >= SAME * most)
		return;
	for (int i = 0; i < topology->device_runs; i++) {
		double rate = rates[topology->device_run[i].kind];

		topology->link_run[i] = (struct pd_link_run){ topology->device_run[i].end,
							      (int64_t)(rate > 0 ? rate : usual), latency_ns };
	}
	level->first_run = topology->link_runs;
	level->runs = topology->link_runs = topology->device_runs;
	level->bandwidth_bytes_per_s = (int64_t)least;
}

/* Components of `size` ranks of this level, next to each other: what the link of one carries. */
static int measure_level(struct measuring *m, int level, int size, struct pd_error *err)
{
	struct pd_machine *machine = m->machine;
	struct pd_machine_level *out = &machine->levels[level];
	double one_way[MOST_TOGETHER * PD_MAX_KINDS], both_ways[MOST_TOGETHER * PD_MAX_KINDS];
	double own[PD_MAX_KINDS][MOST_TOGETHER], rates[PD_MAX_KINDS] = { 0 };
	int n = 0, counts[PD_MAX_KINDS] = { 0 };

	for (int i = size - 1; i < machine->ranks - 1; i++) {
		int kind = level == 0 ? pd_topology_kind_of(&machine->topology, i) : 0;

		if (!is_measured(m, i, level, size, counts))
			continue;
		if (measure_rate(m, i + 1 - size, i + 1, size, false, &one_way[n], err) < 0 ||
		    measure_rate(m, i + 1 - size, i + 1, size, true, &both_ways[n], err) < 0)
			return -1;
		own[kind][counts[kind] - 1] = one_way[n++];
		show_progress(m);
	}
	for (int k = 0; k < PD_MAX_KINDS; k++)
		rates[k] = counts[k] > 0 ? median(own[k], counts[k]) : 0;
	out->median = median(one_way, n);
	out->least = one_way[0];
	out->most = one_way[n - 1];
	out->both_ways = median(both_ways, n);
	median_alone(machine, level, out);
	machine->topology.level[level].bandwidth_bytes_per_s = (int64_t)out->median;
	machine->topology.level[level].latency_ns = out->latency_ns;
	if (level == 0)
		set_links(&machine->topology, rates, out->latency_ns);
	return 0;
}

static int measure_levels(struct measuring *m, struct pd_error *err)
{
	struct pd_topology *topology = &m->machine->topology;
	int size = 1;

	m->done = 0;
	m->total = 0;
	for (int level = 0, below = 1; level < topology->levels; level++) {
		int counts[PD_MAX_KINDS] = { 0 };

		for (int i = 0; i < m->machine->ranks - 1; i++)
			m->total += is_measured(m, i, level, below, counts);
		below *= (int)topology->level[level].count;
	}
	for (int level = 0; level < topology->levels; level++) {
		if (measure_level(m, level, size, err) < 0)
			return -1;
		size *= (int)topology->level[level].count;
	}
	/* the inside of hosts is a level of its own */
	topology->level[0].shared_memory = m->machine->ranks > 1 && !m->own_processors &&
		pd_seat_beside(&m->machine->seats[0], &m->machine->seats[1]);
	if (m->machine->seats[0].hosts == 1 && !m->own_processors)
		topology->processors = pd_processors();
	return 0;
}

/* ---- all together ---- */

/* texts: the addresses of all ranks, NULL where the launcher has an exchange. */
static int tell_to_connect(struct measuring *m, int r, json_t *const *texts, struct pd_error *err)
{
	int ranks = m->machine->ranks;
	json_t *addresses = json_object();

	for (int q = 0; q < ranks; q++)
		if (pd_machine_meet(ranks, r, q))
			pd_address_add(addresses, q, texts[q]);
	return pd_channel_send(channel(m, r), json_pack("{s:s, s:i, s:o}", "event", "connect", "ranks",
							ranks, "addresses", addresses), err);
}

/* Tells the topology what devices the ranks have, unless all are alike; those of a kind have the least of theirs. */
static int find_kinds(struct pd_topology *topology, const struct pd_device_kind *devices, int ranks,
		      struct pd_error *err)
{
	struct pd_topology kinds = { .kinds = 0 };
	int status = 0;

	for (int r = 0; r < ranks && status == 0; r++)
		status = pd_topology_add_devices(&kinds, devices[r].name, 1, 0, err);
	if (status < 0)
		return pd_error_prefix(err, "the devices of the ranks");
	if (!pd_topology_mixed(&kinds))
		return 0;
	for (int r = 0; r < ranks; r++) {
		int64_t *memory = &kinds.kind[pd_topology_kind_of(&kinds, r)].memory_bytes;

		if (*memory == 0 || devices[r].memory_bytes < *memory)
			*memory = devices[r].memory_bytes;
	}
	topology->kinds = kinds.kinds;
	memcpy(topology->kind, kinds.kind, sizeof(kinds.kind));
	topology->device_runs = kinds.device_runs;
	memcpy(topology->device_run, kinds.device_run, sizeof(kinds.device_run));
	topology->memory_bytes = 0;
	return 0;
}

/* Has all open their ends, and connect. */
static int connect_all(struct measuring *m, struct pd_error *err)
{
	struct pd_machine *machine = m->machine;
	json_t **texts = pd_calloc((size_t)machine->ranks, sizeof(*texts));
	struct pd_device_kind *devices = pd_calloc((size_t)machine->ranks, sizeof(*devices));
	int status = 0;

	for (int r = 0; r < machine->ranks && status == 0; r++) {
		json_t *ready = pd_ranks_hear(m->launcher, r, "ready", err);
		int64_t memory = pd_member_int(ready, "memory_bytes");

		status = ready ? 0 : -1;
		if (r == 0 || memory < machine->topology.memory_bytes)
			machine->topology.memory_bytes = memory;
		devices[r].memory_bytes = memory;
		if (ready)
			snprintf(devices[r].name, sizeof(devices[r].name), "%s",
				 pd_member_text(ready, "device_name"));
		m->own_processors |= pd_member_true(ready, "separate");
		texts[r] = json_incref(json_object_get(ready, "address"));
		json_decref(ready);
	}
	if (status == 0)
		status = find_kinds(&machine->topology, devices, machine->ranks, err);
	for (int r = 0; r < machine->ranks && status == 0; r++)
		status = tell_to_connect(m, r, texts, err);
	for (int r = 0; r < machine->ranks; r++)
		json_decref(texts[r]);
	free(texts);
	free(devices);
	return status;
}

int pd_machine_measure(const struct pd_launcher_ops *ops, int ranks, const char *device,
		       const struct pd_machine_progress *progress, struct pd_machine *out,
		       struct pd_error *err)
{
	struct measuring m = { .machine = out, .progress = progress };
	int status;

	*out = (struct pd_machine){ .ranks = ranks };
	m.launcher = pd_ranks_begin(ops, ranks, json_pack("{s:s, s:s, s:i}", "event", "measure", "device", device,
							  "ranks", ranks), err);
	if (!m.launcher)
		return -1;
	out->seats = pd_calloc((size_t)ranks, sizeof(*out->seats));
	out->gaps = pd_calloc((size_t)ranks, sizeof(*out->gaps));
	m.rounds = pd_calloc((size_t)ranks, sizeof(*m.rounds));
	for (int r = 0; r < ranks; r++)
		out->seats[r] = *ops->seat(m.launcher, r);
	status = connect_all(&m, err);
	if (status == 0)
		status = find_levels(&m, err);
	if (status == 0)
		status = measure_levels(&m, err);
	pd_ranks_end(m.launcher, ranks);
	free(m.rounds);
	return status;
}

void pd_machine_release(struct pd_machine *machine)
{
	free(machine->seats);
	free(machine->gaps);
	*machine = (struct pd_machine){ 0 };
}
