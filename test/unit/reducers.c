/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests all-reduces of up to 33 members, in every number of groups, in one process: their bits, the bytes
 * they keep, and that they end although transfers take place one by one (shuffled.h), in f32 and with
 * 16 bits on the way.  Then tests the reducers' rows: bytes, who sends to whom, and costs.
 */
#include "base/buffer_pieces.h"
#include "base/mem.h"
#include "engine/reduce/queue.h"
#include "shuffled.h"
#include "sums/allreduce.h"
#include "sums/direct.h"
#include "sums/traffic.h"
#include "tap.h"
#include "unit/dense_open.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns numbers whose sums depend on their order. */
static float value(int member, size_t i)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(member * 40503 + 1);

	x ^= x >> 15;
	x *= 0x2c1b3c6d;
	x ^= x >> 12;
	return ((float)(x & 0xffffff) - 8388608.0f) * (float)(1 << x % 24);
}

/* The rounding of gradients that are sent; f16 has a scale, so that sums are not infinite. */
static struct pd_rounding rounding = { PD_F32, 1, false };

static float rounded(float x)
{
	return rounding.dtype == PD_F32 ? x : widen(&rounding, narrow(&rounding, x));
}

struct all {
	struct pd_device device;
	struct end ends[MEMBERS];
	struct stream streams[MEMBERS];
	struct pd_reduction *c[MEMBERS];
	struct pd_event ready[MEMBERS], done[MEMBERS];
	bool over[MEMBERS];
	float *buf[MEMBERS];
	int ranks[MEMBERS];
};

static bool move(struct all *all, int n)
{
	bool moved = deliver();

	for (int k = 0, m = (int)any((unsigned)n); k < n; k++, m = (m + 1) % n) {
		moved |= all->c[m]->ops->progress(all->c[m], PD_REDUCTION_ALL) > 0;
		moved |= any(3) > 0 && work(&all->streams[m]);
		if (!pd_event_done(&all->ready[m]) && any(40) == 0) {
			complete(&all->ready[m], -1);
			moved = true;
		}
	}
	return moved;
}

static void add_up(float *right, int n, size_t floats)
{
	for (size_t i = 0; i < floats; i++) {
		right[i] = rounded(value(0, i));
		for (int m = 1; m < n; m++)
			right[i] += rounded(value(m, i));
		right[i] = rounded(right[i]);
	}
}

static void begin(struct all *all, int n, size_t floats)
{
	for (int m = 0; m < n; m++) {
		pd_event_arm(&all->ready[m]);
		pd_event_arm(&all->done[m]);
		all->over[m] = false;
		post.first[m] = 0;
		for (size_t i = 0; i < floats; i++)
			all->buf[m][i] = value(m, i);
		all->buf[m][floats] = 42;
		if (all->c[m]->ops->start(all->c[m], all->buf[m], 1000, &all->ready[m],
					&all->done[m]) < 0)
			post.wrong++;
	}
}

/* Sums among members that begin at random times; a member that is done has the sum, and its buffer is
 * overwritten at once. */
static bool reduce(struct all *all, int n, const float *right, size_t floats)
{
	int idle = 0, done = 0;

	begin(all, n, floats);
	while (done < n && idle < 2000) {
		idle = move(all, n) ? 0 : idle + 1;
		for (int m = 0; m < n; m++) {
			if (all->over[m] || !pd_event_done(&all->done[m]))
				continue;
			all->over[m] = true;
			done++;
			post.wrong += memcmp(all->buf[m], right, floats * sizeof(float)) != 0 ||
				      all->buf[m][floats] != 42 ||
				      all->c[m]->ops->started_ns(all->c[m]) != post.first[m];
			memset(all->buf[m], 0xff, floats * sizeof(float));
		}
	}
	return done == n && post.count == 0 && post.wrong == 0;
}

static bool try(int n, int groups, int pieces, size_t floats)
{
	struct pd_allreduce how = { n, groups, pieces };
	struct all all = { .device.ops = &shuffled_device };
	size_t staging = (size_t)pd_allreduce_staging_bytes(&how, (int64_t)(floats * sizeof(float)),
							    rounding.dtype);
	float *right = pd_calloc(floats, sizeof(*right));
	bool good = true;
	struct pd_error err;

	add_up(right, n, floats);
	for (int m = 0; m < n; m++) {
		all.ends[m] = (struct end){ { &shuffled_transport }, m };
		all.streams[m].base.device = &all.device;
		all.streams[m].member = m;
		all.ranks[m] = m;
		all.buf[m] = pd_calloc(floats + 1, sizeof(float));
		allocated = 0;
		all.c[m] = dense_open(&(struct pd_reduction_config){
			.transport = &all.ends[m].base, .device = &all.device, .stream = &all.streams[m].base,
			.ranks = all.ranks, .me = m, .floats = floats, .rounding = rounding }, &how,
			&err);
		good = good && allocated == staging &&
			allocated == all.c[m]->ops->staging_bytes(all.c[m]);
	}
	for (int round = 0; round < 2 && good; round++)
		good = reduce(&all, n, right, floats);
	for (int m = 0; m < n; m++) {
		all.c[m]->ops->close(all.c[m]);
		free(all.buf[m]);
	}
	free(right);
	if (!good)
		diag("%d members, %d groups, %d pieces, %zu floats", n, groups, pieces, floats);
	post.count = post.wrong = 0;
	return good;
}

static void test_bits(void)
{
	static const size_t lengths[] = { 1, 90, 1000, 3001 };

	for (int n = 2; n <= MEMBERS; n += test_quick() ? 9 : rounding.dtype == PD_F32 ? 1 : 5) {
		int bad = 0, tried = 0;

		for (int groups = 1; groups <= n; groups += 1 + (n > 16 && groups > 3) * 2) {
			int size = (n + groups - 1) / groups;

			bad += !try(n, groups, size, lengths[tried++ % 4]);
			bad += !try(n, groups, 2 * size, lengths[tried++ % 4]);
			bad += !try(n, groups, 3 * size + 2, lengths[tried++ % 4]);
		}
		bad += !try(n, n, n, 1000);
		is_int(bad, 0, "%s: %d members, 1 to %d groups, %d ways",
		       pd_dtype_name[rounding.dtype], n, n, tried + 1);
	}
}

/* ---- several buckets at once, on one stream of each member ---- */

#define BUCKETS 5
#define LAST 2          /* the last bucket of a stage; the other stage's backward is behind the update */

struct buckets {
	struct pd_reduction_queue queue;
	struct pd_reduction *r[BUCKETS];
	struct pd_event ready[BUCKETS], done[BUCKETS];
	float *buf[BUCKETS], *staging[BUCKETS];         /* of what is the transport's, which has its own */
	int started;
};

/* The factor at which buckets are so long that a ring of a few members cuts them into parts. */
#define LONG 301
static size_t times = 1;

static size_t bucket_floats(int bucket)
{
	static const size_t floats[BUCKETS] = { 1000, 1, 333, 90, 2048 };

	return times * floats[bucket];
}

/* Returns a topology of hosts of four ranks. */
static const struct pd_topology *hosts(void)
{
	static struct pd_topology topology;
	struct pd_error err;

	pd_topology_parse_string("4@12GB/s,9@1.25GB/s", &topology, &err);
	return &topology;
}

static void open_buckets(struct all *all, struct buckets *at, int m, enum pd_reducer_kind kind,
			 const struct pd_allreduce *how)
{
	struct pd_error err;

	for (int b = 0; b < BUCKETS; b++) {
		struct pd_reduction_config config = {
			.transport = &all->ends[m].base, .device = &all->device,
			.stream = &all->streams[m].base, .ranks = all->ranks, .members = how->members,
			.topology = hosts(), .me = m, .floats = bucket_floats(b), .rounding = rounding };

		if (pd_reducers[kind]->of_transport)
			config.staging = at->staging[b] = pd_calloc(2 * bucket_floats(b) + 2 * PD_PIECE_ALIGN,
								    sizeof(float));
		at->r[b] = kind == PD_REDUCER_dense ? dense_open(&config, how, &err)
						    : pd_reduction_open(kind, &config, &err);
		at->buf[b] = pd_calloc(bucket_floats(b), sizeof(float));
	}
}

/* Starts the sum of the next bucket; the list has the sums in this order at every member. */
static bool start_next(struct buckets *at, int m)
{
	int b = at->started;

	if (b == BUCKETS || any(9) > 0)
		return false;
	for (size_t i = 0; i < bucket_floats(b); i++)
		at->buf[b][i] = value(m + 7 * b, i);
	pd_event_arm(&at->ready[b]);
	pd_event_arm(&at->done[b]);
	if (b != LAST + 1 && any(2) > 0)        /* otherwise move_buckets() completes it later */
		complete(&at->ready[b], -1);
	post.wrong += at->r[b]->ops->start(at->r[b], at->buf[b], (uint64_t)b * PD_REDUCTION_TAGS,
					   &at->ready[b], &at->done[b]) < 0 ||
		      pd_reduction_queue_add(&at->queue, at->r[b],
					     b != LAST && b != BUCKETS - 1) < 0;
	at->started++;
	return true;
}

/* Tells whether sums end in the order of their buckets, since an update only waits for the last one. */
static bool end_in_order(const struct buckets *at)
{
	for (int b = 1; b < at->started; b++)
		if (pd_event_done(&at->done[b]) && !pd_event_done(&at->done[b - 1]))
			return false;
	return true;
}

static bool move_buckets(struct all *all, struct buckets *at, int m)
{
	bool moved = start_next(at, m);

	moved |= pd_reduction_queue_progress(&at->queue) > 0;
	moved |= any(3) > 0 && work(&all->streams[m]);
	post.wrong += !end_in_order(at);
	for (int b = 0; b < at->started; b++)
		if (!pd_event_done(&at->ready[b]) && any(30) == 0 &&
		    (b <= LAST || pd_event_done(&at->done[LAST]))) {
			complete(&at->ready[b], -1);
			moved = true;
		}
	return moved;
}

static int piece_of(size_t floats, int n, size_t i)
{
	int p = 0;

	while (pd_piece_begin(floats, n, p + 1) <= i)
		p++;
	return p;
}

/* Returns the sum of `count` members of a butterfly from `first` on, each with its member above `power`. */
static float butterfly(int power, int n, int first, int count, int b, size_t i)
{
	float one = rounded(value(first + 7 * b, i));

	if (count == 1)
		return first + power < n ? one + rounded(value(first + power + 7 * b, i)) : one;
	return butterfly(power, n, first, count / 2, b, i) +
	       butterfly(power, n, first + count / 2, count / 2, b, i);
}

/* Returns the sum by hosts: of a host's members from the last one on, then of the hosts, for each piece
 * from another host on. */
static float by_hosts(int n, int b, size_t i)
{
	int count = (n + 3) / 4, from = count > 1 ? piece_of(bucket_floats(b), count, i) : 0;
	float right = 0;

	for (int k = 0; k < count; k++) {
		int host = (from + k) % count, last = host * 4 + 3 < n ? host * 4 + 3 : n - 1;
		float here = rounded(value(last + 7 * b, i));

		while (--last >= host * 4)
			here += rounded(value(last + 7 * b, i));
		right = k == 0 ? here : right + here;
	}
	return rounded(right);
}

/* Returns the sum that the reducer promises, in its order. */
static float promised(enum pd_reducer_kind kind, int n, int b, size_t i)
{
	bool round_ring = kind == PD_REDUCER_ring || kind == PD_REDUCER_hierarchical ||
			  kind == PD_REDUCER_nccl;
	int from = round_ring ? piece_of(bucket_floats(b), n, i) : 0, power = 1;
	float right = rounded(value(from + 7 * b, i));

	while (2 * power <= n)
		power *= 2;
	if (kind == PD_REDUCER_hierarchical && n > 4)
		return by_hosts(n, b, i);
	if (kind == PD_REDUCER_doubling)
		return butterfly(power, n, 0, power, b, i);
	for (int m = 1; m < n; m++)
		right += rounded(value((from + m) % n + 7 * b, i));
	return rounded(right);
}

static bool bucket_is_right(const struct buckets *at, int b, enum pd_reducer_kind kind, int n)
{
	for (size_t i = 0; i < bucket_floats(b); i++) {
		float right = promised(kind, n, b, i);

		if (!pd_event_done(&at->done[b]) || memcmp(&right, &at->buf[b][i], sizeof(right)) != 0)
			return false;
	}
	return true;
}

/* Returns the bytes that all members send for all buckets, by the reducer's row. */
static int64_t expected_bytes(enum pd_reducer_kind kind, int n)
{
	struct pd_topology topology;
	struct pd_error err;
	int ranks[MEMBERS];
	struct pd_members members = { kind == PD_REDUCER_hierarchical ? hosts() : &topology, ranks, n,
				      rounding.dtype };
	double bytes = 0;

	pd_topology_parse_string("33@1GB/s", &topology, &err);
	for (int m = 0; m < n; m++)
		ranks[m] = m;
	for (int b = 0; b < BUCKETS; b++)
		bytes += pd_traffic_bytes(kind, &members,
					       (int64_t)(bucket_floats(b) * sizeof(float)));
	return llround(bytes);
}

/* Returns the bytes by which the row may be off: pieces are whole cache lines, and in 16 bits some hosts
 * may send the first piece. */
static int64_t sent_slack(enum pd_reducer_kind kind, int n)
{
	return kind == PD_REDUCER_hierarchical && rounding.dtype != PD_F32 && n % 4 == 1
		? BUCKETS * PD_PIECE_ALIGN * 4 : 0;
}

static bool try_buckets(enum pd_reducer_kind kind, int n, int groups, int pieces)
{
	struct pd_allreduce how = { n, groups, pieces };
	struct all all = { .device.ops = &shuffled_device };
	struct buckets *members = pd_calloc((size_t)n, sizeof(*members));
	int64_t sent = 0;
	bool good = true;

	post.overtake = any(2) > 0;
	for (int m = 0; m < n; m++) {
		all.ends[m] = (struct end){ { &shuffled_transport }, m };
		all.streams[m].base.device = &all.device;
		all.streams[m].member = m;
		all.ranks[m] = m;
	}
	for (int m = 0; m < n; m++)
		open_buckets(&all, &members[m], m, kind, &how);
	for (int idle = 0; idle < 2000;) {
		bool moved = deliver();

		for (int k = 0, m = (int)any((unsigned)n); k < n; k++, m = (m + 1) % n)
			moved |= move_buckets(&all, &members[m], m);
		idle = moved ? 0 : idle + 1;
	}
	for (int m = 0; m < n; m++)
		for (int b = 0; b < BUCKETS; b++) {
			good = good && members[m].started == BUCKETS &&
			       bucket_is_right(&members[m], b, kind, n);
			sent += members[m].r[b]->sent_bytes;
			members[m].r[b]->ops->close(members[m].r[b]);
			free(members[m].buf[b]);
			free(members[m].staging[b]);
		}
	for (int m = 0; m < n; m++) {
		good = good && pd_reduction_queue_empty(&members[m].queue);
		pd_reduction_queue_release(&members[m].queue);
	}
	if (groups == 1 && n <= PD_ALLREDUCE_FEW)
		good = good && llabs(sent - expected_bytes(kind, n)) <= sent_slack(kind, n);
	good = good && post.count == 0 && post.wrong == 0;
	post.count = post.wrong = 0;
	post.overtake = false;
	free(members);
	if (!good)
		diag("%s: %d members, %d groups, %d pieces", pd_reducer_kind_name[kind], n, groups,
		     pieces);
	return good;
}

static void test_buckets(void)
{
	int bad = 0, tried = 0;

	for (int n = 2; n <= 12; n++)
		for (int groups = 1; groups <= n; groups += groups < 3 ? 1 : 3, tried += 2) {
			int size = (n + groups - 1) / groups;

			bad += !try_buckets(PD_REDUCER_dense, n, groups, size);
			bad += !try_buckets(PD_REDUCER_dense, n, groups, 3 * size + 1);
		}
	is_int(bad, 0, "%d buckets under way at once, 2 to 12 members, %d ways", BUCKETS, tried);
}

/* Tests that reducers of all kinds sum in the order that each promises. */
static void test_kinds(void)
{
	bool few = test_quick();
	struct pd_error err;

	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int bad = 0;

		if (pd_reducer_check((enum pd_reducer_kind)kind, rounding.dtype, &err) < 0)
			continue;
		for (int n = 2; n <= MEMBERS; n += few ? 9 : n < 18 ? 1 : 5)
			bad += !try_buckets((enum pd_reducer_kind)kind, n, 1, n);
		is_int(bad, 0, "%s, %s: sums as it promises, 2 to 33 members", pd_reducer_kind_name[kind],
		       pd_dtype_name[rounding.dtype]);
	}
}

/* Tells whether a message of a bucket can leave a member, whatever others do. */
static bool leaves(int member, int bucket)
{
	for (int i = 0; i < post.count; i++) {
		const struct mail *mail = &post.mail[i];

		if (mail->from == member && mail->order > 0 && pd_event_done(mail->src_after) &&
		    mail->tag / PD_REDUCTION_TAGS == (uint64_t)bucket)
			return true;
	}
	return false;
}

/* Tests that a bucket which is ready is sent, though nothing has arrived of the one before. */
static void test_early(enum pd_reducer_kind kind)
{
	const struct pd_allreduce how = { 4, 1, 4 };
	struct all all = { .device.ops = &shuffled_device };
	struct buckets at = { .started = 0 };

	for (int m = 0; m < 4; m++)
		all.ranks[m] = m;
	all.ends[0] = (struct end){ { &shuffled_transport }, 0 };
	all.streams[0].base.device = &all.device;
	open_buckets(&all, &at, 0, kind, &how);
	while (at.started <= LAST)
		start_next(&at, 0);
	for (int b = 0; b <= LAST; b++)
		if (!pd_event_done(&at.ready[b]))
			complete(&at.ready[b], -1);
	while (pd_reduction_queue_progress(&at.queue) > 0 || work(&all.streams[0]))
		continue;
	ok(leaves(0, 0) && leaves(0, LAST), "%s, %s: a bucket leaves as soon as it is ready",
	   pd_reducer_kind_name[kind], pd_dtype_name[rounding.dtype]);
	for (int b = 0; b < BUCKETS; b++) {
		at.r[b]->ops->close(at.r[b]);
		free(at.buf[b]);
	}
	pd_reduction_queue_release(&at.queue);
	post.count = 0;
}

/* Tests that long pieces are sent in parts, and give the same bits as in one. */
static void test_long(void)
{
	static const struct { enum pd_reducer_kind kind; int n; } rings[] = {
		{ PD_REDUCER_ring, 2 }, { PD_REDUCER_ring, 3 }, { PD_REDUCER_hierarchical, 9 },
	};
	int bad = 0;

	times = LONG;
	for (size_t k = 0; k < PD_COUNT(rings); k++)
		bad += !try_buckets(rings[k].kind, rings[k].n, 1, rings[k].n);
	times = 1;
	is_int(bad, 0, "%s: rings sum long buckets, in parts", pd_dtype_name[rounding.dtype]);
	is_int(pd_piece_parts(LONG * 2048, 3), 3, "a piece of 822 KB has three parts");
	is_int(pd_piece_parts((size_t)1 << 30, 2), 8, "a very long one has eight");
	is_int(pd_piece_parts(2048, 2), 1, "a short one has one");
}

/* Tests by coarse scripts who sends how much to whom: all get something, and the total is as in the manual. */
static void test_sends(void)
{
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int bad = 0;

		for (int n = 2; n <= MEMBERS && !pd_reducers[kind]->traffic; n++) {
			struct pd_script script = { .floats = 1000, .coarse = true };
			int ranks[MEMBERS];
			struct pd_members members = { hosts(), ranks, n, PD_F32 };
			double got[MEMBERS] = { 0 }, all = 0, extras = n;

			for (int m = 0; m < n; m++)
				ranks[m] = m;
			for (int m = 0; m < n; m++)
				pd_reducers[kind]->write(&members, m, &script);
			for (size_t i = 0; i < script.transfer_count; i++) {
				double part = pd_script_part(&script, &script.transfers[i]);

				got[script.transfers[i].peer] += script.transfers[i].send ? part : 0;
				all += script.transfers[i].send ? part : 0;
			}
			pd_script_release(&script);
			for (int m = 0; m < n; m++)
				bad += got[m] <= 0;
			while (extras >= 2 && kind == PD_REDUCER_doubling)
				extras /= 2;
			if (kind == PD_REDUCER_ring || kind == PD_REDUCER_nccl)
				bad += all < 2.0 * (n - 1) - 1e-9 || all > 2.0 * (n - 1) + 1e-9;
			if (kind == PD_REDUCER_doubling && extras == 1)
				bad += all < n || all > 6.0 * n;
		}
		is_int(bad, 0, "%s: who sends to whom", pd_reducer_kind_name[kind]);
	}
}

static void post_all(enum pd_reducer_kind kind, const struct pd_members *members, size_t floats, float *buf)
{
	struct pd_device device = { &shuffled_device };

	for (int m = 0; m < members->count; m++) {
		struct end end = { { &shuffled_transport }, m };
		struct stream stream = { .base.device = &device };
		struct pd_event done;
		struct pd_error err;
		struct pd_reduction *r = pd_reduction_open(kind, &(struct pd_reduction_config){
			.transport = &end.base, .device = &device, .stream = &stream.base,
			.topology = members->topology, .ranks = members->ranks,
			.members = members->count, .me = m, .floats = floats,
			.rounding = rounding }, &err);

		pd_event_arm(&done);
		post.wrong += r->ops->start(r, buf, 0, NULL, &done) < 0;
		r->ops->close(r);
	}
}

/* Tests that by the rows members meet exactly the members with which they post transfers. */
static void test_meets(void)
{
	enum { FLOATS = 25000000 };
	float *buf = pd_calloc(FLOATS, sizeof(*buf));

	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int bad = 0;

		if (pd_reducers[kind]->of_transport)
			continue;
		for (int n = 2; n <= 32; n += n < 8 && !test_quick() ? 1 : 8) {
			bool met[32][32] = { { false } }, posted[32][32] = { { false } };
			int ranks[32];
			struct pd_members members = { hosts(), ranks, n, PD_F32 };

			for (int m = 0; m < n; m++)
				ranks[m] = m;
			post_all((enum pd_reducer_kind)kind, &members, FLOATS, buf);
			for (int i = 0; i < post.count; i++)
				posted[post.mail[i].from][post.mail[i].to] =
					posted[post.mail[i].to][post.mail[i].from] = true;
			post.count = 0;
			for (int m = 0; m < n; m++)
				pd_reducer_meets((enum pd_reducer_kind)kind, &members, m,
						 FLOATS * (int64_t)sizeof(float), met[m]);
			bad += memcmp(met, posted, sizeof(met)) != 0;
		}
		is_int(bad + post.wrong, 0, "%s: who meets whom", pd_reducer_kind_name[kind]);
	}
	free(buf);
}

/* Tests that a reducer allocates as many bytes as its row says. */
static void test_rows(void)
{
	static const char *const topologies[] = { "33@1GB/s", "4@12GB/s,8@1.25GB/s" };
	int bad = 0;

	for (size_t t = 0; t < 2 * PD_COUNT(topologies); t++)
		for (int kind = 0; kind < PD_REDUCER_KINDS; kind++)
			for (int n = 2; n <= 32; n++) {
				struct pd_device device = { &shuffled_device };
				struct end end = { { &shuffled_transport }, 0 };
				struct stream stream = { .base.device = &device };
				struct pd_topology topology;
				int ranks[32];
				struct pd_members members = { &topology, ranks, n, t % 2 ? PD_BF16 : PD_F32 };
				struct pd_reduction *r;
				struct pd_error err;

				for (int m = 0; m < n; m++)
					ranks[m] = m;
				pd_topology_parse_string(topologies[t / 2], &topology, &err);
				allocated = 0;
				r = pd_reduction_open((enum pd_reducer_kind)kind, &(struct pd_reduction_config){
					.transport = &end.base, .device = &device,
					.stream = &stream.base, .topology = &topology,
					.ranks = ranks, .members = n, .floats = 1234567,
					.rounding = { members.dtype, 1, false } }, &err);
				bad += (int64_t)allocated !=
				       pd_reducers[kind]->staging_bytes(&members, 4938268) ||
				       r->ops->staging_bytes(r) != allocated;
				r->ops->close(r);
			}
	is_int(bad, 0, "what a reducer allocates is what its row says");
}

/* Tests the costs of all-reduces, most of them of four members with 1 GB/s and 7 ns. */
static void test_costs(void)
{
	static const struct { const char *name; enum pd_dtype dtype; int64_t ns; } costs[] = {
		{ "dense", PD_F32, 900 + 6 * 7 }, { "dense", PD_BF16, 450 + 6 * 7 },
		{ "ring", PD_F32, 900 + 6 * 7 }, { "ring", PD_F16, 600 + 6 * 7 },
		{ "nccl", PD_F32, 900 + 6 * 7 },
		{ "hierarchical", PD_F32, 900 + 6 * 7 }, { "hierarchical", PD_BF16, 600 + 6 * 7 },
		{ "recursive-doubling", PD_F32, 1200 + 2 * 7 },
		{ "recursive-doubling", PD_BF16, 900 + 2 * 7 },
	};
	int ranks[] = { 0, 1, 2, 3 };
	struct pd_topology topology;
	struct pd_members two = { &topology, ranks, 2, PD_F32 };
	struct pd_error err;

	pd_topology_parse_string("2@1GB/s+1ms", &topology, &err);
	is_int(pd_reducers[PD_REDUCER_ring]->alone_ns(&two, 8 << 20), (8 << 20) + 1000000,
	       "ring of long pieces: the latency is under other parts' transfers");
	pd_topology_parse_string("2@1GB/s+8ms", &topology, &err);
	is_int(pd_reducers[PD_REDUCER_ring]->alone_ns(&two, 8 << 20),
	       2 * ((1 << 19) + 8000000) + 7 * (1 << 19), "unless it is longer than these");
	pd_topology_parse_string("4@1GB/s+7ns", &topology, &err);
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		struct pd_members members = { &topology, ranks, 1, PD_F32 };

		ok(pd_reducers[kind]->alone_ns(&members, 600) == 0, "%s: nobody to sum with takes no time",
		   pd_reducer_kind_name[kind]);
		members.count = 4;
		ok(pd_reducers[kind]->alone_ns(&members, 0) == 0, "%s: nothing to sum takes no time",
		   pd_reducer_kind_name[kind]);
		is_int(pd_reducers[kind]->alone_ns(&members, INT64_MAX / 4), PD_COST_MAX,
		       "%s: what takes too long is cut off", pd_reducer_kind_name[kind]);
		for (size_t i = 0; i < PD_COUNT(costs); i++) {
			if (strcmp(costs[i].name, pd_reducer_kind_name[kind]) != 0)
				continue;
			members.dtype = costs[i].dtype;
			is_int(pd_reducers[kind]->alone_ns(&members, 600), costs[i].ns,
			       "%s, %s: steps, and the latency of each", costs[i].name,
			       pd_dtype_name[costs[i].dtype]);
		}
		members.dtype = PD_F32;
	}
}

/*
 * Tests the costs of sums in each other's memory, at 2 GB/s and 7 ns, on two hosts of 20 ranks; sums by
 * messages take another time.
 */
static void test_direct_costs(void)
{
	enum { BYTES = 65536 * sizeof(float), DIRECT_NS = BYTES / 2 + 2 * 7 };
	static const struct { const char *what; int count, last; int64_t bytes, rate; enum pd_dtype dtype; }
	others[] = {
		{ "too few gradients", 4, 3, BYTES - 4, 2000000000, PD_F32 },
		{ "too many replicas", 17, 16, BYTES, 2000000000, PD_F32 },
		{ "another host", 4, 20, BYTES, 2000000000, PD_F32 },
		{ "16 bits", 4, 3, BYTES, 2000000000, PD_BF16 },
		{ "an unknown speed", 4, 3, BYTES, 0, PD_F32 },
	};
	struct pd_topology topology;
	struct pd_error err;
	int ranks[17];
	struct pd_members members = { &topology, ranks, 4, PD_F32, 2000000000 };

	pd_topology_parse_string("20@1GB/s+7ns,2@1GB/s+7ns", &topology, &err);
	for (int i = 0; i < 17; i++)
		ranks[i] = i;
	ok(pd_reducers[PD_REDUCER_dense]->alone_ns(&members, BYTES) != DIRECT_NS,
	   "hosts whose memory is not known to be shared: by messages");
	topology.level[0].shared_memory = true;
	for (members.count = 2; members.count <= 16; members.count += 7)
		is_int(pd_reducers[PD_REDUCER_dense]->alone_ns(&members, BYTES), DIRECT_NS,
		       "%d of one host: all bytes once, and two messages", members.count);
	members.count = 4;
	members.direct_bytes_per_s = 1;
	is_int(pd_reducers[PD_REDUCER_dense]->alone_ns(&members, INT64_MAX / 4), PD_COST_MAX,
	       "what takes too long is cut off");
	is_int(pd_reducers[PD_REDUCER_ring]->alone_ns(&members, BYTES), BYTES * 3 / 2 + 6 * 7,
	       "a ring has messages");
	for (size_t i = 0; i < PD_COUNT(others); i++) {
		members = (struct pd_members){ &topology, ranks, others[i].count, others[i].dtype,
					       others[i].rate };
		ranks[others[i].count - 1] = others[i].last;
		ok(!pd_direct_expected(&members, others[i].bytes), "%s: by messages", others[i].what);
	}
}

/* A reduction of one step for each part, which is taken when the test lets it be. */
struct stepwise {
	struct pd_reduction base;
	bool ready;
	int steps;
};

static int stepwise_progress(struct pd_reduction *r, enum pd_reduction_part upto)
{
	struct stepwise *s = (struct stepwise *)r;
	int before = s->steps, end = upto == PD_REDUCTION_ALL ? 2 : 1;

	if (s->ready && s->steps < end)
		s->steps = end;
	return s->steps - before;
}

static bool stepwise_issued(const struct pd_reduction *r, enum pd_reduction_part upto)
{
	return ((const struct stepwise *)r)->steps > (upto == PD_REDUCTION_ALL);
}

/*
 * Tests that what lets the stream wait goes there behind the sums before it: another member may begin it only
 * when it has these.
 */
static void test_queue(void)
{
	static const struct pd_reduction_ops ops = { .progress = stepwise_progress, .issued = stepwise_issued };
	struct pd_reduction_queue queue = { .count = 0 };
	struct stepwise small = { { .ops = &ops, .polls = true }, false, 0 }, large = { { .ops = &ops }, true, 0 },
			last = { { .ops = &ops, .polls = true }, true, 0 };

	pd_reduction_queue_add(&queue, &small.base, true);
	pd_reduction_queue_add(&queue, &large.base, true);
	pd_reduction_queue_add(&queue, &last.base, false);
	pd_reduction_queue_progress(&queue);
	is_int(large.steps, 0, "what lets the stream wait does not overtake");
	is_int(last.steps, 1, "what polls does");
	small.ready = true;
	pd_reduction_queue_progress(&queue);
	ok(small.steps == 2 && large.steps == 2 && last.steps == 2 && pd_reduction_queue_empty(&queue),
	   "then all go");
	pd_reduction_queue_release(&queue);
}

int main(void)
{
	post.rng = 1;
	test_queue();
	test_rows();
	test_meets();
	test_costs();
	test_direct_costs();
	test_bits();
	test_buckets();
	test_kinds();
	test_long();
	test_sends();
	rounding = (struct pd_rounding){ PD_BF16, 1, false };
	test_bits();
	test_kinds();
	if (!test_quick())
		test_long();
	test_early(PD_REDUCER_ring);
	test_early(PD_REDUCER_doubling);
	test_early(PD_REDUCER_hierarchical);
	rounding = (struct pd_rounding){ PD_F16, 0x1p-36f, false };
	if (!test_quick())
		test_buckets();
	test_kinds();
	free(post.mail);
	return done_testing();
}
