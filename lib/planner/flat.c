/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans for devices in a row, from the last stage to the first.
 *
 *     A(u, M) = min over u < v <= U, 1 <= m <= M of
 *               max( T([u, v), m, M),  A(v, M - m) ),      A(U, 0) = 0
 *
 * is the least time of a plan that gives the units from u on to exactly M devices; m are
 * the replicas of its first stage.  The recurrence of SOSP 2019 (sosp19.c) on one level is
 * the same minimum taken from the other end.  This end is better: M is the number of
 * ranks of the stage and of all later ones, so the stage's warm-up, ceil(M / m) - 1, and
 * with it the bytes that a rank holds are known exactly inside the search.
 *
 * Every cost model charges at least compute / m to a stage on m devices.  So with a plan
 * of time t in hand only those v matter for which [u, v) can be computed in less than t on
 * m devices and [v, U) on M - m; the prefix sums are sorted, two bisections find them, and
 * near the optimum few are left.
 */
#include "planner/search.h"

#include "base/mem.h"

#include <stdlib.h>

struct table {
	int devices;
	int64_t *value;                 /* [u][M] */
};

static struct table table_new(const struct pd_flat *flat)
{
	size_t width = (size_t)flat->devices + 1, rows = (size_t)flat->costs->unit_count + 1;
	struct table t = { flat->devices, pd_calloc(rows, width * sizeof(*t.value)) };

	for (size_t i = 0; i < rows * width; i++)
		t.value[i] = PD_NEVER;
	t.value[(rows - 1) * width] = 0;
	return t;
}

static int64_t *cell(const struct table *t, int u, int M)
{
	return &t->value[(size_t)u * ((size_t)t->devices + 1) + (size_t)M];
}

void pd_layout_free(struct pd_layout *layout)
{
	if (!layout)
		return;
	for (int s = 0; layout->ranks && s < layout->stage_count; s++)
		free(layout->ranks[s]);
	free(layout->ranks);
	free(layout->layers);
	free(layout->replicas);
	free(layout);
}

/* The first v >= low with compute_ns[v] >= at. */
static int first_at(const struct pd_costs *costs, int low, int64_t at)
{
	int high = costs->unit_count + 1;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (costs->compute_ns[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * The cuts v, low <= v <= high, for which both sides can take at most `time`: what is
 * computed before v on m devices and after it on rest.
 */
static void cuts(const struct pd_costs *costs, int u, int m, int rest, int64_t time,
		 int *low_p, int *high_p)
{
	int U = costs->unit_count;
	int64_t begin = costs->compute_ns[u], end = costs->compute_ns[U], room;

	if (!rest) {
		*low_p = *high_p = U;
		return;
	}
	*low_p = u + 1;
	*high_p = U - 1;
	if (pd_mul(time, rest, &room) && room < end - begin)
		*low_p = first_at(costs, u + 1, end - room);
	if (pd_mul(time, m, &room) && room < end - begin) {
		int past = first_at(costs, u + 1, begin + room + 1);

		if (past - 1 < *high_p)
			*high_p = past - 1;
	}
}

static bool fits(struct pd_row *row, int v, int m, int M)
{
	int64_t limit = row->costs->memory_limit_bytes;

	return limit == INT64_MAX || pd_row_memory(row, v, m, (M + m - 1) / m - 1) <= limit;
}

static void works(const struct pd_row *row, const struct pd_level *link, struct pd_work *work)
{
	for (int v = row->unit + 1; v <= row->costs->unit_count; v++)
		pd_row_work(row, v, link, &work[v]);
}

/* A(u, M) for one u and all M; after this stage come plans of `next` (which may be `to`). */
static void fill_row(const struct pd_flat *flat, struct pd_row *row, const struct pd_work *work,
		     const struct table *next, struct table *to)
{
	const struct pd_costs *costs = flat->costs;
	int u = row->unit;

	for (int M = 1; M <= flat->devices; M++) {
		int64_t best = PD_NEVER;

		/* all devices first: one stage gives a time to beat */
		for (int m = flat->straight ? 1 : M; m >= 1; m--) {
			int low, high;

			cuts(costs, u, m, M - m, best - 1, &low, &high);
			for (int v = low; v <= high; v++) {
				int64_t time = *cell(next, v, M - m);

				if (time >= best)
					continue;
				time = pd_max64(time, pd_work_ns(costs->kind, &work[v],
								 &flat->link, m));
				if (time < best && fits(row, v, m, M))
					best = time;
			}
		}
		*cell(to, u, M) = best;
	}
}

static void fill(const struct pd_flat *flat, const struct table *next, struct table *to)
{
	int U = flat->costs->unit_count;
	struct pd_work *work = pd_calloc((size_t)U + 1, sizeof(*work));
	struct pd_row row;

	pd_row_init(&row, flat->costs);
	for (int u = U - 1; u >= 0; u--) {
		pd_row_set(&row, u);
		works(&row, &flat->link, work);
		fill_row(flat, &row, work, next, to);
	}
	pd_row_release(&row);
	free(work);
}

/*
 * Among the plans whose stages all take at most `time`, on exactly M devices: the one with
 * the fewest stages; of those the least bytes at the fullest rank; of those the first by
 * (layers, replicas) from the first stage on.
 */
struct tidy {
	const struct pd_flat *flat;
	int64_t time;
	int devices;
	struct table stages, bytes;
	struct pd_row row;
	struct pd_work *work;
};

static bool edge(struct tidy *tidy, int v, int m, int M, int64_t *bytes_p)
{
	const struct pd_costs *costs = tidy->flat->costs;

	if (pd_work_ns(costs->kind, &tidy->work[v], &tidy->flat->link, m) > tidy->time)
		return false;
	*bytes_p = pd_row_memory(&tidy->row, v, m, (M + m - 1) / m - 1);
	return *bytes_p <= costs->memory_limit_bytes;
}

static void tidy_cell(struct tidy *tidy, int M)
{
	const struct pd_flat *flat = tidy->flat;
	int64_t most = PD_NEVER, bytes = PD_NEVER, here;
	int u = tidy->row.unit;

	for (int m = flat->straight ? 1 : M; m >= 1; m--) {
		int low, high;

		cuts(flat->costs, u, m, M - m, tidy->time, &low, &high);
		for (int v = low; v <= high; v++) {
			int64_t after = *cell(&tidy->stages, v, M - m);

			if (after >= most || !edge(tidy, v, m, M, &here))
				continue;
			here = pd_max64(here, *cell(&tidy->bytes, v, M - m));
			if (after + 1 == most && here >= bytes)
				continue;
			most = after + 1;
			bytes = here;
		}
	}
	*cell(&tidy->stages, u, M) = most;
	*cell(&tidy->bytes, u, M) = bytes;
}

static void tidy_set(struct tidy *tidy, int u)
{
	pd_row_set(&tidy->row, u);
	works(&tidy->row, &tidy->flat->link, tidy->work);
}

/* The first stage of what begins at u on M devices: its end and replicas. */
static void tidy_choice(struct tidy *tidy, int u, int M, int64_t limit, int *v_p, int *m_p)
{
	int U = tidy->flat->costs->unit_count;
	int64_t stages = *cell(&tidy->stages, u, M), here;

	tidy_set(tidy, u);
	for (int v = u + 1; v <= U; v++)
		for (int m = 1; m <= (tidy->flat->straight ? 1 : M); m++)
			if (*cell(&tidy->stages, v, M - m) == stages - 1 &&
			    *cell(&tidy->bytes, v, M - m) <= limit &&
			    edge(tidy, v, m, M, &here) && here <= limit) {
				*v_p = v;
				*m_p = m;
				return;
			}
	pd_bug("planner: a table has no plan from unit %d on %d devices", u, M);
}

static struct pd_layout *tidy_walk(struct tidy *tidy)
{
	const struct pd_costs *costs = tidy->flat->costs;
	struct pd_layout *layout = pd_zalloc(sizeof(*layout));
	int64_t limit = *cell(&tidy->bytes, 0, tidy->devices);
	size_t stages = (size_t)*cell(&tidy->stages, 0, tidy->devices);
	int M = tidy->devices;

	layout->layers = pd_calloc(stages, sizeof(*layout->layers));
	layout->replicas = pd_calloc(stages, sizeof(*layout->replicas));
	for (int u = 0; u < costs->unit_count; ) {
		int v, m;

		tidy_choice(tidy, u, M, limit, &v, &m);
		layout->layers[layout->stage_count] = costs->first[v] - costs->first[u];
		layout->replicas[layout->stage_count++] = m;
		M -= m;
		u = v;
	}
	return layout;
}

static struct pd_layout *tidy_plan(const struct pd_flat *flat, int64_t time, int devices)
{
	struct pd_flat narrow = *flat;
	struct pd_layout *layout;
	struct tidy tidy = { .flat = &narrow, .time = time, .devices = devices };

	narrow.devices = devices;
	tidy.stages = table_new(&narrow);
	tidy.bytes = table_new(&narrow);
	tidy.work = pd_calloc((size_t)flat->costs->unit_count + 1, sizeof(*tidy.work));
	pd_row_init(&tidy.row, flat->costs);
	for (int u = flat->costs->unit_count - 1; u >= 0; u--) {
		tidy_set(&tidy, u);
		for (int M = 1; M <= devices; M++)
			tidy_cell(&tidy, M);
	}
	layout = tidy_walk(&tidy);
	layout->cost_ns = time;
	pd_row_release(&tidy.row);
	free(tidy.work);
	free(tidy.stages.value);
	free(tidy.bytes.value);
	return layout;
}

/* The least value of A(0, M), and the least M that has it. */
static int64_t least(const struct table *t, int *devices_p)
{
	int64_t best = PD_NEVER;

	*devices_p = 0;
	for (int M = 1; M <= t->devices; M++)
		if (*cell(t, 0, M) < best) {
			best = *cell(t, 0, M);
			*devices_p = M;
		}
	return best;
}

static struct pd_layout *best_of(const struct pd_flat *flat, const struct table *t)
{
	int devices;
	int64_t time = least(t, &devices);

	return time == PD_NEVER ? NULL : tidy_plan(flat, time, devices);
}

void pd_flat_search(const struct pd_flat *flat, int most, struct pd_layout **out)
{
	struct table any = table_new(flat), before = table_new(flat);

	fill(flat, &any, &any);
	out[0] = best_of(flat, &any);
	free(any.value);
	for (int s = 1; s <= most; s++) {
		struct table now = table_new(flat);

		*cell(&now, flat->costs->unit_count, 0) = PD_NEVER;
		fill(flat, &before, &now);
		out[s] = best_of(flat, &now);
		free(before.value);
		before = now;
	}
	free(before.value);
}

int64_t pd_flat_time(const struct pd_flat *flat)
{
	struct table any = table_new(flat);
	int devices;
	int64_t time;

	fill(flat, &any, &any);
	time = least(&any, &devices);
	free(any.value);
	return time;
}

struct pd_layout *pd_flat_least_memory(const struct pd_flat *flat, int64_t *bytes_p)
{
	struct pd_costs costs = *flat->costs;
	struct pd_flat free_flat = *flat;
	struct table t = table_new(flat);
	struct pd_layout *layout;
	struct pd_row row;
	int devices;

	pd_row_init(&row, flat->costs);
	for (int u = costs.unit_count - 1; u >= 0; u--) {
		pd_row_set(&row, u);
		for (int M = 1; M <= flat->devices; M++)
			for (int m = 1; m <= (flat->straight ? 1 : M); m++)
				for (int v = u + 1; v <= costs.unit_count; v++) {
					int64_t bytes = *cell(&t, v, M - m);

					if (bytes >= *cell(&t, u, M))
						continue;
					bytes = pd_max64(bytes, pd_row_memory(&row, v, m,
									      (M + m - 1) / m - 1));
					if (bytes < *cell(&t, u, M))
						*cell(&t, u, M) = bytes;
				}
	}
	pd_row_release(&row);
	*bytes_p = costs.memory_limit_bytes = least(&t, &devices);
	free_flat.costs = &costs;
	layout = tidy_plan(&free_flat, PD_NEVER - 1, devices);
	free(t.value);
	return layout;
}
