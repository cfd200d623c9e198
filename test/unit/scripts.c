/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the scripts of all reducers, of 2 to 9 members on several machines, in several orders of ranks, in f32 and
 * with 16 bits on the way: what one member sends another gets; what they touch is what their row lays out;
 * and coarse scripts and the dense reducer's formula say of meetings and traffic what the whole scripts do.
 */
#include "base/mem.h"
#include "engine/reduce/reduce.h"
#include "sums/traffic.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST  9
#define LEVELS 3

static const char *const machines[] = {
	"64@1GB/s+7ns", "4@12GB/s,16@1.25GB/s+30us", "2@30GB/s,4@10GB/s,8@1GB/s+5us", "8@1GB/s+5ms,8@1GB/s",
};
static const size_t lengths[] = { 1, 90, 3001, 300000, 9000001 };

/* A sum, and what all its members do. */
struct sum {
	struct pd_topology topology;
	int ranks[MOST];
	struct pd_members members;
	const struct pd_reducer *reducer;
	int64_t bytes;
	struct pd_script scripts[MOST];
	int wrong;
};

static void write_all(struct sum *sum, bool one_at_a_time)
{
	for (int m = 0; m < sum->members.count; m++) {
		sum->scripts[m] = (struct pd_script){ .floats = (size_t)sum->bytes / sizeof(float),
						      .dtype = sum->members.dtype,
						      .one_at_a_time = one_at_a_time };
		sum->reducer->write(&sum->members, m, &sum->scripts[m]);
	}
}

static void release_all(struct sum *sum)
{
	for (int m = 0; m < sum->members.count; m++)
		pd_script_release(&sum->scripts[m]);
}

static int64_t sent_bytes(const struct pd_script *s, const struct pd_script_transfer *t)
{
	return (int64_t)(t->floats * pd_script_width(s, t->at.place));
}

/* Returns how many transfers of a member's are the other end of this one of `from`. */
static int ends_of(const struct sum *sum, int from, const struct pd_script_transfer *t)
{
	const struct pd_script *other = &sum->scripts[t->peer];
	int found = 0;

	for (size_t i = 0; i < other->transfer_count; i++) {
		const struct pd_script_transfer *end = &other->transfers[i];

		found += end->peer == from && end->send != t->send && end->tag == t->tag &&
			 sent_bytes(other, end) == sent_bytes(&sum->scripts[from], t);
	}
	return found;
}

static void check_ends(struct sum *sum)
{
	for (int m = 0; m < sum->members.count; m++)
		for (size_t i = 0; i < sum->scripts[m].transfer_count; i++) {
			const struct pd_script_transfer *t = &sum->scripts[m].transfers[i];

			sum->wrong += t->peer == m || t->tag < 0 || t->tag >= (int)PD_REDUCTION_TAGS ||
				      (t->floats > 0 && ends_of(sum, m, t) != 1);
		}
}

/* Everything that is waited for is something that a transfer or a sum completes. */
static void check_events(struct sum *sum)
{
	for (int m = 0; m < sum->members.count; m++) {
		const struct pd_script *s = &sum->scripts[m];
		bool *made = pd_calloc(s->event_count, sizeof(*made));

		for (size_t i = 0; i < s->transfer_count; i++)
			made[s->transfers[i].ev] = true;
		for (size_t i = 0; i < s->step_count; i++)
			if (s->steps[i].adds && s->steps[i].ev >= 0)
				made[s->steps[i].ev] = true;
		for (size_t i = 0; i < s->transfer_count; i++)
			sum->wrong += s->transfers[i].floats > 0 && s->transfers[i].after >= 0 &&
				      !made[s->transfers[i].after];
		for (size_t i = 0; i < s->step_count; i++)
			sum->wrong += s->steps[i].n > PD_SCRIPT_SOURCES;
		free(made);
	}
}

static void touch(const struct pd_script *s, struct pd_script_at at, size_t floats, size_t *most_p)
{
	bool staged = at.place == PD_SCRIPT_STAGED || at.place == PD_SCRIPT_STAGED_NARROW;
	size_t end = (at.at + floats) * pd_script_width(s, at.place);

	if (staged && floats > 0 && end > *most_p)
		*most_p = end;
}

/* Returns the staging that a member touches, with what the buffer is rounded to. */
static int64_t touched_bytes(const struct pd_script *s)
{
	size_t most = 0;

	for (size_t i = 0; i < s->transfer_count; i++)
		touch(s, s->transfers[i].at, s->transfers[i].floats, &most);
	for (size_t i = 0; i < s->step_count; i++) {
		touch(s, s->steps[i].to, s->steps[i].floats, &most);
		for (int k = 0; k < s->steps[i].n; k++)
			touch(s, s->sources[s->steps[i].first + (size_t)k], s->steps[i].floats, &most);
	}
	return (int64_t)(most + (pd_script_narrows(s) ? s->floats * sizeof(uint16_t) : 0));
}

/*
 * The row lays out what the member with the most touches.  A dense one's pieces are all as long as the
 * longest; in 16 bits a hierarchical one's slots are as wide as if each got parts of sums; what is left to the
 * transport has none.
 */
static void check_staging(struct sum *sum, enum pd_reducer_kind kind)
{
	int64_t says = sum->reducer->staging_bytes(&sum->members, sum->bytes), most = 0, spare = 0;

	for (int m = 0; m < sum->members.count; m++)
		most = touched_bytes(&sum->scripts[m]) > most ? touched_bytes(&sum->scripts[m]) : most;
	if (sum->reducer->traffic)
		spare = sum->bytes / 200 + 64 * 2 * MOST * MOST;
	if (kind == PD_REDUCER_hierarchical && sum->members.dtype != PD_F32)
		spare = (says - sum->bytes / 2) / 2;
	if (sum->reducer->of_transport)
		sum->wrong += says != 0;
	else
		sum->wrong += most > says || most + spare < says;
}

static void check_meets(struct sum *sum, enum pd_reducer_kind kind)
{
	for (int me = 0; me < sum->members.count; me++) {
		bool met[MOST] = { false }, says[MOST] = { false };

		for (size_t i = 0; i < sum->scripts[me].transfer_count; i++)
			met[sum->scripts[me].transfers[i].peer] = true;
		for (int i = 0; i < sum->members.count && sum->reducer->of_transport; i++)
			met[i] = i != me;
		pd_reducer_meets(kind, &sum->members, me, sum->bytes, says);
		sum->wrong += memcmp(met, says, sizeof(met)) != 0;
	}
}

/* Each piece begins at a cache line: a transfer may be so much longer or shorter than the others. */
static void check_traffic(struct sum *sum, enum pd_reducer_kind kind)
{
	struct pd_traffic said[MOST * LEVELS], sent[MOST * LEVELS] = { { 0, 0 } };
	int levels = sum->topology.levels;
	double slack[MOST] = { 0 };

	for (int m = 0; m < sum->members.count; m++)
		for (size_t i = 0; i < sum->scripts[m].transfer_count; i++) {
			const struct pd_script_transfer *t = &sum->scripts[m].transfers[i];
			int level = pd_topology_level(&sum->topology, sum->ranks[m], sum->ranks[t->peer]);
			double bytes = (double)sent_bytes(&sum->scripts[m], t);

			slack[m] += 64 * (t->messages > 0 ? t->messages : 1);
			for (int k = 0; k <= level; k++)
				*(t->send ? &sent[m * levels + k].sent_bytes : &sent[m * levels + k].got_bytes) += bytes;
		}
	pd_traffic_of(kind, &sum->members, sum->bytes, said);
	for (int i = 0; i < sum->members.count * levels; i++)
		sum->wrong += fabs(said[i].sent_bytes - sent[i].sent_bytes) > slack[i / levels] ||
			      fabs(said[i].got_bytes - sent[i].got_bytes) > slack[i / levels];
}

static int rank_of(int order, int n, int i)
{
	return order == 0 ? i : order == 1 ? n - 1 - i : (i * 7 + 3) % 64;
}

/* Returns whether all is right of one reducer with one length on one machine. */
static bool try(enum pd_reducer_kind kind, const char *machine, int order, int n, enum pd_dtype dtype, size_t floats)
{
	struct sum sum = { .reducer = pd_reducers[kind], .bytes = (int64_t)(floats * sizeof(float)) };
	struct pd_error err;

	pd_topology_parse_string(machine, &sum.topology, &err);
	for (int i = 0; i < n; i++)
		sum.ranks[i] = rank_of(order, n, i);
	sum.members = (struct pd_members){ &sum.topology, sum.ranks, n, dtype };
	for (int one = 0; one < 2; one++) {
		write_all(&sum, one);
		check_ends(&sum);
		check_events(&sum);
		check_staging(&sum, kind);
		check_meets(&sum, kind);
		check_traffic(&sum, kind);
		release_all(&sum);
	}
	if (sum.wrong > 0)
		diag("%s, %s, order %d, %d members, %s, %zu floats", pd_reducer_kind_name[kind], machine, order, n,
		     pd_dtype_name[dtype], floats);
	return sum.wrong == 0;
}

static void test_kind(enum pd_reducer_kind kind, enum pd_dtype dtype)
{
	int bad = 0, step = test_quick() ? 3 : 1;

	for (size_t t = 0; t < PD_COUNT(machines); t++)
		for (int order = 0; order < 3; order++)
			for (int n = 2; n <= MOST; n += step)
				for (size_t l = 0; l < PD_COUNT(lengths); l++)
					bad += !try(kind, machines[t], order, n, dtype, lengths[l]);
	is_int(bad, 0, "%s, %s: scripts, and what is said of them", pd_reducer_kind_name[kind], pd_dtype_name[dtype]);
}

int main(void)
{
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		test_kind((enum pd_reducer_kind)kind, PD_F32);
		if (!pd_reducers[kind]->of_transport)
			test_kind((enum pd_reducer_kind)kind, PD_BF16);
	}
	return done_testing();
}
