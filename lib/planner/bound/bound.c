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
 *     forward and adds to that.  (With 2bw the step may stand behind the next forward, and what is
 *     longer than that adds; where all stages agree on an update, steps of other stages than the first
 *     are put off farther.)  It begins for a replica when its own last
 *     backward is done; from then on the replica sends a piece of W/m to each of the others, and
 *     the sum of its own piece to each of them, so it takes at least 2 (m - 1) W/m / b_0, and where only D_k devices fit
 *     into a component of level k, 2 (m - D_k) W/m / b_k.  Replicas that may be on one host, and sum
 *     in each other's memory (lib/sums/direct), send nothing; the sum takes W over its speed.
 *  3. Its link carries, each way, what comes and goes for a minibatch, the activations one
 *     way and the gradients the other, and 2 (m - 1) W/m for each update.
 *  4. The links of the components in which the replicas are carry the all-reduce of each update:
 *     at least so much, wherever the replicas are (sums/price.h).
 *  5. Where the pipeline drains (flush), the replicas of a stage with parameters begin a group
 *     when all of them have ended the last one.  Let z be the first unit with parameters.  The
 *     first forward of a group comes to [u, v) after a forward of the units from z to u, and
 *     after the last backward there a backward of all of them is still to do before the stage
 *     with z begins the next group.  So of G P, the time of a group, as much as a minibatch
 *     takes from z to u is lost to the replica.  (With backward in two parts only the input's
 *     part counts on that way.)
 *  6. Without pipelining (none) a replica that began a minibatch does nothing until it comes
 *     back from all later stages: F + B are those of all units from u on (in networks without branches).
 *
 * Where kinds of devices differ, the times are those of the fastest on each layer, and so are links.  No
 * device does in m P more of a layer's passes than the kind that is best at them; so all of them do no more than
 * as many of the fastest as the sum, over devices, of the largest part of the fastest's speed that a kind has
 * on any layer (pd_costs.worth).
 *
 * Where a forward and a backward may run together (PD_FACT_PAIRS), 1, 6 and what is said of interleaved ranks hold
 * for the part of F + B that such a pair takes by the profile; a microbatch's way is as long as ever.
 *
 * What is left out (warm-ups, latency, links that several stages share, what processors wait
 * for) only takes more time, and each of these holds for one stage by itself, wherever its
 * ranks are.  So with m(u, v) the least m for which stage [u, v) passes all of the above for a period P,
 * cut/fewest.h gives the fewest devices of any plan whose stages all pass.  If these are more than there
 * are, no plan has the period P; and as m P grows with P, the least P that passes is the bound.
 * Where the microbatches of an update are given, m divides them.
 *
 * Networks with branches have many topological orders, and a plan may take any: u and v are then
 * states (states.h).  Instead of all layers from z to u it is the longest way there, to whatever the
 * stage may begin with.  Where states are too many, only what holds for the machine as a whole is known.
 *
 * Interleaved ranks have several stages each, to which this does not apply: there it is all
 * compute over all devices, the largest unit, and one microbatch's way through everything
 * over the microbatches of a group.
 *
 * Pieces are not equally long (lib/base/buffer_pieces.h).  The replica with the longest one has at
 * least W/m, and sends W + (m - 2) of its own: 2 (m - 1) W/m at least, at level 0.  Elsewhere
 * W/m stands for the shortest piece: W is less by SHORT bytes per device.
 *
 * What a stage does in m P does not fall with m, so m(u, v) is searched for in jumps: if
 * total(m) > m P, nothing below total(m) / P passes.
 */
#include "planner/bound/bound.h"

#include "base/buffer_pieces.h"
#include "base/mem.h"
#include "planner/cut/fewest.h"
#include "planner/cut/task.h"
#include "sums/price.h"

#include <stdlib.h>

#define SHORT (8 * PD_PIECE_ALIGN)      /* bytes: twice what pieces are rounded by */
#define EXACT_POINTS 300        /* with more points the last 1/PD_BOUND_ROUGH of the bound is given up */
#define PART 4                  /* part of a search's effort that the bound may take */

struct pd_bound {
	const struct pd_costs *costs;
	const struct pd_plan_request *request;
	int devices;
	bool straight, agree;           /* no stage has replicas; all stages agree on an update */
	struct pd_states states;        /* count 0: points are units, or there are none */
	struct pd_points points;        /* last 0: not known */
	int64_t group;                  /* minibatches of an update; 0: any number; -1: one per
					   replica */
	int *fitting;                   /* by number of replicas: the next that divides the group; or more than there are */
	double ns_per_byte;             /* of a device's own link */
	struct pd_sum_least least;
	/*
	 * By point, sums over the layers before it: of forward and backward, of what of these is on a
	 * microbatch's way (with backward in two parts only the input's), of updates, and of what may be
	 * beside a sum.
	 */
	int64_t *passes_ns, *way_ns, *update_ns, *beside_ns;
	int64_t *before_ns;             /* z to u: the least way to a stage that begins there */
	int64_t longest_ns;             /* the longest way of all from z on */
	double pairs;                   /* pd_cost_of_pairs(); a microbatch's own way is no shorter for them */
	struct pd_fewest fewest;
};

static bool drains(const struct pd_plan_request *request)
{
	return pd_weights_have(request->weights, PD_WEIGHTS_DRAINS);
}

/* Returns the minibatches of an update, as in lib/schedule/tick.c. */
static int64_t group_of(const struct pd_plan_request *request)
{
	bool common = pd_updates_in_groups(request->schedule, request->weights);

	if (pd_planner_plain(request))
		return -1;
	return request->microbatches != 1 || common ? request->microbatches : -1;
}

/* Tells whether an update may come behind the next forward (lib/schedule/tick.c). */
static bool defers(const struct pd_bound *b)
{
	return pd_weights_have(b->request->weights, PD_WEIGHTS_BEHIND) && !b->agree;
}

static int64_t passes_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + layer->backward_ns;
}

/* The same where backward may be in two parts, which need not take as long as the whole. */
static int64_t passes_split_of(const struct pd_profile_layer *layer)
{
	int64_t parts_ns = pd_profile_input_ns(layer) + pd_profile_weight_ns(layer);

	return layer->forward_ns + pd_min(layer->backward_ns, parts_ns);
}

static int64_t split_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + pd_min(layer->backward_ns, pd_profile_input_ns(layer));
}

static bool splits(const struct pd_plan_request *request)
{
	return pd_schedule_has(request->schedule, PD_FACT_SPLITS);
}

static int64_t update_of(const struct pd_profile_layer *layer)
{
	return layer->update_ns;
}

static int64_t forward_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns;
}

static int64_t nothing_of(const struct pd_profile_layer *layer)
{
	(void)layer;
	return 0;
}

typedef int64_t (*time_of)(const struct pd_profile_layer *layer);

/*
 * Returns by layer the longest way from the first layer with parameters on it up to the layer, and sets
 * *longest_p to that through any layer.
 */
static int64_t *ways(const struct pd_profile *profile, time_of of, int64_t *longest_p)
{
	size_t n = (size_t)profile->layer_count;
	int64_t *to = pd_calloc(n, sizeof(*to)), *through = pd_calloc(n, sizeof(*through));

	for (size_t l = 0; l < n; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];
		bool begun = layer->parameter_bytes > 0;

		for (int i = 0; i < layer->input_count; i++)
			to[l] = pd_max(to[l], through[layer->inputs[i]]);
		through[l] = to[l] > 0 || begun ? to[l] + of(layer) : 0;
		*longest_p = pd_max(*longest_p, through[l]);
	}
	free(through);
	return to;
}

/* Returns the least way to a layer with which a stage behind the state may begin. */
static int64_t least_way(const struct pd_states *states, int s, const int64_t *to)
{
	int64_t least = INT64_MAX;

	for (int l = 0; l < states->profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &states->profile->layers[l];
		bool ready = !pd_states_has(states, s, l);

		for (int i = 0; i < layer->input_count && ready; i++)
			ready = pd_states_has(states, s, layer->inputs[i]);
		if (ready)
			least = pd_min(least, to[l]);
	}
	return least == INT64_MAX ? 0 : least;
}

static void find_ways(struct pd_bound *b, time_of of)
{
	const struct pd_profile *profile = b->costs->profile;
	int last = b->points.last;
	int64_t *to = ways(profile, of, &b->longest_ns);

	b->before_ns = pd_calloc((size_t)last + 1, sizeof(int64_t));
	for (int p = 0; p < last && drains(b->request); p++)
		b->before_ns[p] = b->states.count ? least_way(&b->states, p, to)
						  : to[b->costs->first[p]];
	free(to);
}

/* Tells whether a rank may have several stages; an order that is searched for may, unless it is told. */
static bool may_share(const struct pd_plan_request *request)
{
	return request->chunks > 0 || pd_schedule_has(request->schedule, PD_FACT_ORDERED);
}

/*
 * Finds the points where stages may begin and end: units if stages are runs or there is one order, else states,
 * where stages by themselves say anything.
 */
static void find_points(struct pd_bound *b)
{
	const struct pd_profile *profile = b->costs->profile;

	if (b->request->runs || pd_points_one_order(profile)) {
		pd_points_of_units(&b->points, b->costs);
		return;
	}
	if (may_share(b->request))
		return;
	pd_states_init(&b->states, profile, b->costs->copies ? PD_STATES_COPIES : PD_STATES_ALL);
	if (b->states.whole)
		pd_points_of_states(&b->points, &b->states);
}

static int stage_devices(const struct pd_fewest *fewest, int u, int i, int behind, int most,
			 int64_t period);

static void find_fitting(struct pd_bound *b)
{
	b->fitting = pd_calloc((size_t)b->devices + 2, sizeof(*b->fitting));
	b->fitting[b->devices + 1] = b->devices + 1;
	for (int m = b->devices; m > 0; m--)
		b->fitting[m] = b->group <= 0 || b->group % m == 0 ? m : b->fitting[m + 1];
}

static void bound_init(struct pd_bound *b, const struct pd_costs *costs,
		       const struct pd_plan_request *request)
{
	time_of way = splits(request) ? split_of : passes_of;
	time_of passes = splits(request) ? passes_split_of : passes_of;

	*b = (struct pd_bound){ .costs = costs, .request = request,
			     .devices = (int)request->topology->devices, .group = group_of(request),
			     .straight = pd_planner_straight(request),
			     .agree = costs->copies || pd_planner_agrees(request, costs->profile,
									 request->weights),
			     .pairs = pd_cost_of_pairs(costs->profile, request->schedule),
			     .ns_per_byte = 1e9 / (double)pd_topology_fastest_link(request->topology, 0)
					    .bandwidth_bytes_per_s * (1 - 1e-12) };
	find_points(b);
	find_fitting(b);
	pd_sum_least_init(&b->least, request->topology, request->gradient_dtype,
			     costs->profile->in_step.sum_bytes_per_s);
	b->passes_ns = pd_points_sum(&b->points, passes);
	for (int p = 0; p <= b->points.last && b->pairs < 1; p++)
		b->passes_ns[p] = (int64_t)((double)b->passes_ns[p] * b->pairs);
	b->way_ns = pd_points_sum(&b->points, way);
	b->update_ns = pd_points_sum(&b->points, update_of);
	b->beside_ns = pd_points_sum(&b->points, defers(b) ? forward_of : nothing_of);
	find_ways(b, way);
	b->fewest = (struct pd_fewest){ .points = &b->points, .most = b->devices,
					.each = b->straight ? 1 : b->devices,
					.ns = b->passes_ns, .stage = stage_devices, .context = b,
					.effort = request->effort };
	pd_fewest_init(&b->fewest);
}

static void bound_release(struct pd_bound *b)
{
	pd_fewest_release(&b->fewest);
	pd_points_release(&b->points);
	pd_states_release(&b->states);
	pd_sum_least_release(&b->least);
	free(b->fitting);
	free(b->passes_ns);
	free(b->way_ns);
	free(b->update_ns);
	free(b->beside_ns);
	free(b->before_ns);
}

/*
 * Tells whether the all-reduce of a stage (of the input stage) is between a backward and a forward:
 * not if its step may come later (pd_schedule_sums_serially).
 */
static bool is_serial(const struct pd_bound *b, bool input)
{
	return b->request->bucket_bytes == 0 &&
	       (input || !b->agree || !pd_weights_have(b->request->weights, PD_WEIGHTS_BEHIND));
}

/* The work of a replica of a stage, without what depends on m. */
struct stage {
	int64_t passes_ns, way_ns, update_ns, before_ns, traffic_ns;
	int64_t beside_ns;              /* under which a sum may be hidden */
	int64_t bytes, sure_bytes;      /* of its sum; m times the shortest piece */
	bool serial;
};

/* Returns the least bytes of gradients that replicas sum in an update (plan/sparse.h rounds up). */
static int64_t summed_bytes(const struct pd_bound *b, int64_t parameter_bytes)
{
	const struct pd_plan_request *request = b->request;

	parameter_bytes = pd_profile_summed_bytes(b->costs->profile, request->gradient_dtype, parameter_bytes);
	if (request->reducer != PD_REDUCER_dense)       /* only dense sums are known to take any time */
		return 0;
	if (request->sparsity == 0)
		return parameter_bytes;
	return (int64_t)((double)parameter_bytes * (1 - request->sparsity) * (1 - 1e-6));
}

/* Makes the stage from point u to its i-th end. */
static struct stage stage_of(const struct pd_bound *b, int u, int i)
{
	const struct pd_points *points = &b->points;
	int v = pd_points_end(points, u, i);
	bool known = !points->states || points->traffic;
	bool alone = pd_schedule_has(b->request->schedule, PD_FACT_ALONE) && !points->states;
	int64_t bytes = summed_bytes(b,
				     points->parameter_bytes[v] - points->parameter_bytes[u]);

	return (struct stage){
		.passes_ns = b->passes_ns[alone ? points->last : v] - b->passes_ns[u],
		.way_ns = b->way_ns[v] - b->way_ns[u], .before_ns = b->before_ns[u],
		.update_ns = pd_profile_shared_ns(b->costs->profile, b->update_ns[v] - b->update_ns[u], b->devices),
		.traffic_ns = known ? pd_cost_of((double)pd_points_traffic(points, u, i) * b->ns_per_byte)
				    : 0,
		.bytes = bytes, .sure_bytes = pd_max(0, bytes - SHORT * (int64_t)b->devices),
		.serial = is_serial(b, u == 0), .beside_ns = b->beside_ns[v] - b->beside_ns[u],
	};
}

/* Returns the share of m minibatches in something that is done once per update. */
static int64_t share(const struct pd_bound *b, int64_t ns, int64_t m)
{
	int64_t product;

	if (b->group <= 0)
		return b->group < 0 ? ns : 0;
	if (__builtin_mul_overflow(ns, m, &product))
		return pd_saturate((__int128)ns * m / b->group);
	return pd_min(product / b->group, PD_COST_MAX);
}

/* Returns the work of a replica in m minibatches. */
static int64_t total_ns(const struct pd_bound *b, const struct stage *stage, int64_t m)
{
	int64_t own = pd_cost_of((double)stage->bytes * b->least.own_link[m]);
	int64_t sum = pd_cost_of((double)stage->bytes * b->least.own_sum[m]);
	int64_t outer = pd_cost_of((double)stage->sure_bytes * b->least.own_outer[m]);
	int64_t shared = pd_cost_of((double)stage->sure_bytes * b->least.outer_link[m]);
	int64_t update = stage->update_ns +
			 (stage->serial ? pd_max(0, pd_max(sum, outer) - stage->beside_ns) : 0);
	int64_t busy = stage->passes_ns + share(b, update, m);
	int64_t wire = stage->traffic_ns + share(b, own, m);

	if (b->group > 0)
		busy = pd_max(busy, stage->way_ns + share(b, stage->before_ns, m));
	return pd_max(busy, pd_max(wire, share(b, shared, m)));
}

static int stage_devices(const struct pd_fewest *fewest, int u, int i, int behind, int most,
			 int64_t period)
{
	const struct pd_bound *b = fewest->context;
	struct stage stage = stage_of(b, u, i);

	(void)behind;
	for (int m = 1; m <= most;) {
		int64_t total = total_ns(b, &stage, m), enough = pd_ceil_div(total, period);

		if (enough <= m)
			return m;
		m = enough <= most ? b->fitting[enough] : most + 1;
	}
	return PD_FEWEST_NONE;
}

static int64_t passes_at(const struct pd_bound *b, int l)
{
	const struct pd_profile_layer *layer = &b->costs->profile->layers[l];

	return splits(b->request) ? passes_split_of(layer) : passes_of(layer);
}

/* Returns the longest time of what cannot be cut. */
static int64_t longest(const struct pd_bound *b)
{
	const struct pd_profile *profile = b->costs->profile;
	int64_t most = 0;

	for (int l = 0; l < profile->layer_count; l++)
		most = pd_max(most, passes_at(b, l));
	for (int u = 0; u < b->points.last && !b->states.count; u++)
		most = pd_max(most, b->passes_ns[u + 1] - b->passes_ns[u]);
	return most;
}

static int64_t all_passes(const struct pd_bound *b)
{
	int64_t sum = 0;

	for (int l = 0; l < b->costs->profile->layer_count; l++)
		sum += passes_at(b, l);
	return sum;
}

/* Returns the bound of the machine as a whole. */
static int64_t simple(const struct pd_bound *b)
{
	int64_t all_ns = (int64_t)((double)all_passes(b) * b->pairs);
	int64_t ns = b->costs->worth > 0 ? pd_cost_of((double)all_ns / b->costs->worth * (1 - 1e-9))
					 : pd_ceil_div(all_ns, b->devices);
	int64_t processors = b->request->topology->processors;

	if (processors > 0)
		ns = pd_max(ns, all_ns / processors);
	if (b->straight)
		ns = pd_max(ns, (int64_t)((double)longest(b) * b->pairs));
	if (drains(b->request) && b->group > 0)
		ns = pd_max(ns, pd_ceil_div(b->longest_ns, b->group));
	return ns;
}

/* Tells whether stages by themselves say more than the machine as a whole. */
static bool has_stages(const struct pd_bound *b)
{
	return all_passes(b) > 0 && !may_share(b->request) && b->points.last > 0;
}

struct pd_bound *pd_bound_new(const struct pd_costs *costs, const struct pd_plan_request *request)
{
	struct pd_bound *b = pd_calloc(1, sizeof(*b));

	bound_init(b, costs, request);
	return b;
}

void pd_bound_free(struct pd_bound *b)
{
	if (b)
		bound_release(b);
	free(b);
}

int pd_bound_devices(struct pd_bound *b, int64_t period_ns)
{
	int fewest = 1;

	if (period_ns < simple(b))
		fewest = PD_FEWEST_NONE;
	else if (has_stages(b))
		fewest = pd_fewest_devices(&b->fewest, pd_max(period_ns, 1));
	return pd_effort_spent(b->request->effort) ? 1 : fewest;
}

/* Tells whether no stages keep to a period, as far as the effort lasts to know it. */
static bool is_below(struct pd_bound *b, int64_t period_ns)
{
	return pd_fewest_devices(&b->fewest, period_ns) == PD_FEWEST_NONE && !pd_effort_spent(b->fewest.effort);
}

int64_t pd_bound_ns(const struct pd_costs *costs, const struct pd_plan_request *request,
		    int64_t most_ns)
{
	struct pd_effort *effort = request->effort, part = { .most = 0 };
	struct pd_bound b;
	int64_t ns;

	bound_init(&b, costs, request);
	if (effort) {
		part = *effort;
		part.most = effort->done + (effort->most - effort->done) / PART;
		b.fewest.effort = &part;
	}
	ns = simple(&b);
	if (ns < most_ns && has_stages(&b)) {
		if (most_ns < PD_COST_MAX && is_below(&b, most_ns - 1))
			ns = most_ns;
		else
			pd_fewest_value(&b.fewest, ns, b.points.last < EXACT_POINTS ? INT64_MAX : PD_BOUND_ROUGH,
					&ns);
	}
	if (effort) {
		part.most = effort->most;
		*effort = part;
	}
	bound_release(&b);
	return pd_min(ns, most_ns);
}
