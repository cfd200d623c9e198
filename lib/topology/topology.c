/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topology.h"

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

#define RUN(member) PD_MEMBER(struct pd_link_run, member)
#define LEVEL(member) PD_MEMBER(struct pd_level, member)
#define COUNT PD_ROW_INT, .needed = true, .least = 1, .most = PD_MAX_RANKS
#define BANDWIDTH PD_ROW_INT, .needed = true, .least = 1
#define LATENCY PD_ROW_INT, .always = true, .most = PD_MAX_LATENCY_NS

/* A run's "count" is in its end until it is known where it begins. */
static const struct pd_key_row link_rows[] = {
	{ "count", COUNT, RUN(end) },
	{ "bandwidth_bytes_per_s", BANDWIDTH, RUN(bandwidth_bytes_per_s) },
	{ "latency_ns", LATENCY, RUN(latency_ns) },
	{ NULL }
};

/* A level whose links are alike. */
static const struct pd_key_row level_rows[] = {
	{ "count", COUNT, LEVEL(count) },
	{ "bandwidth_bytes_per_s", BANDWIDTH, LEVEL(bandwidth_bytes_per_s) },
	{ "latency_ns", LATENCY, LEVEL(latency_ns) },
	{ "shared_memory", PD_ROW_BOOL, LEVEL(shared_memory) },
	{ "links", PD_ROW_BY, .rows = link_rows },
	{ NULL }
};

/* One whose links are not. */
static const struct pd_key_row apart_rows[] = {
	{ "count", COUNT, LEVEL(count) },
	{ "links", PD_ROW_BY, .needed = true, .rows = link_rows },
	{ "shared_memory", PD_ROW_BOOL, LEVEL(shared_memory) },
	{ NULL }
};

/* Reads the links of a level that are not all alike; whether they are enough check_links() tells. */
static int read_links(const struct pd_place *links, struct pd_topology *topology, struct pd_level *level,
		      struct pd_error *err)
{
	size_t count;
	int64_t end = 0;

	if (pd_json_some(links, PD_MAX_RUNS - topology->link_runs, "links", &count, err) < 0)
		return -1;
	level->first_run = topology->link_runs;
	level->bandwidth_bytes_per_s = INT64_MAX;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(links, i);
		struct pd_link_run *run = &topology->link_run[topology->link_runs++];

		if (pd_rows_read(&at, link_rows, run, err) < 0)
			return -1;
		run->end = end += run->end;
		if (run->bandwidth_bytes_per_s < level->bandwidth_bytes_per_s)
			level->bandwidth_bytes_per_s = run->bandwidth_bytes_per_s;
		if (run->latency_ns > level->latency_ns)
			level->latency_ns = run->latency_ns;
	}
	level->runs = (int)count;
	return 0;
}

static int read_levels(const struct pd_place *levels, void *of, struct pd_error *err)
{
	struct pd_topology *topology = of;
	size_t count;

	if (pd_json_some(levels, PD_MAX_LEVELS, "levels", &count, err) < 0)
		return -1;
	for (size_t l = 0; l < count; l++) {
		struct pd_place at = pd_place_index(levels, l), links = pd_place_key(&at, "links");
		struct pd_level level = { 0 };

		if (pd_rows_read(&at, links.value ? apart_rows : level_rows, &level, err) < 0 ||
		    (links.value && read_links(&links, topology, &level, err) < 0))
			return -1;
		if (add_level(&level, topology) < 0)
			return pd_place_error(&at, err, "expected at most %d devices in all", PD_MAX_RANKS);
	}
	return 0;
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

struct devices {
	const char *name;
	int64_t count, memory_bytes;
};

#define DEVICE(member) PD_MEMBER(struct devices, member)

static const struct pd_key_row devices_rows[] = {
	{ "name", PD_ROW_WORD, .needed = true, DEVICE(name) },
	{ "count", COUNT, DEVICE(count) },
	{ "memory_bytes", PD_ROW_INT, .always = true, DEVICE(memory_bytes) },
	{ NULL }
};

/* Reads kinds of devices, when it is known how many devices there are. */
static int read_devices(const struct pd_place *place, struct pd_topology *topology, struct pd_error *err)
{
	struct pd_error why;
	size_t count;

	if (!place->value)
		return 0;
	if (pd_json_some(place, PD_MAX_RUNS, "devices that are alike", &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = pd_place_index(place, i);
		struct devices alike;

		if (pd_rows_read(&at, devices_rows, &alike, err) < 0)
			return -1;
		if (pd_topology_add_devices(topology, alike.name, alike.count, alike.memory_bytes, &why) < 0)
			return pd_place_error(&at, err, "%s", why.text);
	}
	return pd_topology_check_devices(topology, &why) < 0 ? pd_place_error(place, err, "%s", why.text) : 0;
}

static json_t *level_json(const struct pd_topology *topology, const struct pd_level *level)
{
	json_t *json = json_pack("{sI}", "count", level->count), *links = NULL;
	int64_t begin = 0;

	if (level->runs)
		pd_json_set(json, "links", links = json_array());
	for (int i = level->first_run; i < level->first_run + level->runs; i++) {
		struct pd_link_run run = topology->link_run[i];

		run.end -= begin;
		begin += run.end;
		pd_json_add(links, pd_rows_json(link_rows, &run));
	}
	pd_rows_write(level->runs ? apart_rows : level_rows, level, json);
	return json;
}

static json_t *levels_json(const void *of)
{
	const struct pd_topology *topology = of;
	json_t *levels = json_array();

	for (int l = 0; l < topology->levels; l++)
		pd_json_add(levels, level_json(topology, &topology->level[l]));
	return levels;
}

static json_t *devices_json(const void *of)
{
	const struct pd_topology *topology = of;
	json_t *devices = topology->kinds ? json_array() : NULL;
	int64_t begin = 0;

	for (int i = 0; devices && i < topology->device_runs; begin = topology->device_run[i++].end) {
		const struct pd_device_kind *kind = &topology->kind[topology->device_run[i].kind];
		struct devices alike = { kind->name, topology->device_run[i].end - begin, kind->memory_bytes };

		pd_json_add(devices, pd_rows_json(devices_rows, &alike));
	}
	return devices;
}

#define IN(member) PD_MEMBER(struct pd_topology, member)

static const struct pd_key_row device_rows[] = {
	{ "memory_bytes", PD_ROW_INT, .always = true, IN(memory_bytes) },
	{ NULL }
};

const struct pd_key_row pd_topology_rows[] = {
	PD_ROWS_HEADER("pd-topology", 1),
	{ "device", PD_ROW_OBJECT, .always = true, .rows = device_rows },
	{ "devices", PD_ROW_BY, .rows = devices_rows, .write = devices_json },
	{ "levels", PD_ROW_BY, .needed = true, .rows = level_rows, .read = read_levels,
	  .write = levels_json },
	{ "processors", PD_ROW_INT, IN(processors), .most = PD_MAX_RANKS },
	{ NULL }
};

int pd_topology_parse_at(const struct pd_place *place, struct pd_topology *out_p,
			 struct pd_error *err)
{
	struct pd_topology topology = { .devices = 1 };
	struct pd_place device = pd_place_key(place, "device"), devices = pd_place_key(place, "devices");
	struct pd_place levels = pd_place_key(place, "levels");

	if (pd_rows_read(place, pd_topology_rows, &topology, err) < 0)
		return -1;
	if (device.value && devices.value)
		return pd_place_error(&device, err, "\"devices\" says what devices there are: expected one of "
				      "the two");
	if (check_links(&levels, &topology, err) < 0 || read_devices(&devices, &topology, err) < 0)
		return -1;
	if (topology.processors > 0 && pd_topology_mixed(&topology))
		return pd_place_error(&devices, err, "ranks that share processors have devices of one kind");
	*out_p = topology;
	return 0;
}

json_t *pd_topology_json(const struct pd_topology *topology)
{
	json_t *json = pd_rows_json(pd_topology_rows, topology);

	if (topology->kinds)
		json_object_del(json, "device");
	return json;
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
