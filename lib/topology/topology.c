/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topology.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One more level, outside the others. */
static int add_level(const struct pd_level *level, struct pd_topology *topology)
{
	if (topology->levels == PD_MAX_LEVELS ||
	    !pd_mul(topology->devices, level->count, &topology->devices) ||
	    topology->devices > PD_MAX_RANKS)
		return -1;
	topology->level[topology->levels++] = *level;
	return 0;
}

static int read_level(const struct pd_place *place, struct pd_level *level, struct pd_error *err)
{
	static const char *const known[] = { "count", "bandwidth_bytes_per_s", "latency_ns", NULL };

	if (pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_int(place, "count", 1, PD_MAX_RANKS, &level->count, err) < 0 ||
	    pd_json_get_int(place, "bandwidth_bytes_per_s", 1, INT64_MAX,
			    &level->bandwidth_bytes_per_s, err) < 0)
		return -1;
	return pd_json_opt_int(place, "latency_ns", 0, PD_MAX_TIME_NS, &level->latency_ns, err);
}

static int read_device(const struct pd_place *place, struct pd_topology *topology,
		       struct pd_error *err)
{
	static const char *const known[] = { "memory_bytes", NULL };

	if (!place->value)
		return 0;
	if (pd_json_keys(place, known, err) < 0)
		return -1;
	return pd_json_opt_int(place, "memory_bytes", 0, INT64_MAX, &topology->memory_bytes, err);
}

int pd_topology_parse_at(const struct pd_place *place, struct pd_topology *out_p,
			 struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "device", "processors", "levels",
					     NULL };
	struct pd_topology topology = { .devices = 1 };
	struct pd_place device, levels;
	size_t count;

	if (pd_json_header(place, "pd-topology", err) < 0 || pd_json_keys(place, known, err) < 0)
		return -1;
	device = pd_place_key(place, "device");
	levels = pd_place_key(place, "levels");
	if (read_device(&device, &topology, err) < 0 ||
	    pd_json_opt_int(place, "processors", 0, PD_MAX_RANKS, &topology.processors, err) < 0 ||
	    pd_json_array(&levels, &count, err) < 0)
		return -1;
	if (count < 1 || count > PD_MAX_LEVELS)
		return pd_place_expected(&levels, err, "1 to %d levels", PD_MAX_LEVELS);
	for (size_t l = 0; l < count; l++) {
		struct pd_place at = pd_place_index(&levels, l);
		struct pd_level level = { 0 };

		if (read_level(&at, &level, err) < 0)
			return -1;
		if (add_level(&level, &topology) < 0)
			return pd_place_error(&at, err, "expected at most %d devices in all",
					      PD_MAX_RANKS);
	}
	*out_p = topology;
	return 0;
}

/* COUNT@BANDWIDTH[+LATENCY]; item is cut into pieces. */
static int parse_level(char *item, struct pd_level *level, struct pd_error *err)
{
	char *rate = strchr(item, '@'), *time;

	if (!rate)
		return pd_error_input(err, "expected COUNT@BANDWIDTH[+LATENCY] such as "
				      "4@12GB/s+5us, found \"%.60s\"", item);
	*rate++ = 0;
	/* a '+' inside a number, as in 1e+9B/s, does not follow the unit */
	time = strstr(rate, "/s+");
	if (time) {
		time[2] = 0;
		time += 3;
	}
	if (pd_parse_count(item, 1, PD_MAX_RANKS, &level->count, err) < 0 ||
	    pd_parse_rate(rate, &level->bandwidth_bytes_per_s, err) < 0 ||
	    (time && pd_parse_time(time, &level->latency_ns, err) < 0))
		return -1;
	if (level->bandwidth_bytes_per_s < 1)
		return pd_error_input(err, "expected a bandwidth of at least 1B/s, found \"%.60s\"",
				      rate);
	if (level->latency_ns > PD_MAX_TIME_NS)
		return pd_error_input(err, "expected a latency below 2^53 ns, found \"%.60s\"",
				      time);
	return 0;
}

int pd_topology_parse_string(const char *text, struct pd_topology *out_p, struct pd_error *err)
{
	struct pd_topology topology = { .devices = 1 };
	char *copy = pd_strdup(text), *rest = copy, *item;
	int result = 0;

	while (result == 0 && (item = strsep(&rest, ","))) {
		struct pd_level level = { 0 };

		result = parse_level(item, &level, err);
		if (result == 0 && add_level(&level, &topology) < 0)
			result = pd_error_input(err, "expected at most %d levels and %d devices in "
						"all",
						PD_MAX_LEVELS, PD_MAX_RANKS);
	}
	free(copy);
	if (result < 0)
		return pd_error_prefix(err, "topology \"%.80s\"", text);
	*out_p = topology;
	return 0;
}

int pd_topology_read(const char *what, struct pd_topology *out_p, struct pd_error *err)
{
	struct pd_place root;
	json_t *value;
	int result;

	if (what && strchr(what, '@'))
		return pd_topology_parse_string(what, out_p, err);
	value = pd_json_load(what, err);
	if (!value)
		return -1;
	root = pd_place_root(pd_document_name(what), value);
	result = pd_topology_parse_at(&root, out_p, err);
	json_decref(value);
	return result;
}

int pd_topology_flat(int64_t devices, int64_t bandwidth_bytes_per_s, int64_t latency_ns,
		     struct pd_topology *out_p, struct pd_error *err)
{
	struct pd_topology topology = { .devices = 1 };
	struct pd_level level = { devices, bandwidth_bytes_per_s, latency_ns };

	if (devices < 1 || add_level(&level, &topology) < 0)
		return pd_error_input(err, "expected 1 to %d devices, found %" PRId64, PD_MAX_RANKS,
				      devices);
	if (bandwidth_bytes_per_s < 1 || latency_ns < 0)
		return pd_error_input(err, "expected a bandwidth above zero and a latency of zero "
				      "or more, found %" PRId64 " bytes/s and %" PRId64 " ns",
				      bandwidth_bytes_per_s, latency_ns);
	*out_p = topology;
	return 0;
}

json_t *pd_topology_json(const struct pd_topology *topology)
{
	json_t *levels = json_array(), *json;

	for (int l = 0; l < topology->levels; l++) {
		const struct pd_level *level = &topology->level[l];

		json_array_append_new(levels, json_pack("{sI sI sI}", "count", level->count,
				"bandwidth_bytes_per_s", level->bandwidth_bytes_per_s,
				"latency_ns", level->latency_ns));
	}
	json = json_pack("{ss si s{sI} so}", "format", "pd-topology", "version", 1,
			 "device", "memory_bytes", topology->memory_bytes, "levels", levels);
	if (topology->processors > 0)
		json_object_set_new(json, "processors", json_integer(topology->processors));
	return json;
}

int pd_topology_level(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b)
{
	int64_t inside = 1;

	for (int l = 0; l < topology->levels; l++) {
		inside *= topology->level[l].count;
		if (rank_a / inside == rank_b / inside)
			return l;
	}
	return topology->levels - 1;
}

int64_t pd_topology_transfer_ns(const struct pd_topology *topology, int64_t rank_a,
				int64_t rank_b, int64_t bytes)
{
	int outermost = pd_topology_level(topology, rank_a, rank_b);
	int64_t latency = topology->level[outermost].latency_ns;
	int64_t bandwidth = topology->level[0].bandwidth_bytes_per_s;
	__int128 time;

	for (int l = 1; l <= outermost; l++)
		if (topology->level[l].bandwidth_bytes_per_s < bandwidth)
			bandwidth = topology->level[l].bandwidth_bytes_per_s;
	time = latency + ((__int128)bytes * 1000000000 + bandwidth - 1) / bandwidth;
	return time > INT64_MAX ? INT64_MAX : (int64_t)time;
}

/* The components of so many ranks that some are in, and the most of a (n - a) where one has a. */
struct spread {
	int64_t runs;
	double most;
};

static double pairs_of(int64_t a, int64_t n)
{
	return (double)a * (double)(n - a);
}

static struct spread spread_of(const int *ranks, int n, int64_t size)
{
	struct spread spread = { 0, 0 };

	for (int i = 1, first = 0; i <= n; i++)
		if (i == n || ranks[i] / size != ranks[first] / size) {
			double pairs = pairs_of(i - first, n);

			spread.most = pairs > spread.most ? pairs : spread.most;
			spread.runs++;
			first = i;
		}
	return spread;
}

/* Of ranks one behind the other: those in the first component, in the last, in one between. */
static struct spread spread_of_line(int64_t first, int64_t n, int64_t size)
{
	int64_t last = first + n - 1, runs = last / size - first / size + 1;
	int64_t parts[] = { runs > 1 ? size - first % size : n, runs > 1 ? last % size + 1 : n,
			    runs > 2 ? size : 0 };
	struct spread spread = { runs, 0 };

	for (int i = 0; i < 3; i++)
		if (pairs_of(parts[i], n) > spread.most)
			spread.most = pairs_of(parts[i], n);
	return spread;
}

/*
 * With the busiest link of each.  A component with a members sends 2 a (n - a) / n of the buffer
 * in an exchange; in a chain all of it once for each neighbour it has, and the first piece is
 * n - 1 steps, and n - 1 steps back, behind the last.
 */
static bool quicker(const struct pd_topology *topology, const int *ranks, int64_t first, int n,
		    int64_t bytes)
{
	double exchange_ns = 0, chain_ns = 0, steps_ns = 0, latency_ns = 0, ns = 0;
	struct spread here = spread_of_line(0, n, 1);
	int64_t size = 1;

	for (int k = 0; k < topology->levels && here.runs > 1; k++) {
		const struct pd_level *level = &topology->level[k];
		double own = 1e9 / (double)level->bandwidth_bytes_per_s * (double)bytes, busy;
		struct spread outer;

		ns = own > ns ? own : ns;
		busy = 2 * here.most / n * ns;
		exchange_ns = busy > exchange_ns ? busy : exchange_ns;
		busy = (double)(here.runs > 2 ? 2 : 1) * ns;
		chain_ns = busy > chain_ns ? busy : chain_ns;
		size *= level->count;
		outer = ranks ? spread_of(ranks, n, size) : spread_of_line(first, n, size);
		steps_ns += 2.0 * (double)(here.runs - outer.runs) *
			(ns / n + (double)level->latency_ns);
		latency_ns = 2.0 * (double)level->latency_ns;
		here = outer;
	}
	return chain_ns + steps_ns < exchange_ns + latency_ns;
}

bool pd_topology_chains_line(const struct pd_topology *topology, int64_t first, int n,
			     int64_t bytes)
{
	return n > 2 && topology->levels > 1 && quicker(topology, NULL, first, n, bytes);
}

bool pd_topology_chains(const struct pd_topology *topology, const int *ranks, int n,
			int64_t bytes)
{
	if (n < 3 || topology->levels == 1)
		return false;
	for (int i = 1; i < n; i++)
		if (ranks[i] <= ranks[i - 1])
			return false;
	return quicker(topology, ranks[n - 1] - ranks[0] == n - 1 ? NULL : ranks, ranks[0], n,
		       bytes);
}
