/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of the period over all plans, by relaxation.
 *
 * A stage with m replicas gives each of them every m-th minibatch, so a period P is possible
 * only if each replica gets done, in m P, what one minibatch makes it do.  That is, for the
 * units [u, v) with F and B their forwards and backwards, W their parameter bytes, U their
 * update, G the minibatches of an update (m where each replica's next one makes an update)
 * and b_k the bandwidth of the links of level k:
 *
 *  1. Its processor takes F + B, and U for each update: one stream does all of them.
 *  2. A list has the step right behind its all-reduce, and one stream does the step before the
 *     next forward, whatever weights that reads.  So the all-reduce lies between backward and
 *     forward and adds to that.  (Only with 2bw, where all stages agree on an update, steps of
 *     other stages than the first are put off.)  It begins for a replica when its own last
 *     backward is done; from then on the replica sends a piece of W/m to each of the others, and
 *     the sum of its own piece to each of them, so it takes at least 2 (m - 1) W/m / b_0, and where only D_k devices fit
 *     into a component of level k, 2 (m - D_k) W/m / b_k.
 *  3. Its link carries, each way, what comes and goes for a minibatch, the activations one
 *     way and the gradients the other, and 2 (m - 1) W/m for each update.
 *  4. The links of the components in which the replicas are carry the all-reduce of each update:
 *     at least so much, wherever the replicas are (reduce_bound_init).
 *  5. Where the pipeline drains (flush), the replicas of a stage with parameters begin a group
 *     when all of them have ended the last one.  Let z be the first unit with parameters.  The
 *     first forward of a group comes to [u, v) after a forward of the units from z to u, and
 *     after the last backward there a backward of all of them is still to do before the stage
 *     with z begins the next group.  So of G P, the time of a group, as much as a minibatch
 *     takes from z to u is lost to the replica.  (With backward in two parts only the input's
 *     part counts on that way.)
 *  6. Without pipelining (none) a replica that began a minibatch does nothing until it comes
 *     back from all later stages: F + B are those of all units from u on.
 *
 * What is left out (warm-ups, latency, links that several stages share, what processors wait
 * for) only takes more time, and each of these holds for one stage by itself, wherever its
 * ranks are.  So for a period P let
 *
 *     f(u) = min over u < v <= N of m(u, v) + f(v),      f(N) = 0,
 *
 * with m(u, v) the least m for which stage [u, v) passes all of the above: the fewest devices
 * of any plan whose stages all pass.  If f(0) is more than there are, no plan has the period
 * P; and as m P grows with P, the least P that passes, found by bisection, is the bound.
 * Where the microbatches of an update are given, m divides them.
 *
 * Networks with branches have many topological orders, and a plan may take any: u and v are then
 * states (states.h).  Where they are too many, cuts that are in all orders (cuts.c) are firm, and
 * what is between two firm cuts is cut where the plan likes.  A stage that begins or ends at such
 * a cut is taken for what it has for sure, the units up to the nearest firm cuts inside it, with
 * what comes in at a firm beginning and goes out at a firm end, and the cuts of one such region
 * are one u in the recurrence.
 *
 * Interleaved ranks have several stages each, to which this does not apply: there it is all
 * compute over all devices, the largest unit, and one microbatch's way through everything
 * over the microbatches of a group.
 *
 * Pieces are not equally long (lib/base/piece.h).  The replica with the longest one has at
 * least W/m, and sends W + (m - 2) of its own: 2 (m - 1) W/m at least, at level 0.  Elsewhere
 * W/m stands for the shortest piece: W is less by SHORT bytes per device.
 *
 * What a stage does in m P does not fall with m, so m(u, v) is searched for in jumps: if
 * total(m) > m P, nothing below total(m) / P passes.
 */
#include "planner/bound/bound.h"

#include "base/mem.h"
#include "base/piece.h"
#include "planner/bound/nodes.h"

#include <stdlib.h>

#define NONE INT32_MAX
#define SHORT (8 * PD_PIECE_ALIGN)      /* bytes: twice what pieces are rounded by */
#define BLOCK 64                /* nodes whose least f is known together */
#define EXACT_NODES 300         /* with more nodes the last 1/5000 of the bound is given up */

/*
 * What an all-reduce takes at least, wherever its members are.
 *
 * Of W bytes, each of m members sends a piece of W/m to each of the others, and the sum of its own
 * piece to each of them; or they are a chain (lib/topology/allreduce.h).  If k_i of the members are
 * in component i below level k, the link of that component carries 2 k_i (m - k_i) W/m.  With S
 * components of D devices the largest of them is least either where all have a = ceil(m/S) or
 * fewer, or where one has D, so that its own load is 2 D (m - D) W/m: f = min(a (m - a),
 * D (m - D)); the latter only where D >= m - D, for the rest must be few enough elsewhere.
 * (k (m - k) rises up to m/2 and falls after it.)
 */
/* By number of members: ns per byte that is summed, a lower bound. */
struct reduce_bound {
	double *own_link;               /* of a member */
	double *own_outer;              /* what a member sends through outer links, from its
					   beginning on */
	double *outer_link;             /* of a component's shared link; does not fall */
};

/* Returns the least, over all placements of m replicas, of the largest k (m - k) of a component. */
static double spread(int64_t m, int64_t components, int64_t capacity)
{
	int64_t a = (m + components - 1) / components;
	double even = (double)a * (double)(m - a), full = (double)capacity * (double)(m - capacity);

	if (m <= capacity)
		return 0;
	return capacity >= m - capacity && full < even ? full : even;
}

/* With gradients of 16 bits nothing sends less than half. */
static void reduce_bound_init(struct reduce_bound *b, const struct pd_topology *topology,
			      enum pd_dtype dtype)
{
	size_t room = (size_t)topology->devices + 2;
	int devices = (int)topology->devices;
	int64_t capacity = 1;
	/* allows for the rounding of double */
	const double down = (1 - 1e-12) * (double)pd_dtype_bytes(dtype) / sizeof(float);

	b->own_link = pd_calloc(room, sizeof(*b->own_link));
	b->own_outer = pd_calloc(room, sizeof(*b->own_outer));
	b->outer_link = pd_calloc(room, sizeof(*b->outer_link));
	for (int k = 0; k < topology->levels; k++) {
		double ns = 2e9 / (double)topology->level[k].bandwidth_bytes_per_s * down;

		for (int m = 2; m <= devices; m++) {
			double own = m > capacity ? ns * (double)(m - capacity) / m : 0;
			double all = ns * spread(m, topology->devices / capacity, capacity) / m;

			if (k == 0) {
				b->own_link[m] = own;
				continue;
			}
			/* a chain, of members or of groups of them, sends all of it once through
			 * each outer link, twice between two others: what a component has
			 * added up goes on, and sums for those behind it come back.  (Those with
			 * the most of a group in the middle, or of the larger one of two, send
			 * at least what they would in an exchange.) */
			own = own < ns / 2 ? own : ns / 2;
			if (all > ns / 2)
				all = all < ns && m > 2 * capacity ? all :
				      m > 2 * capacity ? ns : ns / 2;
			b->own_outer[m] = own > b->own_outer[m] ? own : b->own_outer[m];
			b->outer_link[m] = all > b->outer_link[m] ? all : b->outer_link[m];
		}
		capacity *= topology->level[k].count;
	}
	for (int m = devices - 1; m >= 2; m--)       /* it never falls with m */
		if (b->outer_link[m] > b->outer_link[m + 1])
			b->outer_link[m] = b->outer_link[m + 1];
}

static void reduce_bound_release(struct reduce_bound *b)
{
	free(b->own_link);
	free(b->own_outer);
	free(b->outer_link);
}

struct bound {
	const struct pd_costs *costs;
	const struct pd_bound *with;
	int units, devices;
	struct pd_nodes nodes;
	int64_t group;                  /* minibatches of an update; 0: any number; -1: one per
					   replica */
	struct reduce_bound reduce;
	struct pd_row row;
	int *fewest;                    /* f, by node */
	int *least;                     /* the least f of each block */
};

static bool drains(const struct pd_bound *with)
{
	return with->weights == PD_WEIGHTS_FLUSH;
}

/* Returns the minibatches of an update, as in lib/schedule/tick.c. */
static int64_t group_of(const struct pd_bound *with)
{
	bool common = drains(with) || with->weights == PD_WEIGHTS_2BW ||
		      with->schedule == PD_SCHEDULE_NF1B;

	return with->microbatches != 1 || common ? with->microbatches : -1;
}

static void bound_init(struct bound *b, const struct pd_costs *costs, const struct pd_bound *with)
{
	*b = (struct bound){
		.costs = costs, .with = with, .units = costs->unit_count,
		.devices = (int)with->topology->devices, .group = group_of(with),
	};
	pd_nodes_init(&b->nodes, costs, with->schedule);
	b->fewest = pd_calloc((size_t)b->nodes.count, sizeof(*b->fewest));
	b->least = pd_calloc((size_t)b->nodes.count / BLOCK + 1, sizeof(*b->least));
	pd_row_init(&b->row, costs);
	reduce_bound_init(&b->reduce, with->topology, with->gradient_dtype);
}

static void bound_release(struct bound *b)
{
	pd_row_release(&b->row);
	pd_nodes_release(&b->nodes);
	reduce_bound_release(&b->reduce);
	free(b->fewest);
	free(b->least);
}

/*
 * Tells whether the all-reduce of a stage (of the input stage) is between a backward and a forward:
 * not if its step may come later (pd_reduce_is_serial).
 */
static bool is_serial(const struct pd_bound *with, bool input)
{
	return !with->overlaps && (input || !with->agree || with->weights != PD_WEIGHTS_2BW);
}

/* The work of a replica of a stage, without what depends on m. */
struct stage {
	int64_t passes_ns, way_ns, update_ns, before_ns, traffic_ns;
	int64_t bytes, sure_bytes;      /* of its parameters; m times the shortest piece */
	bool serial;
};

/* Returns the j-th node at which a stage from node i may end. */
static int end_of(const struct bound *b, int i, int j)
{
	return b->nodes.states.count ? pd_points_end(&b->nodes.points, i, j) : i + 1 + j;
}

static int ends_of(const struct bound *b, int i)
{
	return b->nodes.states.count ? pd_points_ends(&b->nodes.points, i) : b->nodes.count - 1 - i;
}

/* Returns the bytes that go in and out between two nodes; the row is that of the first node's units. */
static int64_t traffic(const struct bound *b, int i, int j)
{
	const struct pd_cut *from = &b->nodes.list[i].cut, *to = &b->nodes.list[end_of(b, i, j)].cut;

	if (b->nodes.states.count)
		return pd_points_traffic(&b->nodes.points, i, j);
	if (to->last <= from->first)
		return 0;
	return (from->soft ? 0 : pd_row_in_bytes(&b->row, to->last)) +
	       (to->soft ? 0 : pd_row_out_bytes(&b->row, to->last));
}

/* Makes the stage from node i to its j-th end. */
static struct stage stage_of(const struct bound *b, int i, int j)
{
	int64_t bandwidth = b->with->topology->level[0].bandwidth_bytes_per_s;
	const struct pd_node *from = &b->nodes.list[i], *to = &b->nodes.list[end_of(b, i, j)];
	bool empty = to->end.passes_ns < from->begin.passes_ns;
	int64_t bytes = empty ? 0 : pd_max64(0, to->end.bytes - from->begin.bytes);
	__int128 wire = (__int128)traffic(b, i, j) * 1000000000 / bandwidth;
	struct stage stage = {
		.before_ns = drains(b->with) ? b->nodes.way_ns[from->cut.last] : 0,
		.traffic_ns = wire > PD_COST_MAX ? PD_COST_MAX : (int64_t)wire,
		.bytes = bytes, .sure_bytes = pd_max64(0, bytes - SHORT * (int64_t)b->devices),
		.serial = is_serial(b->with, i == 0),
	};

	if (empty)
		return (struct stage){ 0 };
	stage.passes_ns = to->end.passes_ns - from->begin.passes_ns;
	stage.way_ns = pd_max64(0, to->end.way_ns - from->begin.way_ns);
	stage.update_ns = pd_max64(0, to->end.update_ns - from->begin.update_ns);
	if (b->with->schedule == PD_SCHEDULE_NONE)
		stage.passes_ns += b->nodes.path_ns[b->units] - b->nodes.path_ns[to->cut.first];
	return stage;
}

/* Returns the share of m minibatches in something that is done once per update. */
static int64_t share(const struct bound *b, int64_t ns, int64_t m)
{
	__int128 part;

	if (b->group <= 0)
		return b->group < 0 ? ns : 0;
	part = (__int128)ns * m / b->group;
	return part < PD_COST_MAX ? (int64_t)part : PD_COST_MAX;
}

static int64_t reduce_ns(int64_t bytes, double ns_per_byte)
{
	double ns = (double)bytes * ns_per_byte;

	return ns > (double)PD_COST_MAX ? PD_COST_MAX : (int64_t)ns;
}

/* Returns the work of a replica in m minibatches. */
static int64_t total_ns(const struct bound *b, const struct stage *stage, int64_t m)
{
	int64_t own = reduce_ns(stage->bytes, b->reduce.own_link[m]);
	int64_t outer = reduce_ns(stage->sure_bytes, b->reduce.own_outer[m]);
	int64_t shared = reduce_ns(stage->sure_bytes, b->reduce.outer_link[m]);
	int64_t update = stage->update_ns + (stage->serial ? pd_max64(own, outer) : 0);
	int64_t busy = stage->passes_ns + share(b, update, m);
	int64_t wire = stage->traffic_ns + share(b, own, m);

	if (b->group > 0)
		busy = pd_max64(busy, stage->way_ns + share(b, stage->before_ns, m));
	return pd_max64(busy, pd_max64(wire, share(b, shared, m)));
}

/* Returns m(u, v) if it is at most `most`, else NONE. */
static int least(const struct bound *b, const struct stage *stage, int64_t period, int most)
{
	for (int64_t m = 1; m <= most;) {
		int64_t total = total_ns(b, stage, m), enough = pd_ceil_div(total, period);

		if (enough > m)
			m = enough;
		else if (b->group > 0 && !b->with->fewer && b->group % m != 0)
			m++;
		else
			return (int)m;
	}
	return NONE;
}

/* If a block begins with node i, sets its least f. */
static void note_least(struct bound *b, int i)
{
	int *least = &b->least[i / BLOCK];

	if (i % BLOCK != 0)
		return;
	*least = NONE;
	for (int k = i; k < i + BLOCK && k < b->nodes.count; k++)
		*least = b->fewest[k] < *least ? b->fewest[k] : *least;
}

static bool possible(struct bound *b, int64_t period)
{
	const struct pd_node *nodes = b->nodes.list;
	int *f = b->fewest;

	f[b->nodes.count - 1] = 0;
	note_least(b, b->nodes.count - 1);
	for (int i = b->nodes.count - 2; i >= 0; i--) {
		int most = b->devices;

		f[i] = NONE;
		if (!b->nodes.states.count && nodes[i].cut.first < b->units)
			pd_row_set(&b->row, nodes[i].cut.first);
		for (int j = 0; j < ends_of(b, i) && most > 0; j++) {
			int k = end_of(b, i, j);
			__int128 passes = nodes[k].end.passes_ns - nodes[i].begin.passes_ns;
			struct stage stage;
			int m;

			if (passes >= (__int128)(period + 1) * most) {
				if (!b->nodes.states.count)
					break;
				continue;
			}
			/* Each of the devices that are left does its part of the rest. */
			if (k % BLOCK == 0 && !b->nodes.states.count &&
			    passes > (__int128)period * (most - b->least[k / BLOCK])) {
				j += BLOCK - 1;
				continue;
			}
			if (f[k] >= most || passes > (__int128)period * (most - f[k]))
				continue;
			stage = stage_of(b, i, j);
			m = least(b, &stage, period, b->with->straight ? 1 : most - f[k]);
			if (m != NONE) {
				f[i] = m + f[k];
				most = f[i] - 1;
			}
		}
		note_least(b, i);
	}
	return f[0] <= b->devices;
}

/* Returns the longest time of what cannot be cut. */
static int64_t longest(const struct bound *b)
{
	const struct pd_profile *profile = b->costs->profile;
	int64_t most = 0;

	for (int l = 0; l < profile->layer_count; l++)
		most = pd_max64(most, pd_passes_ns(&profile->layers[l]));
	for (int i = 0; i + 1 < b->nodes.count && !b->nodes.states.count; i++)
		if (!b->nodes.list[i].cut.soft && !b->nodes.list[i + 1].cut.soft)
			most = pd_max64(most, b->nodes.list[i + 1].end.passes_ns -
					      b->nodes.list[i].begin.passes_ns);
	return most;
}

static int64_t all_passes(const struct bound *b)
{
	return b->nodes.list[b->nodes.count - 1].end.passes_ns;
}

/* Returns the bound of the machine as a whole. */
static int64_t simple(const struct bound *b)
{
	int64_t ns = pd_ceil_div(all_passes(b), b->devices);

	if (b->with->straight || b->with->chunks)
		ns = pd_max64(ns, longest(b));
	if (drains(b->with) && b->group > 0)
		ns = pd_max64(ns, pd_ceil_div(b->nodes.way_ns[b->units], b->group));
	return ns;
}

static int64_t bisect(struct bound *b, int64_t low)
{
	int64_t high, width = 1;

	if (low < 1)
		low = 1;
	if (possible(b, low))
		return low;
	for (high = 2 * low; high < PD_COST_MAX && !possible(b, high); high = 2 * high)
		low = high;
	if (b->nodes.count > EXACT_NODES)
		width = pd_max64(1, low / 5000);
	while (high - low > width) {
		int64_t middle = low + (high - low) / 2;

		if (possible(b, middle))
			high = middle;
		else
			low = middle;
	}
	return low + 1;
}

int pd_bound_devices(const struct pd_costs *costs, const struct pd_bound *with, int64_t period_ns)
{
	struct bound b;
	int fewest = 1;

	bound_init(&b, costs, with);
	if (period_ns < simple(&b))
		fewest = b.devices + 1;
	else if (all_passes(&b) > 0 && !with->chunks)
		fewest = possible(&b, pd_max64(period_ns, 1)) ? b.fewest[0] : b.devices + 1;
	bound_release(&b);
	return fewest;
}

int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_bound *with)
{
	struct bound b;
	int64_t ns;

	bound_init(&b, costs, with);
	ns = simple(&b);
	if (all_passes(&b) > 0 && !with->chunks)
		ns = bisect(&b, ns);
	bound_release(&b);
	return ns;
}
