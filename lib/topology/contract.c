/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/contract.h"

#include <inttypes.h>

/* Takes as many of the devices of a group as a level has; returns those that are left, or 0 if they do not divide. */
static int64_t take_of_level(struct pd_level *level, int64_t devices)
{
	int64_t taken = devices < level->count ? devices : level->count;

	if (devices % taken != 0 || level->count % taken != 0)
		return 0;
	level->count /= taken;
	level->bandwidth_bytes_per_s = level->bandwidth_bytes_per_s > INT64_MAX / taken
		? INT64_MAX : level->bandwidth_bytes_per_s * taken;
	return devices / taken;
}

/*
 * Does the same to the links of a level that differ: `taken` of them make one, and in all `shrink` devices a group.
 * Returns false if some of a group's are others.
 */
static bool take_links(struct pd_topology *whole, const struct pd_level *level, int64_t taken, int64_t shrink)
{
	for (int i = level->first_run; i < level->first_run + level->runs; i++) {
		struct pd_link_run *run = &whole->link_run[i];

		if (run->end % shrink != 0)
			return false;
		run->end /= shrink;
		run->bandwidth_bytes_per_s = run->bandwidth_bytes_per_s > INT64_MAX / taken
			? INT64_MAX : run->bandwidth_bytes_per_s * taken;
	}
	return true;
}

/* Puts devices of each kind together; returns false if some of a group are of another. */
static bool take_devices(struct pd_topology *whole, int64_t devices)
{
	for (int i = 0; i < whole->device_runs; i++) {
		if (whole->device_run[i].end % devices != 0)
			return false;
		whole->device_run[i].end /= devices;
	}
	for (int k = 0; k < whole->kinds; k++)
		whole->kind[k].memory_bytes *= devices;
	return true;
}

int pd_topology_contract(const struct pd_topology *topology, int64_t devices, bool spans, struct pd_topology *out_p,
			 struct pd_error *err)
{
	struct pd_topology whole = *topology;
	int64_t left = devices;
	bool alike = take_devices(&whole, devices);

	for (int k = 0; k < whole.levels && left > 0; k++) {
		int64_t before = left;

		left = take_of_level(&whole.level[k], left);
		if (left > 0)
			alike &= take_links(&whole, &whole.level[k], before / left, devices / left);
	}
	if (left != 1)
		return pd_error_input(err, "groups of %" PRId64 " devices: the topology has %" PRId64 " devices, which do "
				      "not make up whole groups level by level", devices, topology->devices);
	if (!alike)
		return pd_error_input(err, "groups of %" PRId64 " devices: expected devices and links of one kind in each "
				      "group", devices);
	if (!spans && topology->level[0].count % devices != 0)
		return pd_error_input(err, "groups of %" PRId64 " devices: the innermost level of the topology has %" PRId64
				      ": expected --group-spans, with which groups take several components of it", devices,
				      topology->level[0].count);
	whole.devices = topology->devices / devices;
	whole.memory_bytes = topology->memory_bytes * devices;
	*out_p = whole;
	out_p->levels = 0;
	for (int k = 0; k < whole.levels; k++)
		if (whole.level[k].count > 1 || (k + 1 == whole.levels && out_p->levels == 0))
			out_p->level[out_p->levels++] = whole.level[k];
	return 0;
}

struct pd_level pd_topology_ring_link(const struct pd_topology *topology, int64_t stride,
				      int64_t members)
{
	struct pd_level link = topology->level[0];
	int64_t component = link.count; /* devices of one of the next level's */

	for (int k = 1; k < topology->levels && component % (stride * members) != 0; k++) {
		const struct pd_level *level = &topology->level[k];
		int64_t each =
			level->bandwidth_bytes_per_s / (stride < component ? stride : component);

		if (each < link.bandwidth_bytes_per_s)
			link.bandwidth_bytes_per_s = each > 0 ? each : 1;
		link.latency_ns = level->latency_ns;
		component *= level->count;
	}
	return link;
}
