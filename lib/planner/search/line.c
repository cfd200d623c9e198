/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices on a line, servers one behind the other: where a stage is decides which
 * links it uses.
 *
 * The question is the fewest devices on which every stage from point u on takes at
 * most a time t,
 *
 *     F(u) = min over u < v <= U of  m(u, v, F(v)) + F(v),      F(U) = 0,
 *
 * where points are the units of the profile's order, or the states of the network, v then being
 * those that contain u (points.h).
 *
 * But stage [u, v) now has the devices F(v) to F(v) + m - 1, counted from the end of the line,
 * so that the links between its replicas and to the stage behind it are known, those which a
 * component shares among them.
 *
 * F(v) stands for one plan of what is behind v: of those with the fewest devices the one with the shortest
 * way.  What goes on from there may be better with another, since where a server ends makes a difference: this
 * is a search for good plans and not a proof.
 */
#include "planner/search/line.h"

#include "base/mem.h"
#include "predict/cycle.h"

#include <stdlib.h>
#include <string.h>

#define PROBES 48
#define LITTLE 256                      /* part of the bound by which times are tried */
#define TRIES 4                         /* numbers of replicas, from the least on, that are tried */
#define TRY_STEPS 100                   /* steps (base/effort.h) of a try */
#define NONE PD_FEWEST_NONE

static int64_t forward_of(const struct pd_profile_layer *layer)
{
	return layer->forward_ns;
}

void pd_line_kinds_init(struct pd_line_kinds *kinds, const struct pd_points *points,
			const struct pd_profile *profile, const struct pd_topology *topology)
{
	*kinds = (struct pd_line_kinds){ .topology = topology, .count = 1 + profile->other_count };
	for (int k = 0; k < kinds->count; k++) {
		const struct pd_profile *own = pd_profile_of_kind(profile, k);

		kinds->compute_ns[k] = pd_points_sum_of(points, own, pd_profile_step_ns);
		kinds->forward_ns[k] = pd_points_sum_of(points, own, forward_of);
	}
}

void pd_line_kinds_release(struct pd_line_kinds *kinds)
{
	for (int k = 0; k < kinds->count; k++) {
		free(kinds->compute_ns[k]);
		free(kinds->forward_ns[k]);
	}
}

struct node {                           /* a plan of the layers behind u */
	int devices;                    /* F(u), or NONE */
	int next;                       /* the point behind its first stage */
	int stages;
	int64_t lead;                   /* of its first stage: warm-up times replicas */
	int64_t behind_ns;              /* G: the time of the way through all of it */
	double load_ns[PD_MAX_LEVELS];  /* on the link of the component of its last device */
};

struct line_search {
	const struct pd_line *line;
	struct pd_points *points;
	int u;                          /* the point where stages begin */
	int64_t traffic_bytes;          /* of the stage that is being put there */
	int room;                       /* devices that the layers before u leave, at most */
	int64_t roomy_warmup;           /* a warm-up with which any stage fits; -1: none */
	const struct pd_map *map;
	struct node *of[2], *nodes;     /* one of these two: the current plans, by point */
	const struct node *found;       /* the other: the plans found last; or NULL */
	struct pd_fewest fewest;        /* goes over the stages */
};

/*
 * Puts a stage before a plan of the layers behind it, for a time t.  Its place on the line is
 * known, and so are three things.
 *
 * Its all-reduce takes as long as the busiest link that it crosses.
 *
 * Of the minibatches that go on to the next stage, a component's link carries those for another
 * component.
 *
 * Its warm-up follows from t, and from the times and leads of the stages behind it (warmup.c).  The
 * bytes of a replica follow from the warm-up, and must fit.  If they do not, they may when it
 * recomputes, and then it takes a forward longer.
 */
#define MOST_LEAD (4 * PD_MAX_RANKS)     /* more than warmup.c ever uses */

/* Returns the versions that a stage keeps. */
static int64_t versions(const struct pd_line *line, int64_t warmup, int64_t lead)
{
	if (!pd_weights_have(line->weights, PD_WEIGHTS_STASHES))
		return pd_weights_have(line->weights, PD_WEIGHTS_BEHIND) ? 2 : 1;
	return line->group ? pd_ceil_div(lead, line->group) + 1 : warmup + 1;
}

static int64_t sum_on(int64_t *const *sums, const struct line_search *search, const struct pd_span *span,
		      int v)
{
	const struct pd_topology *topology = search->line->kinds->topology;
	int64_t most = 0, end;

	for (int64_t d = span->begin; d < span->end; d = end) {
		const int64_t *own = sums[pd_topology_run(topology, d, &end)];

		most = pd_max(most, own[v] - own[search->u]);
	}
	return most;
}

/* Returns the time of the stage [u, v) for a minibatch on the slowest of some devices. */
static int64_t compute_on(const struct line_search *search, const struct pd_span *span, int v)
{
	const int64_t *sum = search->points->compute_ns;

	return search->line->kinds ? sum_on(search->line->kinds->compute_ns, search, span, v)
				   : sum[v] - sum[search->u];
}

static int64_t forward_on(const struct line_search *search, const struct pd_span *span, int v)
{
	const int64_t *sum = search->points->forward_ns;

	return search->line->kinds ? sum_on(search->line->kinds->forward_ns, search, span, v)
				   : sum[v] - sum[search->u];
}

/* Returns the least memory of some devices. */
static int64_t limit_on(const struct line_search *search, const struct pd_span *span)
{
	const struct pd_line *line = search->line;
	int64_t least = line->memory_limit_bytes, end;

	for (int64_t d = span->begin; line->kinds && d < span->end; d = end) {
		int kind = pd_topology_run(line->kinds->topology, d, &end);
		int64_t own = line->kinds->topology->kind[kind].memory_bytes;

		if (own > 0 && own < least)
			least = own;
	}
	return least;
}

/* Returns the bytes of a replica, nearly as pd_schedule_memory will say, which decides. */
static __int128 bytes_of(const struct line_search *search, int v, int m, int64_t warmup)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	int64_t parameters, more;

	parameters = points->parameter_bytes[v] - points->parameter_bytes[search->u];
	more = versions(line, warmup, warmup * m) - (warmup + 1);
	if (line->group > m)
		more++;
	if (pd_points_profile(points)->memory.model != PD_MEMORY_OWN)     /* which has one version, and counts so */
		more = 0;
	return (__int128)more * parameters + pd_points_memory(points, search->u, v, m, (int)warmup);
}

/* Estimates what recomputing saves, as a whole or by blocks. */
static __int128 saved_bytes(const struct line_search *search, int v, int64_t warmup)
{
	const struct pd_points *points = search->points;
	const struct pd_line *line = search->line;
	int64_t stash = points->stash_bytes[v] - points->stash_bytes[search->u];
	double by_block = (double)(warmup + 1) * (double)stash * (1 - line->block_part) -
			  (double)pd_min(line->block_bytes, stash);

	return pd_max(pd_points_saved(points, search->u, v, (int)warmup),
		      line->block_part < 1 ? (int64_t)by_block : INT64_MIN);
}

static bool fits(const struct line_search *search, int v, const struct pd_span *own, int64_t warmup, bool recomputes)
{
	if (warmup <= search->roomy_warmup)
		return true;
	return bytes_of(search, v, own->end - own->begin, warmup) -
	       (recomputes ? saved_bytes(search, v, warmup) : 0) <= limit_on(search, own);
}

/*
 * Returns what recomputing takes: a forward; or, where single layers do, the part of it that is needed, as if
 * all took as long for each byte that they keep.
 */
static int64_t again_ns(const struct line_search *search, int v, const struct pd_span *own, int64_t warmup)
{
	int64_t whole = forward_on(search, own, v);
	__int128 saved = saved_bytes(search, v, warmup);
	__int128 need = bytes_of(search, v, own->end - own->begin, warmup) - limit_on(search, own);

	return (search->line->selective || search->line->block_part < 1) && need < saved ? (int64_t)(whole * need / saved) : whole;
}

/* Tells whether a plan with so many devices and such a way is better than the one of u so far. */
static bool is_better(const struct line_search *search, int devices, int64_t behind_ns)
{
	const struct node *node = &search->nodes[search->u];

	return devices < node->devices || (devices == node->devices && behind_ns < node->behind_ns);
}

/*
 * The stage [u, v) with m replicas before a plan of v: its place, and its time for m minibatches.
 */
struct try {
	const struct node *rest;
	struct pd_span own, next;
	int64_t compute, reduce;
	double gradient_bytes;          /* of its gradients as they travel, for each replica */
	bool recomputes;                /* it recomputes */
};

/* Sets its warm-up and its way in *node_p. */
static void lead(const struct line_search *search, int v, const struct try *try, int64_t time,
		 struct node *node_p)
{
	int64_t m = try->own.end - try->own.begin, way, back = try->compute, need;

	node_p->lead = 0;
	if (v != search->points->last) {
		way = pd_map_way_ns(search->map, &try->next, &try->own,
				    pd_points_out_bytes(search->points, v));
		back = pd_window_back_ns(back, way, try->rest->behind_ns);
		/*
		 * Replicas that update together begin together, so a burst of m comes back
		 * together.
		 */
		need = pd_window_lead(back, try->reduce, time, try->reduce > 0 ? 1 : m);
		need = pd_max(pd_min(need, MOST_LEAD), try->rest->lead);
		if (!search->line->least)
			node_p->lead = pd_ceil_div(need, m) * m;
	}
	node_p->behind_ns = pd_window_behind_ns(node_p->lead, time, try->compute, back);
}

enum answer { NO, TOO_LARGE, YES };

/* Tells whether the stage keeps to the time, and sets *node_p; NO also if it is no better than what is there. */
static enum answer stage_holds(const struct line_search *search, int v, const struct try *try,
			       int64_t time, struct node *node_p)
{
	const struct pd_line *line = search->line;
	const struct pd_points *points = search->points;
	int m = try->own.end - try->own.begin;
	int64_t group = line->group ? line->group : m;
	struct pd_span_load load = { &try->own, v == points->last ? NULL : &try->next,
				     search->traffic_bytes, points->cut_bytes[v], try->gradient_bytes,
				     (double)group };

	if (group == m && try->compute + try->reduce > (__int128)m * time)
		return NO;              /* this needs no division */
	if (pd_ceil_div(try->compute, m) + pd_ceil_div(try->reduce, group) > time)
		return NO;
	lead(search, v, try, time, node_p);
	if (!is_better(search, try->own.end, node_p->behind_ns) ||
	    !fits(search, v, &try->own, 0, line->recompute && line->block_part < 1) ||
	    !pd_map_holds(search->map, &load, try->rest->load_ns, (double)time, node_p->load_ns))
		return NO;
	if (!fits(search, v, &try->own, node_p->lead / m, try->recomputes))
		return TOO_LARGE;
	node_p->devices = try->own.end;
	node_p->next = v;
	node_p->stages = try->rest->stages + 1;
	return YES;
}

/* Does the same, with recomputation if that is allowed. */
static bool holds(const struct line_search *search, int v, const struct try *try, int64_t time,
		  struct node *node_p)
{
	enum answer once = stage_holds(search, v, try, time, node_p);
	struct try recomputed = *try;
	int m = try->own.end - try->own.begin;

	if (once != TOO_LARGE || !search->line->recompute)
		return once == YES;
	recomputed.recomputes = true;
	recomputed.compute += again_ns(search, v, &try->own, node_p->lead / m);
	return stage_holds(search, v, &recomputed, time, node_p) == YES;
}

/* Returns the least number of replicas, at least m, that a stage may have; NONE if there is none. */
static int64_t allowed(const struct pd_line *line, int64_t m)
{
	while (line->round > m && line->round % m != 0)
		m++;
	return line->round == 0 || m <= line->round ? m : NONE;
}

/*
 * Returns the least number of replicas, at least m, that compute and reduce within a time, and sets the
 * time of the all-reduce; or some number above `most`.
 */
static int64_t enough(const struct line_search *search, int v, int64_t m, int64_t most, int64_t time,
		      struct try *try)
{
	const struct pd_points *points = search->points;
	int64_t bytes = points->parameter_bytes[v] - points->parameter_bytes[search->u];

	for (;; m = pd_max(m + 1, pd_ceil_div(try->compute + try->reduce, time))) {
		m = allowed(search->line, m);
		if (m > most)
			return m;
		try->reduce = 0;
		try->gradient_bytes = m > 1 ? (double)bytes / (double)m * search->line->wire : 0;
		try->own.end = try->own.begin + (int)m;
		if (search->line->kinds)
			try->compute = compute_on(search, &try->own, v);
		if (m > 1)
			try->reduce = pd_map_reduce_ns(search->map, &try->own, try->gradient_bytes);
		if (m == 1 || search->line->group ||
		    try->compute + try->reduce <= pd_times(m, time))
			return m;
	}
}

/*
 * Keeps, for search->u, a plan that puts the stage [u, v) before the plan of v, where each stage keeps to
 * a time.
 */
static void fill_stage(const struct line_search *search, int v, int64_t time)
{
	const struct pd_points *points = search->points;
	const struct node *rest = &search->nodes[v];
	struct node *best = &search->nodes[search->u], node;
	struct try try = { .rest = rest, .own.begin = rest->devices, .next.end = rest->devices,
			   .compute = points->compute_ns[v] - points->compute_ns[search->u] };
	int64_t m = pd_max(pd_ceil_div(try.compute, time), 1);
	int64_t most = pd_min(search->room, best->devices) - rest->devices;

	if (rest->devices == NONE)
		return;
	if (v != points->last)
		try.next.begin = search->nodes[rest->next].devices;
	if (search->line->straight && most > 1)
		most = 1;
	for (int t = 0; m <= most && t < TRIES; t++, m++) {
		pd_effort_spend(search->line->effort, TRY_STEPS);
		m = enough(search, v, m, most, time, &try);
		if (m <= most && is_better(search, try.own.end, rest->behind_ns + try.compute) &&
		    holds(search, v, &try, time, &node))
			*best = node;
	}
}

/*
 * Returns the devices left for u: the layers before u compute too, and no device for longer than
 * this time.
 */
static int room_for(const struct line_search *search, int u, int64_t time)
{
	int64_t before = pd_ceil_div(search->points->compute_ns[u], time);

	return (int)pd_max(0, search->line->devices - before);
}

/* Keeps a plan with a stage; none is looked for when it has the fewest devices that there can be. */
static int look(struct pd_fewest *fewest, int u, int i, int most, int64_t time)
{
	struct line_search *search = (struct line_search *)fewest->context;
	const struct pd_points *points = search->points;
	const struct node *best = &search->nodes[u];
	int v = pd_points_end(points, u, i);

	if (pd_points_exceed(points, u, v, search->line->memory_limit_bytes))
		return 0;
	search->traffic_bytes = pd_points_traffic(points, u, i);
	fill_stage(search, v, time);
	if (best->devices <= pd_ceil_div(points->compute_ns[points->last] - points->compute_ns[u], time))
		return 0;
	return best->devices < most ? best->devices : most;
}

static bool probe(struct line_search *search, int64_t time)
{
	int U = search->points->last;

	for (int u = 0; u < U; u++)
		search->nodes[u].devices = NONE;
	search->nodes[U] = (struct node){ .devices = 0 };
	search->fewest.devices[U] = 0;
	for (int u = U - 1; u >= 0; u--) {
		search->u = u;
		search->room = room_for(search, u, time);
		pd_fewest_each(&search->fewest, u, search->room, time);
		search->fewest.devices[u] = search->nodes[u].devices;
	}
	return search->fewest.devices[0] != NONE;
}

/* Makes a partition of what was found for a time. */
static struct pd_partition *walk(const struct line_search *search, int64_t time)
{
	const struct node *nodes = search->found, *node = nodes;
	size_t room = (size_t)node->stages;
	struct pd_partition *partition = pd_zalloc(sizeof(*partition));
	int *ends = pd_calloc(room, sizeof(*ends));

	partition->cost_ns = time;
	partition->replicas = pd_calloc(room, sizeof(int));
	partition->ranks = pd_calloc(room, sizeof(*partition->ranks));
	for (int u = 0; u < search->points->last; u = node->next) {
		int s = partition->stage_count++, rest;

		node = &nodes[u];
		rest = nodes[node->next].devices;
		ends[s] = node->next;
		partition->replicas[s] = node->devices - rest;
		partition->ranks[s] = pd_calloc((size_t)partition->replicas[s], sizeof(int));
		for (int r = 0; r < partition->replicas[s]; r++)
			partition->ranks[s][r] = rest + r;
	}
	pd_points_layers(search->points, ends, partition->stage_count, &partition->layers,
			 &partition->order);
	free(ends);
	return partition;
}

/*
 * Returns a warm-up with which any stage fits: the whole network does, with its parameters once
 * more, and the largest cut for all that crosses bounds.
 */
static int64_t roomy_warmup(const struct pd_line *line)
{
	struct pd_points *points = line->points;
	int64_t cut = 0, bytes[2], each, limit = line->memory_limit_bytes;

	for (int k = 0; line->kinds && k < line->kinds->count; k++)
		if (line->kinds->topology->kind[k].memory_bytes > 0)
			limit = pd_min(limit, line->kinds->topology->kind[k].memory_bytes);
	if (limit == INT64_MAX)
		return INT64_MAX;
	for (int u = 0; u <= points->last; u++)
		cut = pd_max(cut, points->cut_bytes[u]);
	pd_points_set(points, 0);
	for (int w = 0; w < 2; w++)
		bytes[w] = pd_points_memory(points, 0, points->last, 2, w) +
			pd_times(2, points->parameter_bytes[points->last]) + pd_times(8, cut);
	each = pd_plus(bytes[1] - bytes[0] + 1, pd_times(2, cut));
	return bytes[0] > limit ? -1 : (limit - bytes[0]) / each;
}

static struct line_search *search_new(const struct pd_line *line)
{
	struct line_search *search = pd_zalloc(sizeof(*search));

	search->line = line;
	search->points = line->points;
	search->roomy_warmup = roomy_warmup(line);
	search->map = line->map;
	for (int i = 0; i < 2; i++)
		search->of[i] = pd_calloc((size_t)line->points->last + 1, sizeof(*search->nodes));
	search->nodes = search->of[0];
	search->fewest = (struct pd_fewest){
		.points = line->points, .most = line->devices,
		.each = line->straight ? 1 : line->devices,
		.ns = line->points->compute_ns, .look = look, .context = search,
		.effort = line->effort };
	pd_fewest_init(&search->fewest);
	return search;
}

static void search_free(struct line_search *search)
{
	free(search->of[0]);
	free(search->of[1]);
	pd_fewest_release(&search->fewest);
	free(search);
}

/* Tries a time and keeps what it finds, since the next try overwrites the nodes. */
static bool finds(struct line_search *search, int64_t time)
{
	bool found = probe(search, time);

	if (found) {
		search->found = search->nodes;
		search->nodes = search->of[search->nodes == search->of[0]];
	}
	return found;
}

/*
 * Returns a time that is enough: often little above the bound, else the guess, else up to twice as much,
 * and so on up to the most.
 */
static int64_t above(struct line_search *search, int64_t *low_p)
{
	int64_t part = *low_p / LITTLE, high = *low_p + part, most = search->line->most_ns;
	int64_t guess = search->line->guess_ns;

	if (part > 0 && finds(search, high))
		return high;
	if (guess > high && (most == 0 || guess < most) && finds(search, guess))
		return guess;
	if (most > 0 && most < 2 * *low_p)
		return finds(search, most) ? most : PD_COST_MAX;
	for (high = 2 * *low_p; high < PD_COST_MAX && !finds(search, high); high *= 2) {
		if ((most > 0 && high >= most) || pd_effort_spent(search->line->effort))
			return PD_COST_MAX;
		*low_p = high;
	}
	return high;
}

struct pd_partition *pd_line_search(const struct pd_line *line)
{
	struct line_search *search = search_new(line);
	const struct pd_points *points = line->points;
	int64_t low = pd_max(1, pd_max(points->compute_ns[points->last] / line->devices,
				       line->bound_ns));
	int64_t high = above(search, &low);
	struct pd_partition *partition = NULL;

	if (high < PD_COST_MAX) {
		for (int i = 0; i < PROBES && low + low / line->precision < high; i++) {
			int64_t middle = low + (high - low) / 2;

			if (finds(search, middle))
				high = middle;
			else if (pd_effort_spent(line->effort))
				break;
			else
				low = middle + 1;
		}
		partition = walk(search, high);
	}
	search_free(search);
	return partition;
}

struct pd_partition *pd_line_at(const struct pd_line *line, int64_t time)
{
	struct line_search *search = search_new(line);
	struct pd_partition *partition = finds(search, time) ? walk(search, time) : NULL;

	search_free(search);
	return partition;
}
