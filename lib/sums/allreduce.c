/* SPDX-License-Identifier: Apache-2.0 */
#include "sums/allreduce.h"

#include "base/buffer_pieces.h"
#include "base/mem.h"

#include <math.h>

/*
 * What a message costs its sender, whatever its length, in bytes of the slowest link on its way: 2 us at
 * 10 Gbit/s.  It limits how short pieces may be.  (As a time it would cut the same sum otherwise on links and
 * processors that are all so many times as fast.)
 */
#define MESSAGE_BYTES 2500.0
#define MOST_MESSAGES 128       /* messages of a member each way, in a grouped all-reduce */
#define FEW_MESSAGES 48         /* the same among few members, where more would gain little */
#define LARGEST_GROUP 64

/* The way between two members whose components part at one level. */
struct crossing {
	double ns;                      /* the whole buffer's, over the slowest link */
	double latency_ns;
	int64_t runs, outer;            /* components with members, below the level and above */
	double most;                    /* of a (n - a), where a component has a members */
};

struct crossings {
	int n, count;
	struct crossing at[PD_MAX_LEVELS];
	int64_t lines;                  /* cache lines of the buffer; there are no more pieces */
	double message_ns;              /* what a message costs */
};

/* Returns a single group of all members, whose shares are cut into parts where they are long. */
static struct pd_allreduce single_group(int members, int64_t bytes)
{
	int parts = pd_piece_parts((size_t)bytes / sizeof(float), members);
	int most = members > 1 ? FEW_MESSAGES / (members - 1) : 1;

	parts = parts < most ? parts : most > 1 ? most : 1;
	return (struct pd_allreduce){ members, 1, members * parts };
}

/*
 * The components that some ranks are in, and the largest a (n - a), where one component has a
 * ranks.
 */
struct spread {
	int64_t runs;
	double most;
};

static double pairs_of(int64_t a, int64_t n)
{
	return (double)a * (double)(n - a);
}

static struct spread spread_of(const int *ranks, int n, int64_t size)
{
	struct spread spread = { 0, 0 };

	for (int i = 1, first = 0; i <= n; i++)
		if (i == n || ranks[i] / size != ranks[first] / size) {
			double pairs = pairs_of(i - first, n);

			spread.most = pairs > spread.most ? pairs : spread.most;
			spread.runs++;
			first = i;
		}
	return spread;
}

/*
 * Spreads n consecutive ranks.  If there is a component between the first and the last, it has the
 * most ranks; otherwise the first has as many as the last.
 */
static struct spread spread_of_line(int64_t first, int64_t n, int64_t size)
{
	int64_t runs = (first + n - 1) / size - first / size + 1;
	int64_t most = runs > 2 ? size : runs > 1 ? size - first % size : n;

	return (struct spread){ runs, pairs_of(most, n) };
}

/* Measures the ways between ranks; ranks is NULL if they are consecutive. */
static void measure(const struct pd_topology *topology, const int *ranks, int64_t first, int n,
		    int64_t bytes, struct crossings *crossings)
{
	struct spread here = spread_of_line(0, n, 1), outer;
	int64_t size = 1;
	double slowest = 0;

	*crossings = (struct crossings){ .n = n, .lines = bytes / 4 / PD_PIECE_ALIGN };
	for (int k = 0; k < topology->levels && here.runs > 1; k++) {
		const struct pd_level *level = &topology->level[k];
		double own = 1e9 / (double)level->bandwidth_bytes_per_s;

		slowest = fmax(slowest, own);
		size *= level->count;
		outer = ranks ? spread_of(ranks, n, size) : spread_of_line(first, n, size);
		crossings->at[crossings->count++] = (struct crossing){
			slowest * (double)bytes, (double)level->latency_ns, here.runs, outer.runs, here.most,
		};
		here = outer;
	}
	crossings->message_ns = slowest * MESSAGE_BYTES;
}

/*
 * Returns the time of an exchange among all: a component with a members sends 2 a (n - a) / n of
 * the buffer.
 */
static double direct_ns(const struct crossings *c)
{
	double most = 0;

	for (int k = 0; k < c->count; k++)
		most = fmax(most, 2 * c->at[k].most / c->n * c->at[k].ns);
	return most + 2 * (c->at[c->count - 1].latency_ns + c->message_ns * (c->n - 1));
}

/*
 * Groups of `size` members.  Where components have S each, a group inside of one or of several
 * whole ones puts nothing on their links, or 2 S (a - S) / a of the buffer; others are cut, two at
 * each component, in halves for all we know.  The chain's part, before and after which that takes
 * place, is what S, at most a, owners send there and back; between two others they do both on the
 * same way.  Pieces: as many as make up for what each message costs.
 */
static double grouped_ns(const struct crossings *c, int size, struct pd_allreduce *how_p)
{
	int groups = (c->n + size - 1) / size, owned, room;
	int messages = c->n > PD_ALLREDUCE_FEW ? MOST_MESSAGES : FEW_MESSAGES;
	double a = (c->n + groups - 1) / groups;
	double exchange = 0, chain = 0, fill = 0, steps = 0, inside = 0;

	for (int k = 0; k < c->count; k++) {
		const struct crossing *at = &c->at[k];
		double S = (double)((c->n + at->runs - 1) / at->runs);
		bool fits = S <= 1 || (c->n % at->runs == 0 && c->n % groups == 0 &&
				       (a < S ? fmod(S, a) : fmod(a, S)) == 0);
		double cross = fmin(1, S / a);
		double load = !fits ? a / 2 * fmin(2, S / a + 1)
			    : S < a ? 2 * S * (a - S) / a : 0;
		int64_t bounds = (at->runs < groups ? at->runs : groups) -
				 (at->outer < groups ? at->outer : groups);

		exchange = fmax(exchange, load * at->ns);
		chain = fmax(chain, cross * (at->runs > 2 && groups > 2 ? 2 : 1) * at->ns);
		fill += 2.0 * (double)bounds * cross * at->ns;
		steps += 2.0 * (double)bounds * (at->latency_ns + c->message_ns);
		if (S < a)
			inside = 2 * at->latency_ns;
	}
	room = messages + 1 - (int)a;
	owned = (int)fmin(fmin(sqrt(fill / (2 * c->message_ns)), room), (double)c->lines / a);
	owned = owned > 1 ? owned : 1;
	*how_p = (struct pd_allreduce){ c->n, groups, owned * (int)a };
	return exchange + chain + fill / owned + steps + inside +
		2 * c->message_ns * (a - 1 + owned);
}

/* Tries groups of one and more: as many members as a component has, or a power of two. */
static double best_grouped_ns(const struct crossings *c, struct pd_allreduce *how_p)
{
	struct pd_allreduce how;
	double best_ns = INFINITY;
	int64_t size;

	for (int k = 0; k < 2 * PD_MAX_LEVELS; k++) {
		double ns;

		if (k < PD_MAX_LEVELS)
			size = (int64_t)1 << k;
		else if (k - PD_MAX_LEVELS < c->count)
			size = c->n / c->at[k - PD_MAX_LEVELS].runs;
		else
			break;
		if (size > LARGEST_GROUP || size >= c->n)
			continue;
		ns = grouped_ns(c, (int)size, &how);
		if (ns < best_ns) {
			best_ns = ns;
			*how_p = how;
		}
	}
	return best_ns;
}

static bool ascend(const int *ranks, int n)
{
	for (int i = 1; i < n; i++)
		if (ranks[i] <= ranks[i - 1])
			return false;
	return true;
}

double pd_allreduce_expect(const struct pd_topology *topology, const int *ranks, int n, int64_t bytes,
			   struct pd_allreduce *how_p)
{
	struct pd_allreduce grouped = { 0 };
	struct crossings crossings;
	bool one = topology->levels == 1;
	double ns;

	*how_p = single_group(n, bytes);
	if (n < 3 || (!one && !ascend(ranks, n)))
		return 0;
	measure(topology, one || ranks[n - 1] - ranks[0] == n - 1 ? NULL : ranks, one ? 0 : ranks[0],
		n, bytes, &crossings);
	if (n <= PD_ALLREDUCE_FEW && crossings.count == 1)
		return 0;
	ns = best_grouped_ns(&crossings, &grouped);
	if (ns >= direct_ns(&crossings) && n <= MOST_MESSAGES)
		return 0;
	*how_p = grouped;
	return fmax(0, ns - 2 * crossings.message_ns *
		    ((n + grouped.groups - 1) / grouped.groups - 1 + grouped.pieces / (n / grouped.groups)));
}

struct pd_allreduce pd_allreduce_choose(const struct pd_topology *topology, const int *ranks, int n,
					int64_t bytes)
{
	struct pd_allreduce how;

	pd_allreduce_expect(topology, ranks, n, bytes, &how);
	return how;
}

int64_t pd_allreduce_staging_bytes(const struct pd_allreduce *how, int64_t bytes,
				   enum pd_dtype dtype)
{
	int64_t piece = (int64_t)pd_piece_most((size_t)bytes / sizeof(float), how->pieces);
	int64_t each = (int64_t)pd_dtype_bytes(dtype), most = 0;

	/* Groups have one of two sizes. */
	for (int up = 0; up < 2; up++) {
		int size = (how->members + up * (how->groups - 1)) / how->groups;
		int owned = (how->pieces + size - 1) / size;
		/*
		 * pieces of its own that come from the group before; the last one takes the place
		 * of the first
		 */
		int before = how->groups == 1 ? 0 : owned > 1 ? owned - 1 : 1;
		int64_t here = (int64_t)(size - 1) * owned * each +
			       before * (int64_t)sizeof(float);

		most = here > most ? here : most;
	}
	return pd_plus(pd_times(most, piece), dtype == PD_F32 ? 0 : bytes / 2);
}
