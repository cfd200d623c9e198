/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topology.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Adds a level outside the others. */
static int add_level(const struct pd_level *level, struct pd_topology *topology)
{
	if (topology->levels == PD_MAX_LEVELS ||
	    !pd_mul(topology->devices, level->count, &topology->devices) ||
	    topology->devices > PD_MAX_RANKS)
		return -1;
	topology->level[topology->levels++] = *level;
	return 0;
}

static int read_link(const struct pd_place *place, int64_t *bandwidth_p, int64_t *latency_ns_p,
		     struct pd_error *err)
{
	return pd_json_get_int(place, "bandwidth_bytes_per_s", 1, INT64_MAX, bandwidth_p, err) < 0
		? -1 : pd_json_opt_int(place, "latency_ns", 0, PD_MAX_LATENCY_NS, latency_ns_p,
				       err);
}

/* Reads the links of a level that are not all alike; whether they are enough check_links() tells. */
static int read_links(const struct pd_place *links, struct pd_topology *topology, struct pd_level *level,
		      struct pd_error *err)
{
	static const char *const known[] = { "count", "bandwidth_bytes_per_s", "latency_ns", NULL };
	size_t count;
	int64_t end = 0;

	if (pd_json_some(links, PD_MAX_RUNS - topology->link_runs, "links", &count, err) < 0)
		return -1;
	level->first_run = topology->link_runs;
	level->bandwidth_bytes_per_s = INT64_MAX;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(links, i);
		struct pd_link_run *run = &topology->link_run[topology->link_runs++];
		int64_t many;

		run->latency_ns = 0;
		if (pd_json_keys(&at, known, err) < 0 ||
		    pd_json_get_int(&at, "count", 1, PD_MAX_RANKS, &many, err) < 0 ||
		    read_link(&at, &run->bandwidth_bytes_per_s, &run->latency_ns, err) < 0)
			return -1;
		run->end = end += many;
		if (run->bandwidth_bytes_per_s < level->bandwidth_bytes_per_s)
			level->bandwidth_bytes_per_s = run->bandwidth_bytes_per_s;
		if (run->latency_ns > level->latency_ns)
			level->latency_ns = run->latency_ns;
	}
	level->runs = (int)count;
	return 0;
}

static int read_level(const struct pd_place *place, struct pd_topology *topology, struct pd_level *level,
		      struct pd_error *err)
{
	static const char *const alike[] = { "count", "bandwidth_bytes_per_s", "latency_ns",
					     "shared_memory", "links", NULL };
	static const char *const apart[] = { "count", "links", "shared_memory", NULL };
	struct pd_place links = pd_place_key(place, "links");

	if (pd_json_keys(place, links.value ? apart : alike, err) < 0 ||
	    pd_json_get_int(place, "count", 1, PD_MAX_RANKS, &level->count, err) < 0 ||
	    (links.value ? read_links(&links, topology, level, err)
			 : read_link(place, &level->bandwidth_bytes_per_s, &level->latency_ns, err)) < 0)
		return -1;
	return pd_json_opt_bool(place, "shared_memory", &level->shared_memory, err);
}

/* Checks that levels with links of their own have as many as components. */
static int check_links(const struct pd_place *levels, const struct pd_topology *topology, struct pd_error *err)
{
	int64_t components = topology->devices;

	for (int l = 0; l < topology->levels; components /= topology->level[l++].count) {
		const struct pd_level *level = &topology->level[l];
		struct pd_place at = pd_place_index(levels, (size_t)l), links = pd_place_key(&at, "links");
		int64_t count = level->runs ? topology->link_run[level->first_run + level->runs - 1].end : 0;

		if (level->runs && count != components)
			return pd_place_error(&links, err, "expected counts that add up to %" PRId64
					      ", all that are joined at this level, found %" PRId64, components,
					      count);
	}
	return 0;
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

/* Reads kinds of devices, when it is known how many devices there are. */
static int read_devices(const struct pd_place *place, struct pd_topology *topology, struct pd_error *err)
{
	static const char *const known[] = { "name", "count", "memory_bytes", NULL };
	struct pd_error why;
	size_t count;

	if (!place->value)
		return 0;
	if (pd_json_some(place, PD_MAX_RUNS, "devices that are alike", &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(place, i);
		int64_t many, memory = 0;
		const char *name;

		if (pd_json_keys(&at, known, err) < 0 || pd_json_get_string(&at, "name", &name, err) < 0 ||
		    pd_json_get_int(&at, "count", 1, PD_MAX_RANKS, &many, err) < 0 ||
		    pd_json_opt_int(&at, "memory_bytes", 0, INT64_MAX, &memory, err) < 0)
			return -1;
		if (pd_topology_add_devices(topology, name, many, memory, &why) < 0)
			return pd_place_error(&at, err, "%s", why.text);
	}
	return pd_topology_check_devices(topology, &why) < 0 ? pd_place_error(place, err, "%s", why.text) : 0;
}

int pd_topology_parse_at(const struct pd_place *place, struct pd_topology *out_p,
			 struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "device", "devices", "processors",
					     "levels", NULL };
	struct pd_topology topology = { .devices = 1 };
	struct pd_place device, devices, levels;
	size_t count;

	if (pd_json_header(place, "pd-topology", err) < 0 || pd_json_keys(place, known, err) < 0)
		return -1;
	device = pd_place_key(place, "device");
	devices = pd_place_key(place, "devices");
	levels = pd_place_key(place, "levels");
	if (device.value && devices.value)
		return pd_place_error(&device, err, "\"devices\" says what devices there are: expected one of "
				      "the two");
	if (read_device(&device, &topology, err) < 0 ||
	    pd_json_opt_int(place, "processors", 0, PD_MAX_RANKS, &topology.processors, err) < 0 ||
	    pd_json_some(&levels, PD_MAX_LEVELS, "levels", &count, err) < 0)
		return -1;
	for (size_t l = 0; l < count; l++) {
		struct pd_place at = pd_place_index(&levels, l);
		struct pd_level level = { 0 };

		if (read_level(&at, &topology, &level, err) < 0)
			return -1;
		if (add_level(&level, &topology) < 0)
			return pd_place_error(&at, err, "expected at most %d devices in all",
					      PD_MAX_RANKS);
	}
	if (check_links(&levels, &topology, err) < 0 || read_devices(&devices, &topology, err) < 0)
		return -1;
	if (topology.processors > 0 && pd_topology_mixed(&topology))
		return pd_place_error(&devices, err, "ranks that share processors have devices of one kind");
	*out_p = topology;
	return 0;
}

/* Parses COUNT@BANDWIDTH[+LATENCY], and cuts item into pieces. */
static int parse_level(char *item, struct pd_level *level, struct pd_error *err)
{
	char *rate = strchr(item, '@'), *time;

	if (!rate)
		return pd_error_input(err, "expected COUNT@BANDWIDTH[+LATENCY] such as "
				      "4@12GB/s+5us, found \"%.60s\"", item);
	*rate++ = 0;
	/* A '+' inside a number, as in 1e+9B/s, does not follow the unit. */
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
	if (level->latency_ns > PD_MAX_LATENCY_NS)
		return pd_error_input(err, "expected a latency of at most 10s, found \"%.60s\"",
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
	if (what && *what && strcmp(what, "-") != 0 && access(what, F_OK) != 0)
		return pd_error_input(err, "topology \"%.80s\": no such file; expected one, or "
				      "COUNT@BANDWIDTH[+LATENCY] such as 4@12GB/s+5us", what);
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

static json_t *level_json(const struct pd_topology *topology, const struct pd_level *level)
{
	json_t *shared = level->shared_memory ? json_true() : NULL, *links;
	int64_t begin = 0;

	if (!level->runs)
		return json_pack("{sI sI sI so*}", "count", level->count, "bandwidth_bytes_per_s",
				 level->bandwidth_bytes_per_s, "latency_ns", level->latency_ns,
				 "shared_memory", shared);
	links = json_array();
	for (int i = level->first_run; i < level->first_run + level->runs; i++) {
		const struct pd_link_run *run = &topology->link_run[i];

		pd_json_add(links, json_pack("{sI sI sI}", "count", run->end - begin, "bandwidth_bytes_per_s",
					     run->bandwidth_bytes_per_s, "latency_ns", run->latency_ns));
		begin = run->end;
	}
	return json_pack("{sI so so*}", "count", level->count, "links", links, "shared_memory", shared);
}

static json_t *devices_json(const struct pd_topology *topology)
{
	json_t *devices = json_array();
	int64_t begin = 0;

	for (int i = 0; i < topology->device_runs; begin = topology->device_run[i++].end) {
		const struct pd_device_run *run = &topology->device_run[i];
		const struct pd_device_kind *kind = &topology->kind[run->kind];

		pd_json_add(devices, json_pack("{ss sI sI}", "name", kind->name, "count", run->end - begin,
					       "memory_bytes", kind->memory_bytes));
	}
	return devices;
}

json_t *pd_topology_json(const struct pd_topology *topology)
{
	json_t *levels = json_array(), *json = json_pack("{ss si}", "format", "pd-topology", "version", 1);

	for (int l = 0; l < topology->levels; l++)
		pd_json_add(levels, level_json(topology, &topology->level[l]));
	if (topology->kinds)
		pd_json_set(json, "devices", devices_json(topology));
	else
		pd_json_set(json, "device", json_pack("{sI}", "memory_bytes", topology->memory_bytes));
	pd_json_set(json, "levels", levels);
	if (topology->processors > 0)
		pd_json_set(json, "processors", json_integer(topology->processors));
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

struct pd_level pd_slowest_link(const struct pd_topology *topology, int outermost)
{
	struct pd_level link = topology->level[outermost];

	for (int k = 0; k < outermost; k++)
		if (topology->level[k].bandwidth_bytes_per_s < link.bandwidth_bytes_per_s)
			link.bandwidth_bytes_per_s = topology->level[k].bandwidth_bytes_per_s;
	return link;
}

bool pd_topology_shares_memory(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b)
{
	return topology->processors > 0 ||
	       topology->level[pd_topology_level(topology, rank_a, rank_b)].shared_memory;
}

int64_t pd_topology_transfer_ns(const struct pd_topology *topology, int64_t rank_a,
				int64_t rank_b, int64_t bytes)
{
	struct pd_level way = pd_topology_way(topology, rank_a, rank_b);
	__int128 time = way.latency_ns + ((__int128)bytes * 1000000000 + way.bandwidth_bytes_per_s - 1) /
					 way.bandwidth_bytes_per_s;

	return time > INT64_MAX ? INT64_MAX : (int64_t)time;
}
