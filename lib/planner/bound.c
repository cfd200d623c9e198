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
 *  2. Where the forward after an update reads what the update wrote (stash; flush; at the
 *     first stage also vertical-sync), the all-reduce lies between backward and forward and
 *     adds to that.  It begins for a replica when its own last backward is done; from then on
 *     the replica sends a piece of W/m to each of the others, and the sum of its own piece to
 *     each of them, so it takes at least 2 (m - 1) W/m / b_0, and where only D_k devices fit
 *     into a component of level k, 2 (m - D_k) W/m / b_k.
 *  3. Its link carries, each way, what comes and goes for a minibatch, the activations one
 *     way and the gradients the other, and 2 (m - 1) W/m for each update.
 *  4. If k_i of the replicas are in component i below level k, the link of that component
 *     carries 2 k_i (m - k_i) W/m for each update.  With S components of D devices the
 *     largest of them is least either where all have a = ceil(m/S) or fewer, or where one has
 *     D, so that its own load is 2 D (m - D) W/m: f = min(a (m - a), D (m - D)); the latter
 *     only where D >= m - D, for the rest of the replicas must be few enough elsewhere.
 *     (k (m - k) rises up to m/2 and falls after it.)  Level 0 is the link of 3.
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
#include "planner/bound.h"

#include "base/mem.h"
#include "base/piece.h"

#include <stdlib.h>

#define NONE INT32_MAX
#define SHORT (8 * PD_PIECE_ALIGN)      /* bytes: twice what pieces are rounded by */
#define EXACT_UNITS 300         /* with more units the last 1/5000 of the bound is given away */

struct bound {
	const struct pd_costs *costs;
	const struct pd_bound *with;
	int units, devices;
	/* units + 1 entries: of all units before u */
	int64_t *passes_ns;             /* forward and backward */
	int64_t *way_ns;                /* forward and the input's part of backward, from z on */
	int64_t *update_ns;
	int64_t group;                  /* minibatches of an update; 0: any; -1: one per replica */
	/* ns per parameter byte of an all-reduce among m, never above what it takes */
	double *own_link;               /* of a replica */
	double *own_outer;              /* what it sends through outer links, from its backward on */
	double *outer_link;             /* shared by its component */
	struct pd_row row;
	int *fewest;                    /* f(u) */
};

/* The least, over all placements of m replicas, of the largest k (m - k) of a component. */
static double spread(int64_t m, int64_t components, int64_t capacity)
{
	int64_t a = (m + components - 1) / components;
	double even = (double)a * (double)(m - a), full = (double)capacity * (double)(m - capacity);

	if (m <= capacity)
		return 0;
	return capacity >= m - capacity && full < even ? full : even;
}

static void price_all_reduce(struct bound *b)
{
	const struct pd_topology *topology = b->with->topology;
	int64_t capacity = 1;
	const double down = 1 - 1e-12;  /* for the rounding of double */

	for (int k = 0; k < topology->levels; k++) {
		double ns = 2e9 / (double)topology->level[k].bandwidth_bytes_per_s * down;

		for (int m = 2; m <= b->devices; m++) {
			double own = m > capacity ? ns * (double)(m - capacity) / m : 0;
			double all = ns * spread(m, topology->devices / capacity, capacity) / m;

			if (k == 0) {
				b->own_link[m] = own;
				continue;
			}
			b->own_outer[m] = own > b->own_outer[m] ? own : b->own_outer[m];
			b->outer_link[m] = all > b->outer_link[m] ? all : b->outer_link[m];
		}
		capacity *= topology->level[k].count;
	}
	for (int m = b->devices - 1; m >= 2; m--)       /* never falls with m */
		if (b->outer_link[m] > b->outer_link[m + 1])
			b->outer_link[m] = b->outer_link[m + 1];
}

static int64_t *sums(const struct pd_costs *costs,
		     int64_t (*time_of)(const struct pd_profile_layer *layer))
{
	int64_t *sum = pd_calloc((size_t)costs->unit_count + 1, sizeof(*sum)), ns = 0;

	for (int u = 0; u < costs->unit_count; u++) {
		for (int l = costs->first[u]; l < costs->first[u + 1]; l++)
			ns += time_of(&costs->profile->layers[l]);
		sum[u + 1] = ns;
	}
	return sum;
}

static int64_t passes_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + layer->backward_ns;
}

static int64_t way_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + pd_profile_input_ns(layer);
}

static int64_t update_of(const struct pd_profile_layer *layer)
{
	return layer->update_ns;
}

/* Only from the first unit with parameters on. */
static void begin_with_parameters(const struct pd_costs *costs, int64_t *sum)
{
	int z = 0;

	while (z < costs->unit_count && costs->parameter_bytes[z + 1] == 0)
		z++;
	for (int u = costs->unit_count; u >= 0; u--)
		sum[u] = u > z ? sum[u] - sum[z] : 0;
}

static bool drains(const struct pd_bound *with)
{
	return with->weights == PD_WEIGHTS_FLUSH;
}

/* Minibatches of an update, as lib/schedule/ideal.c has them. */
static int64_t group_of(const struct pd_bound *with)
{
	bool common = drains(with) || with->weights == PD_WEIGHTS_2BW ||
		      with->schedule == PD_SCHEDULE_NF1B;

	return with->microbatches != 1 || common ? with->microbatches : -1;
}

static void bound_init(struct bound *b, const struct pd_costs *costs, const struct pd_bound *with)
{
	size_t ranks = (size_t)with->topology->devices + 2;

	*b = (struct bound){
		.costs = costs, .with = with, .units = costs->unit_count,
		.devices = (int)with->topology->devices,
		.passes_ns = sums(costs, passes_of),
		.way_ns = sums(costs, with->schedule == PD_SCHEDULE_ZB_H1 ? way_of : passes_of),
		.update_ns = sums(costs, update_of),
		.group = group_of(with),
		.own_link = pd_calloc(ranks, sizeof(*b->own_link)),
		.own_outer = pd_calloc(ranks, sizeof(*b->own_outer)),
		.outer_link = pd_calloc(ranks, sizeof(*b->outer_link)),
		.fewest = pd_calloc((size_t)costs->unit_count + 1, sizeof(*b->fewest)),
	};
	begin_with_parameters(costs, b->way_ns);
	pd_row_init(&b->row, costs);
	price_all_reduce(b);
}

static void bound_release(struct bound *b)
{
	pd_row_release(&b->row);
	free(b->passes_ns);
	free(b->way_ns);
	free(b->update_ns);
	free(b->own_link);
	free(b->own_outer);
	free(b->outer_link);
	free(b->fewest);
}

/* Is the all-reduce of a stage that begins with unit u between a backward and a forward? */
static bool is_serial(const struct pd_bound *with, int u)
{
	if (with->schedule == PD_SCHEDULE_NF1B)
		return false;
	return with->weights == PD_WEIGHTS_STASH || drains(with) ||
	       (with->weights == PD_WEIGHTS_VERTICAL_SYNC && u == 0);
}

/* What stage [u, v) makes a replica do, without what depends on m. */
struct stage {
	int64_t passes_ns, way_ns, update_ns, before_ns, traffic_ns;
	int64_t bytes, sure_bytes;      /* of its parameters; m times the shortest piece */
	bool serial;
};

static struct stage stage_of(const struct bound *b, int u, int v)
{
	const struct pd_level *link = &b->with->topology->level[0];
	int64_t bytes = b->costs->parameter_bytes[v] - b->costs->parameter_bytes[u];
	__int128 traffic = b->row.in_bytes[v] + b->row.out_bytes[v];
	int end = b->with->schedule == PD_SCHEDULE_NONE ? b->units : v;

	traffic = traffic * 1000000000 / link->bandwidth_bytes_per_s;
	return (struct stage){
		.passes_ns = b->passes_ns[end] - b->passes_ns[u],
		.way_ns = b->way_ns[end] - b->way_ns[u],
		.update_ns = b->update_ns[v] - b->update_ns[u],
		.before_ns = drains(b->with) ? b->way_ns[u] : 0,
		.traffic_ns = traffic > PD_COST_MAX ? PD_COST_MAX : (int64_t)traffic,
		.bytes = bytes,
		.sure_bytes = pd_max64(0, bytes - SHORT * (int64_t)b->devices),
		.serial = is_serial(b->with, u),
	};
}

/* The part of what happens once per update that falls to m minibatches. */
static int64_t share(const struct bound *b, int64_t ns, int64_t m)
{
	if (b->group <= 0)
		return b->group < 0 ? ns : 0;
	return (int64_t)((__int128)ns * m / b->group);
}

static int64_t reduce_ns(int64_t bytes, double ns_per_byte)
{
	double ns = (double)bytes * ns_per_byte;

	return ns > (double)PD_COST_MAX ? PD_COST_MAX : (int64_t)ns;
}

/* What it makes a replica do in m minibatches. */
static int64_t total_ns(const struct bound *b, const struct stage *stage, int64_t m)
{
	int64_t own = reduce_ns(stage->bytes, b->own_link[m]);
	int64_t outer = reduce_ns(stage->sure_bytes, b->own_outer[m]);
	int64_t shared = reduce_ns(stage->sure_bytes, b->outer_link[m]);
	int64_t update = stage->update_ns + (stage->serial ? pd_max64(own, outer) : 0);
	int64_t busy = stage->passes_ns + share(b, update, m);
	int64_t wire = stage->traffic_ns + share(b, own, m);

	if (b->group > 0)
		busy = pd_max64(busy, stage->way_ns + share(b, stage->before_ns, m));
	return pd_max64(busy, pd_max64(wire, share(b, shared, m)));
}

/* m(u, v), if it is at most `most`; else NONE. */
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

static bool possible(struct bound *b, int64_t period)
{
	int *f = b->fewest;

	f[b->units] = 0;
	for (int u = b->units - 1; u >= 0; u--) {
		int most = b->devices;

		f[u] = NONE;
		pd_row_set(&b->row, u);
		for (int v = u + 1; v <= b->units; v++) {
			struct stage stage;
			int m;

			if ((b->passes_ns[v] - b->passes_ns[u]) / most > period)
				break;
			if (f[v] >= most)
				continue;
			stage = stage_of(b, u, v);
			m = least(b, &stage, period, b->with->straight ? 1 : most - f[v]);
			if (m != NONE) {
				f[u] = m + f[v];
				most = f[u] - 1;
				if (most < 1)
					break;
			}
		}
	}
	return f[0] <= b->devices;
}

/* What holds for the machine as a whole. */
static int64_t simple(const struct bound *b)
{
	bool one_each = b->with->straight || b->with->chunks;
	int64_t ns = pd_ceil_div(b->passes_ns[b->units], b->devices);

	for (int u = 0; u < b->units && one_each; u++)
		ns = pd_max64(ns, b->passes_ns[u + 1] - b->passes_ns[u]);
	if (drains(b->with) && b->group > 0)
		ns = pd_max64(ns, pd_ceil_div(b->way_ns[b->units], b->group));
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
	if (b->units > EXACT_UNITS)
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

int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_bound *with)
{
	struct bound b;
	int64_t ns;

	bound_init(&b, costs, with);
	ns = simple(&b);
	if (b.passes_ns[b.units] > 0 && !with->chunks)
		ns = bisect(&b, ns);
	bound_release(&b);
	return ns;
}
