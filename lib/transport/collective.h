/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce (sum of f32) among the replicas of a stage, over any transport and device.
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
 * could not keep that order.  It goes in rounds, in round k to the k-th member behind, that do not
 * wait for sums, as the 2 (n-1) steps of a ring do.
 *
 * Where many members share the links between servers most of that crosses them.  In groups of
 * one, with members in the order of servers, each piece leaves a server once and its sum once,
 * but it takes the time of 2 (n - 1) steps.
 *
 * Nothing is read by the host and nothing is decided when data arrive: start() issues all
 * the transfers and all the work of the stream, each waiting for the events before it, as
 * far as the stream has room; progress() issues the rest.  `done` is completed by the
 * device, on the stream.
 */
#ifndef PD_TRANSPORT_COLLECTIVE_H
#define PD_TRANSPORT_COLLECTIVE_H

#include "device/device.h"
#include "topology/allreduce.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_collective;

/*
 * ranks: of the members, in the order in which they are added; borrowed.  me: this rank's
 * index there.  transport, device and stream are borrowed, the stream is best for this
 * alone: it is blocked while it waits for the others.  how: all members alike.  Allocates what
 * staging_bytes() says from the device.  NULL: no memory.
 */
struct pd_collective *pd_collective_new(struct pd_transport *transport, struct pd_device *device,
					struct pd_stream *stream, const int *ranks, int me,
					const struct pd_allreduce *how, size_t floats,
					struct pd_error *err);
/* `done` of the last start is done, or the transport and the streams are at rest. */
void pd_collective_free(struct pd_collective *c);

size_t pd_collective_staging_bytes(const struct pd_collective *c);

/*
 * Replaces the floats in buf (device memory) by their sum over the members, once `after`
 * (NULL: now) is done.  One at a time; every member uses the same tag_base, and the tags
 * from there on, twice as many as there are pieces, for nothing else under way.  -1: transport or
 * device is broken.
 */
int pd_collective_start(struct pd_collective *c, float *buf, uint64_t tag_base,
			const struct pd_event *after, struct pd_event *done);
/* To be called after the transport's; returns how much it did, -1: broken. */
int pd_collective_progress(struct pd_collective *c);

/* Is all of the last one on its way to the stream? */
bool pd_collective_issued(const struct pd_collective *c);

/*
 * When the last all-reduce that is done began: when its first piece left; of no floats, when it
 * ended.  (`done` itself tells only of the last thing on the stream.)
 */
int64_t pd_collective_started_ns(const struct pd_collective *c);

#endif
