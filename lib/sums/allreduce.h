/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the replicas of a stage sum their gradients up: who sends what to whom.
 *
 * The members, in the order in which they are added, are cut into groups as even as can be, and
 * the buffer into pieces (lib/base/buffer_pieces.h).  In each group every member owns some of the pieces,
 * one behind the other.  The members of a group send its owner their parts of a piece; the owner
 * in the first group adds them up and sends the sum to the owner in the next one, who adds those of
 * his group to it, one by one; and so on to the last.  From there the sum goes back the same way,
 * and from each owner to the other members of his group.  Every sum is thus
 * (...((g0 + g1) + g2) + ...) + g(n-1), with any groups and pieces: the bits do not depend on them.
 *
 * One group is an exchange among all: two steps, in which each sends 2 (n - 1) messages, and sums
 * are made everywhere at once.  n groups of one are a chain of all, in 2 (n - 1) steps, that
 * crosses each link between servers once and back.  Between them, with a members in a group, g
 * groups and p pieces of each owner, B bytes take on links of one kind
 *
 *     2 ((a - 1)/a B/b + l + (B/a)/b (p + g - 2)/p + (g - 1) l)
 *
 * and each member sends 2 (a - 1) + 2 p messages, however many there are.
 *
 * A chain is slower where links have long latencies or nobody shares them, but with a members of n
 * in a server one group of all sends 2 a (n - a) / n of the gradients over that server's link each
 * way: six times all of them with 16 on four servers.  What waits for a member of a group at the
 * end, the sums of the others, it takes only when its own pieces are through: whole shares on a
 * link would hold up pieces, group after group.
 *
 * In one group of all, long shares go in parts, a few at once to all others.  Members of a network
 * that sent whole shares in rounds would fall out of step.  Where a link has one transfer at a
 * time (struct pd_transport_ops.one_at_a_time, virtual time) they do not, and whole shares go in
 * rounds, which is quicker there; each counts as the messages of its parts.
 *
 * Up to 32 members on one level, two of them, or ranks in no ascending order on several levels are
 * one group.  That depends on topology, ranks and bytes alone: the worker, the plan's memory and
 * the planner's estimates ask it, so that all members and every prediction agree.
 */
#pragma once

#include "model/dtype.h"
#include "sums/script.h"
#include "topology/topology.h"

#include <stdbool.h>

struct pd_allreduce {
	int members;
	int groups;
	int pieces;                     /* at least as many as the largest group has members */
};

/*
 * Returns the quickest all-reduce of `bytes` among n ranks, by the topology, which is the same for
 * all of them.  Up to PD_ALLREDUCE_FEW members with equal links exchange among all; so do ranks in
 * no ascending order on several levels.  Otherwise no member sends more than a few hundred
 * messages, and with few members not more than a hundred.
 */
#define PD_ALLREDUCE_FEW 32
struct pd_allreduce pd_allreduce_choose(const struct pd_topology *topology, const int *ranks, int n,
					int64_t bytes);
/*
 * Does the same, and returns the time that groups which hand it on are expected to take, apart from the cost of
 * messages; 0 for a single group.
 */
double pd_allreduce_expect(const struct pd_topology *topology, const int *ranks, int n, int64_t bytes,
			   struct pd_allreduce *how_p);

/*
 * Returns the bytes that a member needs room for to sum `bytes` of f32: pieces of others, which are
 * of dtype, parts of sums, and where dtype has 16 bits what the whole buffer is rounded to.
 */
int64_t pd_allreduce_staging_bytes(const struct pd_allreduce *how, int64_t bytes,
				   enum pd_dtype dtype);

/*
 * Returns the largest i with begin_of(i) <= x, where begin_of(i) = i * all / parts, rounded down.
 */
static inline int pd_allreduce_part_of(int all, int parts, int x)
{
	return (int)((((int64_t)x + 1) * parts - 1) / all);
}

/* Returns the first member of a group; for the group behind the last, the number of members. */
static inline int pd_allreduce_group_begin(const struct pd_allreduce *how, int group)
{
	return (int)((int64_t)group * how->members / how->groups);
}

static inline int pd_allreduce_group_of(const struct pd_allreduce *how, int member)
{
	return pd_allreduce_part_of(how->members, how->groups, member);
}

/* Returns the first piece of owner i of a group; for i = size, the number of pieces. */
static inline int pd_allreduce_piece_begin(const struct pd_allreduce *how, int size, int i)
{
	return (int)((int64_t)i * how->pieces / size);
}

/* Returns the member of a group of `size` members that owns a piece. */
static inline int pd_allreduce_owner(const struct pd_allreduce *how, int size, int piece)
{
	return pd_allreduce_part_of(how->pieces, size, piece);
}

/* Returns the member that owns a piece in a group. */
static inline int pd_allreduce_owner_in(const struct pd_allreduce *how, int group, int piece)
{
	int first = pd_allreduce_group_begin(how, group);
	int size = pd_allreduce_group_begin(how, group + 1) - first;

	return first + pd_allreduce_owner(how, size, piece);
}

/* Writes what member `me` does of a sum with these groups and pieces (dense.c). */
void pd_allreduce_write(const struct pd_allreduce *how, int me, struct pd_script *script);
