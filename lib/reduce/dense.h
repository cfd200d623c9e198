/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All gradients, added in the order of the members.
 *
 * The buffer is cut into pieces, and the members into groups, one behind the other
 * (lib/topology/allreduce).  Each member of a group owns some of the pieces there.  The others
 * of the group send it their parts; to what comes from the owner in the group before it adds
 * these in the order of the members, on the device, and sends that on to the owner in the next
 * group.  In the last group that is the sum, which goes back from owner to owner, and from each to
 * the others of its group.  The bits are those of one process that adds up the same gradients in
 * that order, g0 + g1 + ... + g(n-1), whoever came first and whatever the groups.
 *
 * One group of all: each member sends and receives 2 (n-1)/n of the buffer, as in a ring, which
 * could not keep that order.  Nothing there waits for sums, as the 2 (n-1) steps of a ring
 * do.  Long shares have several pieces, and go piece by piece.
 *
 * Where many members share the links between servers most of that crosses them.  In groups of
 * one, with members in the order of servers, each piece leaves a server once and its sum once,
 * but it takes the time of 2 (n - 1) steps.
 *
 * A sum takes twice as many tags as there are pieces.
 */
#pragma once

#include "reduce/reduce.h"
#include "topology/allreduce.h"

/* Opens one with these groups and pieces, for all members alike, whatever the topology. */
struct pd_reduction *pd_dense_open(const struct pd_reduction_config *config,
				   const struct pd_allreduce *how, struct pd_error *err);
