/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers in virtual time are matched, occupy links, and arrive. */
#include "engine/transport/sim/sim.h"

#include "base/container.h"
#include "base/cost.h"
#include "base/mem.h"
#include "engine/device/sim/engine.h"
#include "engine/transport/sim/link.h"

#include <stdlib.h>

#define FIRST_BUCKETS 256
#define LEAST_SPREAD  4
/* With fewer links idle more; with more, what needs several busy ones waits for long (pd-replay(1)). */
#define MOST_OVERTAKEN 32

/*
 * A transfer fits a cache line, since there are many.  Most wait in a bucket for the other side; the
 * activity's ring then leads to the next transfer of the bucket.
 */
struct sim_transfer {
	struct pd_sim_activity activity; /* of the sender, until it has left */
	int32_t to;
	bool sent, received;            /* posted by the sender, the receiver */
	uint16_t overtaken;             /* at links for which it was the first to wait */
	union {
		uint64_t tag;	/* until both sides have posted the transfer and it is ready */
		uint64_t order;         /* order in which transfers became ready */
		int64_t start_ns;       /* once it has started */
	};
	int64_t bytes;
	struct pd_event *recv_done;     /* the sender's is the activity's */
};

/* Links, one or two of a level (else 0), that a transfer leaves before it leaves the slowest of its links. */
struct relief {
	struct pd_sim_activity activity;
	uint32_t links[2];
};

struct level {
	uint32_t count;                 /* components of the level below in one component */
	int64_t bandwidth, latency_ns;
	int64_t narrowest;	/* the lowest bandwidth up to here; INT64_MAX: takes no time */
	size_t components;              /* of the level below */
	uint32_t first;	/* number of the first component's link up; its link down is the next */
};

struct path {
	int count;
	int64_t bandwidth, latency_ns;  /* INT64_MAX: takes no time */
	int64_t own[2 * PD_MAX_LEVELS]; /* bandwidth of each link */
	uint32_t links[2 * PD_MAX_LEVELS];      /* numbers */
};

struct end {
	struct pd_transport base;
	struct pd_sim_fabric *fabric;
	int rank;
};

struct pd_sim_fabric {
	struct pd_sim *sim;
	int rank_count, levels;
	struct level level[PD_MAX_LEVELS];
	uint32_t *hops;                 /* per rank and level: the link up of its component */
	const struct pd_topology *mixed;        /* borrowed, where links of a level differ; else NULL */
	struct end *ends;
	struct pd_pool transfers, reliefs;
	uint64_t order;
	uint8_t *states;                /* states of links by number (link.h) */
	struct pd_sim_link *links;      /* by number, from 1 on */
	uint32_t link_count;
	struct pd_sim_activity give_out;
	struct pd_sim_link *first_freed, *last_freed;
	struct sim_transfer **buckets;
	size_t bucket_count, unmatched;         /* a power of two */
	int spread;                             /* how many bits: buckets of two neighbours */
};

/* Rounds up, as pd_topology_transfer_ns() does. */
static int64_t way_ns(int64_t bytes, int64_t bandwidth)
{
	return bandwidth == INT64_MAX ? 0 : pd_bytes_ns(bytes, bandwidth);
}

static void transfer_arrive(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct sim_transfer *x = (struct sim_transfer *)activity;

	pd_sim_travels(sim, x->to, -1);
	pd_sim_complete(sim, x->to, activity->event, x->start_ns, sim->now_ns);
	pd_pool_return(&sim->fabric->transfers, x);
}

/* Puts bandwidths of their own on the links of a way, and the latency of the outermost two. */
static void measure_path(const struct pd_sim_fabric *fabric, int levels, struct path *path)
{
	path->bandwidth = INT64_MAX;
	for (int i = 0; i < 2 * levels; i++) {
		const struct level *level = &fabric->level[i / 2];
		struct pd_level link = pd_topology_link(fabric->mixed, i / 2, (path->links[i] - level->first) / 2);

		path->own[i] = link.bandwidth_bytes_per_s;
		if (path->own[i] < path->bandwidth)
			path->bandwidth = path->own[i];
		if (i / 2 == levels - 1 && link.latency_ns > path->latency_ns)
			path->latency_ns = link.latency_ns;
	}
}

static void path_of(const struct pd_sim_fabric *fabric, const struct sim_transfer *x,
		    struct path *path)
{
	const uint32_t *a = &fabric->hops[(size_t)x->activity.rank * (size_t)fabric->levels];
	const uint32_t *b = &fabric->hops[(size_t)x->to * (size_t)fabric->levels];
	int l;

	path->count = 0;
	path->bandwidth = INT64_MAX;
	path->latency_ns = 0;
	for (l = 0; l < fabric->levels && a[l] != b[l]; l++)
		if (fabric->level[l].bandwidth > 0) {
			path->own[path->count] = path->own[path->count + 1] = fabric->level[l].bandwidth;
			path->links[path->count++] = a[l];
			path->links[path->count++] = b[l] + 1;
		}
	if (fabric->mixed) {
		measure_path(fabric, l, path);
	} else if (l > 0) {
		path->bandwidth = fabric->level[l - 1].narrowest;
		path->latency_ns = fabric->level[l - 1].latency_ns;
	}
}

static void free_link(struct pd_sim_fabric *fabric, uint32_t number)
{
	struct pd_sim_link *link = &fabric->links[number];

	fabric->states[number] &= (uint8_t)~PD_SIM_BUSY;
	if (!(fabric->states[number] & PD_SIM_KNOWN))
		return;
	if (!pd_sim_link_first(link)) {
		fabric->states[number] &= (uint8_t)~PD_SIM_KNOWN;
		return;
	}
	fabric->states[number] |= PD_SIM_FREED;
	link->next_freed = NULL;
	if (fabric->last_freed)
		fabric->last_freed->next_freed = link;
	else
		fabric->first_freed = link;
	if (!fabric->last_freed)
		pd_sim_at(fabric->sim, &fabric->give_out, fabric->sim->now_ns);
	fabric->last_freed = link;
}

static void relieve(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct relief *relief = (struct relief *)activity;

	for (int i = 0; i < 2 && relief->links[i] > 0; i++)
		free_link(sim->fabric, relief->links[i]);
	pd_pool_return(&sim->fabric->reliefs, relief);
}

/* Links that are faster than the slowest are free again before the transfer has left. */
static void relieve_later(struct pd_sim *sim, const uint32_t *links, int64_t when_ns)
{
	struct relief *relief = pd_pool_take(&sim->fabric->reliefs, sizeof(*relief));

	*relief = (struct relief){ .activity = { .next = relieve },
				   .links = { links[0], links[1] } };
	pd_sim_at(sim, &relief->activity, when_ns);
}

static void transfer_left(struct pd_sim *sim, struct pd_sim_activity *activity);

/* Ends a transfer for its sender; the receiver has still to copy the bytes. */
static void transfer_copied(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	const struct sim_transfer *x = (const struct sim_transfer *)activity;

	activity->next = transfer_left;
	pd_sim_work(sim, activity, x->to, 1, way_ns(x->bytes, sim->copied_bytes_per_s));
}

/*
 * Lets a transfer take its time.  Where processors are shared the receiver's is busy with it: all the
 * time in shared memory, through which the profile's link goes, and as long as that would take if the
 * way is slower, a network's.  There the sender's is busy for as long, from the beginning on.
 */
static void travel(struct pd_sim *sim, struct sim_transfer *x, int64_t bandwidth)
{
	int64_t ns = way_ns(x->bytes, bandwidth), copy_ns;

	if (!sim->shared || sim->copied_bytes_per_s <= bandwidth) {
		pd_sim_work(sim, &x->activity, x->to, 1, ns);
		return;
	}
	x->activity.next = transfer_copied;
	copy_ns = way_ns(x->bytes, sim->copied_bytes_per_s);
	pd_sim_work_aside(sim, x->activity.rank, copy_ns);
	pd_sim_at(sim, &x->activity, sim->now_ns + ns - copy_ns);
}

/* Gives a link to a transfer, which waits no longer. */
static void occupy(struct pd_sim_fabric *fabric, uint32_t number, const struct sim_transfer *x)
{
	struct sim_transfer *first = pd_sim_link_first(&fabric->links[number]);

	fabric->states[number] |= PD_SIM_BUSY;
	if (first && first->order < x->order && first->overtaken < MOST_OVERTAKEN)
		first->overtaken++;
}

/* Lets a transfer leave link i of its way, and another that is as fast (0: none), before the slowest. */
static void leave_early(struct pd_sim *sim, const struct sim_transfer *x, const struct path *path, int i,
			uint32_t other)
{
	if (path->own[i] > path->bandwidth)
		relieve_later(sim, (const uint32_t[]){ path->links[i], other },
			      sim->now_ns + way_ns(x->bytes, path->own[i]));
}

static void start(struct pd_sim *sim, struct sim_transfer *x, const struct path *path)
{
	for (int i = 0; i < path->count; i++)
		occupy(sim->fabric, path->links[i], x);
	for (int i = 0; i < path->count; i += 2)
		if (path->own[i] == path->own[i + 1])
			leave_early(sim, x, path, i, path->links[i + 1]);
		else
			for (int end = i; end < i + 2; end++)
				leave_early(sim, x, path, end, 0);
	x->start_ns = sim->now_ns;
	pd_sim_travels(sim, x->activity.rank, 1);
	pd_sim_travels(sim, x->to, 1);
	travel(sim, x, path->bandwidth);
}

/* Tells whether no transfer that became ready before this one waits for a link of its way. */
static bool is_next(const struct pd_sim_fabric *fabric, const struct sim_transfer *x)
{
	struct path path;

	path_of(fabric, x, &path);
	for (int i = 0; i < path.count; i++)
		if (pd_sim_link_first(&fabric->links[path.links[i]]) != x)
			return false;
	return true;
}

/*
 * Tells whether a link is kept for the first that waits for it, which is not x: since it has been overtaken
 * too often, and nobody else is before it at any link of its way.
 */
static bool is_kept(const struct pd_sim_fabric *fabric, uint32_t number, const struct sim_transfer *x)
{
	const struct sim_transfer *first = pd_sim_link_first(&fabric->links[number]);

	return first && first != x && first->overtaken >= MOST_OVERTAKEN && is_next(fabric, first);
}

/* Returns a link of its way that a transfer cannot have, being in one of these states or kept; 0: it can have all. */
static uint32_t taken(const struct pd_sim_fabric *fabric, const struct sim_transfer *x,
		      const struct path *path, uint8_t states)
{
	for (int i = 0; i < path->count; i++) {
		uint8_t state = fabric->states[path->links[i]];

		if ((state & states) || ((state & PD_SIM_KNOWN) && is_kept(fabric, path->links[i], x)))
			return path->links[i];
	}
	return 0;
}

/*
 * Returns the first of the transfers that wait for a link, before this order, whose links are all free;
 * NULL: there is none.
 */
static struct sim_transfer *startable(struct pd_sim_fabric *fabric, uint32_t number, uint64_t before,
				      struct path *path)
{
	struct pd_sim_link *link = &fabric->links[number];

	if (fabric->states[number] & PD_SIM_BUSY)
		return NULL;
	for (uint32_t i = link->first; i < link->end && link->turns[i].order < before; i++) {
		struct sim_transfer *x = link->turns[i].transfer;
		uint32_t busy;

		if (fabric->states[link->hints[i]] & PD_SIM_BUSY)
			continue;
		path_of(fabric, x, path);
		busy = taken(fabric, x, path, PD_SIM_BUSY);
		if (busy == 0)
			return x;
		link->hints[i] = busy;
	}
	return NULL;
}

/* Returns a transfer that waits, may start and became ready before x, which wants the same link; or NULL. */
static struct sim_transfer *rival(struct pd_sim_fabric *fabric, const struct sim_transfer *x,
				  const struct path *path, struct path *rival_path)
{
	struct sim_transfer *y = NULL;

	for (int i = 0; i < path->count && !y; i++)
		if (fabric->states[path->links[i]] & PD_SIM_KNOWN)
			y = startable(fabric, path->links[i], x->order, rival_path);
	return y;
}

/* Starts a transfer that waits, or one that became ready before it and wants the same link. */
static void start_first(struct pd_sim *sim, struct sim_transfer *x, struct path *path)
{
	struct pd_sim_fabric *fabric = sim->fabric;
	struct path other;

	for (struct sim_transfer *y; (y = rival(fabric, x, path, &other)); x = y)
		*path = other;
	for (int i = 0; i < path->count; i++)
		pd_sim_link_leave(&fabric->links[path->links[i]], x->order);
	start(sim, x, path);
}

/* Starts a new transfer, or lets it wait: behind those that wait for a link which is to be given out, too. */
static void begin(struct pd_sim *sim, struct sim_transfer *x)
{
	struct pd_sim_fabric *fabric = sim->fabric;
	struct path path, other;
	uint32_t busy;

	path_of(fabric, x, &path);
	busy = taken(fabric, x, &path, PD_SIM_BUSY | PD_SIM_FREED);
	if (busy == 0 && fabric->last_freed && rival(fabric, x, &path, &other))
		busy = path.links[0];
	if (busy == 0) {
		start(sim, x, &path);
		return;
	}
	for (int i = 0; i < path.count; i++) {
		pd_sim_link_wait(&fabric->links[path.links[i]], x->order, x, busy);
		fabric->states[path.links[i]] |= PD_SIM_KNOWN;
	}
}

/* Links are given to waiting transfers once all transfers that end at this time have ended. */
static void give_out(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct pd_sim_fabric *fabric = pd_container(activity, struct pd_sim_fabric, give_out);
	struct sim_transfer *x;
	struct path path;

	for (struct pd_sim_link *link; (link = fabric->first_freed);) {
		uint32_t number = (uint32_t)(link - fabric->links);

		fabric->first_freed = link->next_freed;
		fabric->states[number] &= (uint8_t)~PD_SIM_FREED;
		while ((x = startable(fabric, number, UINT64_MAX, &path)))
			start_first(sim, x, &path);
	}
	fabric->last_freed = NULL;
}

static void transfer_left(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct sim_transfer *x = (struct sim_transfer *)activity;
	struct path path;

	pd_sim_travels(sim, x->activity.rank, -1);
	path_of(sim->fabric, x, &path);
	for (int i = 0; i < path.count; i++)
		if (path.own[i] <= path.bandwidth)
			free_link(sim->fabric, path.links[i]);
	pd_sim_complete(sim, activity->rank, activity->event, x->start_ns, sim->now_ns);
	activity->next = transfer_arrive;
	activity->event = x->recv_done;
	activity->rank = x->to;
	if (path.latency_ns > 0)
		pd_sim_at(sim, activity, sim->now_ns + path.latency_ns);
	else
		transfer_arrive(sim, activity);
}

/*
 * Returns by how much a transfer is late that replicas make as soon as they have computed: in a run
 * one of them has computed longer than the others, which is not the same each time.
 */
static int64_t late_ns(const struct pd_sim *sim, const struct sim_transfer *x)
{
	const struct pd_sim_replicas *from = &sim->devices[x->activity.rank].replicas;
	const struct pd_sim_replicas *to = &sim->devices[x->to].replicas;

	return sim->computed && from->first == to->first ? from->slowest_ns : 0;
}

static void transfer_ready(struct pd_sim *sim, struct pd_sim_activity *activity)
{
	struct sim_transfer *x = (struct sim_transfer *)activity;
	int64_t ns = late_ns(sim, x);

	if (ns > 0) {
		pd_sim_at(sim, activity, sim->now_ns + ns);
		return;
	}
	x->order = sim->fabric->order++;
	activity->next = transfer_left;
	begin(sim, x);
}

/*
 * Buckets of two neighbouring ranks lie together, beside those of the next two: where stages follow
 * each other they are used one after the other.  Other pairs are spread by a hash: an all-reduce
 * has few tags, and all pairs of its members.
 */
static struct sim_transfer **bucket_of(const struct pd_sim_fabric *fabric, int from, int to,
				       uint64_t tag)
{
	uint64_t low = (uint64_t)(from < to ? from : to), apart = (uint64_t)abs(to - from) - 1;
	uint64_t h = (2 * tag + (from < to)) * UINT64_C(0x9e3779b97f4a7c15);

	h = h >> (64 - fabric->spread) | low << fabric->spread;
	h ^= apart * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return &fabric->buckets[h & (fabric->bucket_count - 1)];
}

static void set_buckets(struct pd_sim_fabric *fabric, size_t count)
{
	fabric->bucket_count = count;
	fabric->buckets = pd_calloc(count, sizeof(*fabric->buckets));
	fabric->spread = LEAST_SPREAD;
	while ((size_t)fabric->rank_count << (fabric->spread + 1) <= count)
		fabric->spread++;
}

static void grow_buckets(struct pd_sim_fabric *fabric)
{
	struct sim_transfer **old = fabric->buckets, **bucket;
	size_t n = fabric->bucket_count;

	set_buckets(fabric, 2 * n);
	for (size_t i = 0; i < n; i++)
		for (struct sim_transfer *x = old[i], *next; x; x = next) {
			next = x->activity.ring;
			bucket = bucket_of(fabric, x->activity.rank, x->to, x->tag);
			x->activity.ring = *bucket;
			*bucket = x;
		}
	free(old);
}

/* Takes the transfer that the other side has posted out of its bucket, or makes a new one there. */
static struct sim_transfer *match(struct pd_sim_fabric *fabric, int from, int to, uint64_t tag)
{
	struct sim_transfer **at = bucket_of(fabric, from, to, tag), *x, *before = NULL;

	for (x = *at; x; before = x, x = x->activity.ring)
		if (x->activity.rank == from && x->to == to && x->tag == tag) {
			if (before)
				before->activity.ring = x->activity.ring;
			else
				*at = x->activity.ring;
			x->activity.ringed = false;
			fabric->unmatched--;
			return x;
		}
	if (++fabric->unmatched > fabric->bucket_count)
		grow_buckets(fabric);
	at = bucket_of(fabric, from, to, tag);
	x = pd_pool_take(&fabric->transfers, sizeof(*x));
	*x = (struct sim_transfer){ .activity = { .next = transfer_ready, .waits = 2, .rank = from,
						  .ringed = true, .ring = *at },
				    .to = to, .tag = tag };
	*at = x;
	return x;
}

static void post(struct end *end, int from, int to, uint64_t tag, size_t bytes, bool send,
		 const struct pd_event *after, struct pd_event *done)
{
	struct pd_sim_fabric *fabric = end->fabric;
	struct sim_transfer *x;

	if (from < 0 || from >= fabric->rank_count || to < 0 || to >= fabric->rank_count)
		pd_bug("transfer from rank %d to rank %d: there are %d ranks", from, to,
		       fabric->rank_count);
	x = match(fabric, from, to, tag);
	if (send ? x->sent : x->received)
		pd_bug("transfer from rank %d to rank %d: two %s with tag %#llx", from, to,
		       send ? "sends" : "receives", (unsigned long long)tag);
	if ((x->sent || x->received) && x->bytes != (int64_t)bytes)
		pd_bug("transfer from rank %d to rank %d, tag %#llx: one side has %lld bytes, "
		       "the other %zu", from, to, (unsigned long long)tag, (long long)x->bytes,
		       bytes);
	x->bytes = (int64_t)bytes;
	if (send) {
		x->sent = true;
		x->activity.event = done;
	} else {
		x->received = true;
		x->recv_done = done;
	}
	pd_sim_await(fabric->sim, &x->activity, after);
	pd_sim_let(fabric->sim, &x->activity);
}

static int sim_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	struct end *end = (struct end *)t;

	post(end, end->rank, peer, tag, bytes, true, after, done);
	return 0;
}

static int sim_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		    const struct pd_event *after, struct pd_event *done)
{
	struct end *end = (struct end *)t;

	post(end, peer, end->rank, tag, bytes, false, after, done);
	return 0;
}

static void sim_close(struct pd_transport *t)
{
}

/* Transfers advance in pd_sim_advance() alone. */
static int sim_progress(struct pd_transport *t)
{
	return 0;
}

static int sim_fd(struct pd_transport *t)
{
	return -1;
}

static int sim_arm(struct pd_transport *t)
{
	return 0;
}

/* Finds the links of each rank's component at each level. */
static void find_hops(struct pd_sim_fabric *fabric)
{
	size_t levels = (size_t)fabric->levels;

	fabric->hops = pd_calloc((size_t)fabric->rank_count * levels, sizeof(*fabric->hops));
	for (int r = 0; r < fabric->rank_count; r++) {
		size_t component = (size_t)r;

		for (size_t l = 0; l < levels; l++) {
			const struct level *level = &fabric->level[l];

			fabric->hops[(size_t)r * levels + l] =
				level->first + 2 * (uint32_t)component;
			component /= level->count;
		}
	}
}

/* Links are numbered from 1; number 0 is no link and always busy. */
static void make_links(struct pd_sim_fabric *fabric)
{
	fabric->link_count = 0;
	for (int l = 0; l < fabric->levels; l++) {
		fabric->level[l].first = fabric->link_count + 1;
		fabric->link_count += 2 * (uint32_t)fabric->level[l].components;
	}
	fabric->links = pd_calloc((size_t)fabric->link_count + 1, sizeof(*fabric->links));
	fabric->states = pd_calloc((size_t)fabric->link_count + 1, sizeof(*fabric->states));
	fabric->states[0] = PD_SIM_BUSY;
}

struct pd_sim_fabric *pd_sim_fabric_new(struct pd_sim *sim, const struct pd_topology *topology)
{
	struct pd_sim_fabric *fabric = pd_zalloc(sizeof(*fabric));
	int64_t components = sim->rank_count, narrowest = INT64_MAX;

	fabric->sim = sim;
	sim->fabric = fabric;
	fabric->give_out.next = give_out;
	fabric->rank_count = sim->rank_count;
	fabric->levels = topology->levels;
	for (int l = 0; l < fabric->levels; l++) {
		struct level *level = &fabric->level[l];

		level->count = (uint32_t)topology->level[l].count;
		level->bandwidth = topology->level[l].bandwidth_bytes_per_s;
		level->latency_ns = topology->level[l].latency_ns;
		if (level->bandwidth > 0 && level->bandwidth < narrowest)
			narrowest = level->bandwidth;
		level->narrowest = narrowest;
		level->components = (size_t)components;
		components = (components + level->count - 1) / level->count;
	}
	if (topology->link_runs > 0)
		fabric->mixed = topology;
	make_links(fabric);
	find_hops(fabric);
	set_buckets(fabric, FIRST_BUCKETS);
	fabric->ends = pd_calloc((size_t)fabric->rank_count, sizeof(*fabric->ends));
	for (int r = 0; r < fabric->rank_count; r++)
		fabric->ends[r] = (struct end){ .base.ops = &pd_transport_sim, .fabric = fabric,
						.rank = r };
	return fabric;
}

void pd_sim_fabric_free(struct pd_sim_fabric *fabric)
{
	if (!fabric)
		return;
	for (uint32_t i = 1; i <= fabric->link_count; i++)
		pd_sim_link_release(&fabric->links[i]);
	pd_pool_release(&fabric->transfers);
	pd_pool_release(&fabric->reliefs);
	free(fabric->buckets);
	free(fabric->hops);
	free(fabric->links);
	free(fabric->states);
	free(fabric->ends);
	free(fabric);
}

struct pd_transport *pd_sim_transport(struct pd_sim_fabric *fabric, int rank)
{
	return &fabric->ends[rank].base;
}

const struct pd_transport_ops pd_transport_sim = {
	.one_at_a_time = true,
	.close = sim_close,
	.send = sim_send,
	.recv = sim_recv,
	.progress = sim_progress,
	.fd = sim_fd,
	.arm = sim_arm,
};
