/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: levels of links, innermost first.  pd-topology(5). */
#pragma once

#include "base/rows.h"

#define PD_MAX_LEVELS 8
#define PD_MAX_RANKS (1 << 20)
#define PD_MAX_KINDS 8                  /* of devices */
#define PD_MAX_RUNS 32                  /* of devices, or of links, that are alike */
#define PD_DEVICE_NAME 128             /* as struct pd_device_info has them */

struct pd_level {
	int64_t count;                  /* components of the level below in one of this level */
	int64_t bandwidth_bytes_per_s;  /* of the link of each of those, each way */
	int64_t latency_ns;
	bool shared_memory;             /* a component is one host, whose memory its ranks can map */
	/* Where links differ, those above are of the slowest, and these are theirs. */
	int first_run, runs;            /* in pd_topology.link_run; 0 runs: all are alike */
};

struct pd_device_kind {
	char name[PD_DEVICE_NAME];      /* as a profile's device.name */
	int64_t memory_bytes;           /* of one device; 0: unknown, no limit */
};

/* Neighbours that are alike. */
struct pd_device_run {
	int64_t end;                    /* the rank behind the last */
	int kind;
};

struct pd_link_run {
	int64_t end;                    /* the component behind the last */
	int64_t bandwidth_bytes_per_s, latency_ns;
};

#define PD_MAX_LATENCY_NS INT64_C(10000000000)

struct pd_topology {
	int64_t memory_bytes;           /* of one device; 0: unknown, no limit */
	int levels;
	struct pd_level level[PD_MAX_LEVELS];
	int64_t devices;                /* product of the counts */
	int64_t processors;             /* of one machine, shared by all ranks; 0: each rank has its
					   own */
	int kinds;                      /* of devices, numbered as they come first; 0: all are alike, and
					   memory_bytes, else 0, is theirs */
	struct pd_device_kind kind[PD_MAX_KINDS];
	int device_runs, link_runs;
	struct pd_device_run device_run[PD_MAX_RUNS];
	struct pd_link_run link_run[PD_MAX_RUNS];
};

extern const struct pd_key_row pd_topology_rows[];
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

/* Tells whether there are devices of several kinds. */
static inline bool pd_topology_mixed(const struct pd_topology *topology)
{
	return topology->kinds > 1;
}

/* Tells whether all devices are alike, and all links of a level. */
static inline bool pd_topology_alike(const struct pd_topology *topology)
{
	return topology->kinds < 2 && topology->link_runs == 0;
}

/* Tells whether n devices from rank a on are like those from b on, and so are all links of their components. */
bool pd_topology_same(const struct pd_topology *topology, int64_t a, int64_t b, int64_t n);
/*
 * Makes the machine with its kinds of devices in another order: kinds[i] is the one that comes i-th, and those of
 * a kind keep theirs.  Fails where that would tear components apart.  was_p: the old rank of each new one, which
 * the caller frees.
 */
bool pd_topology_reorder(const struct pd_topology *topology, const int *kinds, struct pd_topology *out_p,
			 int **was_p);

/* Returns the kind of a rank's device. */
int pd_topology_kind_of(const struct pd_topology *topology, int64_t rank);
/* Returns the memory of a rank's device; 0: unknown. */
int64_t pd_topology_memory_of(const struct pd_topology *topology, int64_t rank);
/* Sets *end_p to the rank behind those from `rank` on that have its kind; returns the kind. */
int pd_topology_run(const struct pd_topology *topology, int64_t rank, int64_t *end_p);
/* Adds neighbours of one kind behind the others.  The message says what is wrong with them. */
int pd_topology_add_devices(struct pd_topology *topology, const char *name, int64_t count,
			    int64_t memory_bytes, struct pd_error *err);
/* Adds devices by a string such as "A100x16,V100x16"; they must be as many as the topology has. */
int pd_topology_parse_devices(const char *text, struct pd_topology *topology, struct pd_error *err);
/* Checks that there are as many as the product of the counts. */
int pd_topology_check_devices(const struct pd_topology *topology, struct pd_error *err);

/* Returns the link of component c to the others of its level. */
struct pd_level pd_topology_link(const struct pd_topology *topology, int level, int64_t component);
/* Returns the best of the links of a level: the most bandwidth, and the least latency. */
struct pd_level pd_topology_fastest_link(const struct pd_topology *topology, int level);
/* Returns the links between two ranks: the least bandwidth, and the longer latency of the outermost two. */
struct pd_level pd_topology_way(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b);

/* Returns the outermost level whose links a transfer between two ranks crosses. */
int pd_topology_level(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b);
/*
 * Returns the slowest of the links up to a level: the least bandwidth, and the outermost one's latency.
 */
struct pd_level pd_slowest_link(const struct pd_topology *topology, int outermost);

/* Tells whether all between two ranks are known to be on one host, and map each other's memory. */
bool pd_topology_shares_memory(const struct pd_topology *topology, int64_t rank_a, int64_t rank_b);

/* Returns the time of a single transfer on that way: the latency + bytes / least bandwidth. */
int64_t pd_topology_transfer_ns(const struct pd_topology *topology, int64_t rank_a,
				int64_t rank_b, int64_t bytes);
