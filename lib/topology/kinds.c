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
