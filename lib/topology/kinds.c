/* SPDX-License-Identifier: Apache-2.0 */
/* Machines whose devices, or links of one level, are not all alike. */
#include "topology/topology.h"

#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int pd_topology_run(const struct pd_topology *topology, int64_t rank, int64_t *end_p)
{
	for (int i = 0; i < topology->device_runs; i++)
		if (rank < topology->device_run[i].end) {
			*end_p = topology->device_run[i].end;
			return topology->device_run[i].kind;
		}
	*end_p = topology->devices;
	return 0;
}

int pd_topology_kind_of(const struct pd_topology *topology, int64_t rank)
{
	int64_t end;

	return pd_topology_mixed(topology) ? pd_topology_run(topology, rank, &end) : 0;
}

int64_t pd_topology_memory_of(const struct pd_topology *topology, int64_t rank)
{
	return topology->kinds ? topology->kind[pd_topology_kind_of(topology, rank)].memory_bytes
			       : topology->memory_bytes;
}

/* Returns the kind with a name, perhaps a new one; -1: there are too many. */
static int find_kind(struct pd_topology *topology, const char *name, int64_t memory_bytes)
{
	int k = 0;

	while (k < topology->kinds && strcmp(topology->kind[k].name, name) != 0)
		k++;
	if (k == PD_MAX_KINDS)
		return -1;
	if (k == topology->kinds) {
		topology->kinds++;
		strcpy(topology->kind[k].name, name);
		topology->kind[k].memory_bytes = memory_bytes;
	}
	return k;
}

int pd_topology_add_devices(struct pd_topology *topology, const char *name, int64_t count,
			    int64_t memory_bytes, struct pd_error *err)
{
	struct pd_device_run *last = topology->device_runs
		? &topology->device_run[topology->device_runs - 1] : NULL;
	int64_t end = (last ? last->end : 0) + count;
	int kind;

	if (strlen(name) >= PD_DEVICE_NAME)
		return pd_error_input(err, "expected a name of at most %d bytes", PD_DEVICE_NAME - 1);
	kind = find_kind(topology, name, memory_bytes);
	if (kind < 0)
		return pd_error_input(err, "expected at most %d kinds of devices", PD_MAX_KINDS);
	if (topology->kind[kind].memory_bytes != memory_bytes)
		return pd_error_input(err, "expected devices \"%.90s\" with the memory of those before, %" PRId64
				      " bytes, found %" PRId64, name, topology->kind[kind].memory_bytes,
				      memory_bytes);
	if (last && last->kind == kind) {
		last->end = end;
		return 0;
	}
	if (topology->device_runs == PD_MAX_RUNS)
		return pd_error_input(err, "expected at most %d runs of devices that are alike", PD_MAX_RUNS);
	topology->device_run[topology->device_runs++] = (struct pd_device_run){ end, kind };
	return 0;
}

int pd_topology_check_devices(const struct pd_topology *topology, struct pd_error *err)
{
	int64_t count = topology->device_runs ? topology->device_run[topology->device_runs - 1].end : 0;

	if (count == topology->devices)
		return 0;
	return pd_error_input(err, "expected counts that add up to the %" PRId64 " devices of all levels, found "
			      "%" PRId64, topology->devices, count);
}

int pd_topology_parse_devices(const char *text, struct pd_topology *topology, struct pd_error *err)
{
	char *copy = pd_strdup(text), *rest = copy, *item;
	int result = 0;

	while (result == 0 && (item = strsep(&rest, ","))) {
		char *times = strrchr(item, 'x');
		int64_t count;

		if (!times || times == item) {
			result = pd_error_input(err, "expected NAMExCOUNT such as A100x16, found \"%.60s\"", item);
			continue;
		}
		*times++ = '\0';
		result = pd_parse_count(times, 1, PD_MAX_RANKS, &count, err);
		if (result == 0)
			result = pd_topology_add_devices(topology, item, count, 0, err);
	}
	free(copy);
	return result;
}

struct pd_level pd_topology_link(const struct pd_topology *topology, int level, int64_t component)
{
	struct pd_level link = topology->level[level];

	for (int i = link.first_run; i < link.first_run + link.runs; i++)
		if (component < topology->link_run[i].end) {
			link.bandwidth_bytes_per_s = topology->link_run[i].bandwidth_bytes_per_s;
			link.latency_ns = topology->link_run[i].latency_ns;
			break;
		}
	return link;
}

struct pd_level pd_topology_fastest_link(const struct pd_topology *topology, int level)
{
	struct pd_level link = topology->level[level];

	for (int i = link.first_run; i < link.first_run + link.runs; i++) {
		const struct pd_link_run *run = &topology->link_run[i];

		if (run->bandwidth_bytes_per_s > link.bandwidth_bytes_per_s)
			link.bandwidth_bytes_per_s = run->bandwidth_bytes_per_s;
		if (run->latency_ns < link.latency_ns)
			link.latency_ns = run->latency_ns;
	}
	return link;
}

struct pd_level pd_topology_way(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b)
{
	int outermost = pd_topology_level(topology, rank_a, rank_b);
	int64_t ends[] = { rank_a, rank_b }, size = 1;
	struct pd_level way;

	if (topology->link_runs == 0)
		return pd_slowest_link(topology, outermost);
	way = topology->level[outermost];
	way.bandwidth_bytes_per_s = INT64_MAX;
	way.latency_ns = 0;
	for (int k = 0; k <= outermost; size *= topology->level[k++].count)
		for (int i = 0; i < 2; i++) {
			struct pd_level link = pd_topology_link(topology, k, ends[i] / size);

			if (link.bandwidth_bytes_per_s < way.bandwidth_bytes_per_s)
				way.bandwidth_bytes_per_s = link.bandwidth_bytes_per_s;
			if (k == outermost && link.latency_ns > way.latency_ns)
				way.latency_ns = link.latency_ns;
		}
	return way;
}

/* Tells whether two components of a level have the same link. */
static bool same_link(const struct pd_topology *topology, int level, int64_t a, int64_t b)
{
	struct pd_level x = pd_topology_link(topology, level, a), y = pd_topology_link(topology, level, b);

	return x.bandwidth_bytes_per_s == y.bandwidth_bytes_per_s && x.latency_ns == y.latency_ns;
}

bool pd_topology_same(const struct pd_topology *topology, int64_t a, int64_t b, int64_t n)
{
	int64_t size = 1;

	for (int64_t d = 0; d < n && pd_topology_mixed(topology); d++)
		if (pd_topology_kind_of(topology, a + d) != pd_topology_kind_of(topology, b + d))
			return false;
	for (int k = 0; k < topology->levels && size <= n && topology->link_runs > 0;
	     size *= topology->level[k++].count)
		for (int64_t d = 0; d < n; d += size)
			if (!same_link(topology, k, (a + d) / size, (b + d) / size))
				return false;
	return true;
}

/* Tells whether each component of a level has one of before, in the same order. */
static bool keeps_components(const int *was, int64_t devices, int64_t size)
{
	for (int64_t first = 0; first < devices; first += size)
		for (int64_t i = 0; i < size; i++)
			if (was[first] % size != 0 || was[first + i] != was[first] + i)
				return false;
	return true;
}

/* Adds the link of one more component of a level to its runs; false: there are too many. */
static bool add_link(struct pd_topology *topology, int level, int64_t component, const struct pd_level *link)
{
	struct pd_level *at = &topology->level[level];
	struct pd_link_run *last = at->runs ? &topology->link_run[at->first_run + at->runs - 1] : NULL;

	if (last && last->bandwidth_bytes_per_s == link->bandwidth_bytes_per_s &&
	    last->latency_ns == link->latency_ns) {
		last->end = component + 1;
		return true;
	}
	if (topology->link_runs == PD_MAX_RUNS)
		return false;
	topology->link_run[topology->link_runs++] = (struct pd_link_run){
		component + 1, link->bandwidth_bytes_per_s, link->latency_ns };
	at->runs++;
	return true;
}

/* Gives components the links that they had, size devices each. */
static bool reorder_links(const struct pd_topology *from, const int *was, struct pd_topology *to)
{
	int64_t size = 1;

	to->link_runs = 0;
	for (int k = 0; k < from->levels; size *= from->level[k++].count) {
		to->level[k].first_run = to->link_runs;
		to->level[k].runs = 0;
		for (int64_t c = 0; c < from->devices / size && from->level[k].runs > 0; c++) {
			struct pd_level link = pd_topology_link(from, k, was[c * size] / size);

			if (!add_link(to, k, c, &link))
				return false;
		}
	}
	return true;
}

bool pd_topology_reorder(const struct pd_topology *topology, const int *kinds, struct pd_topology *out_p,
			 int **was_p)
{
	int *was = pd_calloc((size_t)topology->devices, sizeof(*was));
	struct pd_topology out = *topology;
	int64_t size = 1, n = 0;
	struct pd_error ignored;
	bool kept = true;

	out.device_runs = 0;
	for (int i = 0; i < topology->kinds; i++) {
		const struct pd_device_kind *kind = &topology->kind[kinds[i]];
		int64_t before = n;

		for (int64_t d = 0; d < topology->devices; d++)
			if (pd_topology_kind_of(topology, d) == kinds[i])
				was[n++] = (int)d;
		pd_topology_add_devices(&out, kind->name, n - before, kind->memory_bytes, &ignored);
	}
	for (int k = 0; k < topology->levels && kept; size *= topology->level[k++].count)
		kept = keeps_components(was, topology->devices, size);
	if (!kept || !reorder_links(topology, was, &out)) {
		free(was);
		return false;
	}
	*out_p = out;
	*was_p = was;
	return true;
}
