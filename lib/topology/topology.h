/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: levels of links, innermost first.  pd-topology(5). */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PD_MAX_LEVELS 8
#define PD_MAX_RANKS (1 << 20)

struct pd_level {
	int64_t count;                  /* components of the level below in one of this level */
	int64_t bandwidth_bytes_per_s;  /* of the link of each of those, each way */
	int64_t latency_ns;
	bool shared_memory;             /* a component is one host, whose memory its ranks can map */
};

struct pd_topology {
	int64_t memory_bytes;           /* of one device; 0: unknown, no limit */
	int levels;
	struct pd_level level[PD_MAX_LEVELS];
	int64_t devices;                /* product of the counts */
	int64_t processors;             /* of one machine, shared by all ranks; 0: each rank has its
					   own */
};

struct pd_place;
int pd_topology_parse_at(const struct pd_place *place, struct pd_topology *out_p,
			 struct pd_error *err);
/* Parses a string such as "4@12GB/s,4@10Gbit/s+30us". */
int pd_topology_parse_string(const char *text, struct pd_topology *out_p, struct pd_error *err);
/* Reads such a string if `what` contains '@', else a file. */
int pd_topology_read(const char *what, struct pd_topology *out_p, struct pd_error *err);
/* Makes a topology of n devices on one level. */
int pd_topology_flat(int64_t devices, int64_t bandwidth_bytes_per_s, int64_t latency_ns,
		     struct pd_topology *out_p, struct pd_error *err);
json_t *pd_topology_json(const struct pd_topology *topology);       /* a new reference */

/* Returns the outermost level whose links a transfer between two ranks crosses. */
int pd_topology_level(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b);
/*
 * Returns the slowest of the links up to a level: the least bandwidth, and the outermost one's latency.
 */
struct pd_level pd_slowest_link(const struct pd_topology *topology, int outermost);

/* Tells whether all between two ranks are known to be on one host, and map each other's memory. */
bool pd_topology_shares_memory(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b);

/* Returns the time of a single transfer: the latency of that level + bytes / least bandwidth. */
int64_t pd_topology_transfer_ns(const struct pd_topology *topology, int64_t rank_a,
				int64_t rank_b, int64_t bytes);
