/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a machine: processes where the ranks of a run would be send each other messages, and from
 * how fast these arrive follow the levels of links, and what each link carries.
 *
 * Ranks of one component are neighbours (pd-topology(5)), so what separates components shows between
 * one rank and the next: between each two hosts that follow one another, and once inside each host, a
 * single transfer is timed.  What differs by less than a quarter from the next is one level; the
 * inside of hosts is a level of its own.  The link of a component is what all its ranks get together,
 * sending at once to those of the next component of its level.
 */
#pragma once

#include "run/launch/launcher.h"
#include "topology/topology.h"

#include <stdio.h>

/* Between rank i and rank i + 1. */
struct pd_machine_gap {
	bool measured;                  /* else as the first inside the same host */
	double bytes_per_s;             /* of a single transfer */
	int64_t latency_ns;
	int level;
};

/* Figures of the links of a level that were measured. */
struct pd_machine_level {
	double least, median, most;     /* bytes per second, one way */
	double both_ways;               /* one way, while as much goes the other way; the median */
	double alone;                   /* of a single rank, while the others send nothing; the median */
	int64_t latency_ns;             /* the median */
};

struct pd_machine {
	int ranks;
	struct pd_seat *seats;
	struct pd_machine_gap *gaps;    /* ranks - 1 */
	struct pd_machine_level levels[PD_MAX_LEVELS];
	struct pd_topology topology;
};

struct pd_machine_progress {
	void (*step)(void *context, int done, int total);
	void *context;
};

/*
 * Starts `ranks` processes, each with a device of that name (pd_device_find), and measures between the
 * memories in which these compute.  Errors count as failed: a process died or went silent; or as
 * no: hosts or groups of hosts that are not alike cannot be written as a topology.  No process is left.
 */
int pd_machine_measure(const struct pd_launcher_ops *ops, int ranks, const char *device,
		       const struct pd_machine_progress *progress, struct pd_machine *out,
		       struct pd_error *err);
void pd_machine_release(struct pd_machine *machine);

/*
 * machine_levels.c: sets gaps[].level and the topology's levels and counts from what gaps and seats
 * say.
 */
int pd_machine_find_levels(struct pd_machine *machine, struct pd_error *err);
/*
 * Tells whether rank a needs the address of rank b.  It needs its own, its neighbours', and those of
 * ranks that are a component's size away; that size divides the number of ranks.
 */
bool pd_machine_meet(int ranks, int a, int b);

/* machine_print.c: levels, hosts and devices in lines of text. */
void pd_machine_print(const struct pd_machine *machine, FILE *out);
