/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/hierarchy.h"

#include "base/mem.h"
#include "base/buffer_pieces.h"

#include <stdlib.h>

#define PIECE_BYTES (256 * 1024)
#define MOST_PIECES 16

int pd_hierarchy_pieces(int64_t bytes)
{
	int64_t pieces = bytes / PIECE_BYTES;

	return pieces < 1 ? 1 : pieces > MOST_PIECES ? MOST_PIECES : (int)pieces;
}

/* Returns the ranks of a host, and the highest rank. */
static int64_t host_ranks(const struct pd_members *members, int *high_p)
{
	int low = members->ranks[0], level;
	int64_t size = 1;

	*high_p = low;
	for (int i = 1; i < members->count; i++) {
		low = members->ranks[i] < low ? members->ranks[i] : low;
		*high_p = members->ranks[i] > *high_p ? members->ranks[i] : *high_p;
	}
	level = low == *high_p ? 0 : pd_topology_level(members->topology, low, *high_p);
	for (int k = 0; k < level; k++)
		size *= members->topology->level[k].count;
	return size;
}

/* Returns the next host with members, that way round. */
static int beside(const int *sizes, int hosts, int host, int way)
{
	do
		host = (host + way + hosts) % hosts;
	while (sizes[host] == 0);
	return host;
}

void pd_hierarchy_of(const struct pd_members *members, int me, struct pd_hierarchy *out_p)
{
	int high, all, mine, last, next;
	int64_t ranks = host_ranks(members, &high);
	int *sizes, *masters;

	all = (int)(high / ranks) + 1;
	mine = (int)(members->ranks[me] / ranks);
	sizes = pd_calloc((size_t)all * 2, sizeof(*sizes));
	masters = sizes + all;
	*out_p = (struct pd_hierarchy){ .before = -1, .behind = -1, .host_ranks = ranks };
	for (int i = 0; i < members->count; i++) {
		int host = (int)(members->ranks[i] / ranks);

		if (sizes[host]++ == 0)
			masters[host] = i;
		if (sizes[host] > out_p->most)
			out_p->most = sizes[host];
		if (host != mine)
			continue;
		out_p->place += i < me;
		if (i < me)
			out_p->before = i;
		if (i > me && out_p->behind < 0)
			out_p->behind = i;
	}
	for (int host = 0; host < all; host++) {
		out_p->host += host < mine && sizes[host] > 0;
		out_p->hosts += sizes[host] > 0;
	}
	last = beside(sizes, all, mine, -1);
	next = beside(sizes, all, mine, 1);
	out_p->size = sizes[mine];
	out_p->before_size = sizes[last];
	out_p->master_before = masters[last];
	out_p->master_next = masters[next];
	free(sizes);
}

static bool narrows(const struct pd_members *members)
{
	return members->dtype != PD_F32;
}

/*
 * Two pieces of the chain, or of the ring, where one comes while the other is added; and what the buffer is
 * rounded to.
 */
static int64_t staging_bytes(const struct pd_members *members, int64_t bytes)
{
	size_t floats = (size_t)bytes / sizeof(float), chain = 0, ring = 0;
	int pieces = pd_hierarchy_pieces(bytes);
	struct pd_hierarchy h;

	pd_hierarchy_of(members, 0, &h);
	if (h.most > 1)
		chain = (pieces > 1 ? 2 : 1) * pd_piece_most(floats, pieces);
	if (h.hosts > 1)
		ring = (h.hosts > 2 ? 2 : 1) * pd_piece_most(floats, h.hosts);
	return (int64_t)((chain > ring ? chain : ring) * sizeof(float)) +
	       (narrows(members) ? bytes / 2 : 0);
}

/* Returns twice the n-ths of the buffer that a master sends round the ring. */
static int64_t ring_halves(const struct pd_members *members, const struct pd_hierarchy *h)
{
	int64_t n = h->hosts;

	return narrows(members) ? (h->size == 1 ? 1 : 2) + 2 * (n - 2) + (n - 1) : 4 * (n - 1);
}

static bool sends(const struct pd_members *members, int me, int i, int *peer_p, double *part_p)
{
	double narrow = (double)pd_dtype_bytes(members->dtype) / sizeof(float);
	struct pd_hierarchy h;

	pd_hierarchy_of(members, me, &h);
	if (h.before >= 0 && i-- == 0) {
		*peer_p = h.before;
		*part_p = h.behind < 0 ? narrow : 1;
		return true;
	}
	if (h.behind >= 0 && i-- == 0) {
		*peer_p = h.behind;
		*part_p = narrow;
		return true;
	}
	if (h.place > 0 || h.hosts == 1 || i > 0)
		return false;
	*peer_p = h.master_next;
	*part_p = (double)ring_halves(members, &h) / 2 / h.hosts;
	return true;
}

static void meets(const struct pd_members *members, int me, int64_t bytes, bool *met)
{
	struct pd_hierarchy h;

	pd_hierarchy_of(members, me, &h);
	if (h.before >= 0)
		met[h.before] = true;
	if (h.behind >= 0)
		met[h.behind] = true;
	if (h.place == 0 && h.hosts > 1)
		met[h.master_before] = met[h.master_next] = true;
}

/* The chains of the largest host there and back, and the ring, one after the other. */
static int64_t cost_ns(const struct pd_members *members, int64_t bytes)
{
	const struct pd_topology *topology = members->topology;
	int pieces = pd_hierarchy_pieces(bytes);
	int64_t inside_ns, latency_ns;
	struct pd_hierarchy h;
	__int128 ns = 0;

	if (members->count == 1 || bytes == 0)
		return 0;
	pd_hierarchy_of(members, 0, &h);
	h.size = h.most;
	if (h.most > 1) {
		int halves = narrows(members) ? (h.most > 2 ? 2 : 1) + 1 : 4;

		latency_ns = pd_topology_transfer_ns(topology, 0, h.host_ranks - 1, 0);
		inside_ns = pd_topology_transfer_ns(topology, 0, h.host_ranks - 1, bytes) -
			    latency_ns;
		ns += (__int128)inside_ns * halves * (h.most - 2 + pieces) / (2 * pieces) +
		      (__int128)latency_ns * 2 * (h.most - 1);
	}
	if (h.hosts > 1) {
		int64_t from = members->ranks[0], to = members->ranks[h.master_next];

		latency_ns = pd_topology_transfer_ns(topology, from, to, 0);
		inside_ns = pd_topology_transfer_ns(topology, from, to, bytes) - latency_ns;
		ns += pd_ring_ns((__int128)inside_ns * ring_halves(members, &h) / (2 * h.hosts),
				 latency_ns, h.hosts,
				 pd_piece_parts((size_t)bytes / sizeof(float), h.hosts));
	}
	return ns > PD_REDUCER_MOST_NS ? PD_REDUCER_MOST_NS : (int64_t)ns;
}

const struct pd_reducer pd_reducer_hierarchical = {
	staging_bytes, false, sends, meets, cost_ns,
};
