/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of up to 33 members, in every number of groups, in one process: bits, bytes kept, and
 * that they end although transfers from one rank to another take place one by one, in the order in
 * which the sender gave them to the transport, and otherwise in any.  In f32, and with 16 bits on the
 * way.  Then, which are chosen.
 */
#include "base/half.h"
#include "base/mem.h"
#include "base/piece.h"
#include "reduce/dense.h"
#include "reduce/queue.h"
#include "tap.h"
#include "topology/allreduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS 33
#define QUEUE   3

struct mail {
	int from, to;
	uint64_t tag;
	const void *src;
	void *dst;
	size_t bytes;
	const struct pd_event *src_after, *dst_after;
	struct pd_event *sent, *received;
	uint64_t order;                 /* in which it was sent; 0: only awaited so far */
};

static struct {
	struct mail *mail;
	int count;
	size_t room;
	uint64_t order, rng;
	int64_t clock;                  /* ticks: everything at a time of its own */
	int64_t first[MEMBERS];         /* when a member's first letter left, or first sum was made */
	int wrong;
} post;

static unsigned any(unsigned n)
{
	post.rng = post.rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(post.rng >> 33) % n;
}

struct end {
	struct pd_transport base;
	int rank;
};

static struct mail *letter(int from, int to, uint64_t tag, size_t bytes, bool send)
{
	for (int i = 0; i < post.count; i++) {
		struct mail *mail = &post.mail[i];

		if (mail->from == from && mail->to == to && mail->tag == tag) {
			post.wrong += mail->bytes != bytes || (send ? mail->sent : mail->received);
			return mail;
		}
	}
	post.mail = pd_grow(post.mail, &post.room, (size_t)post.count + 1, sizeof(*post.mail));
	post.mail[post.count] = (struct mail){ .from = from, .to = to, .tag = tag, .bytes = bytes };
	return &post.mail[post.count++];
}

static int send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		const struct pd_event *after, struct pd_event *done)
{
	struct mail *mail = letter(((struct end *)t)->rank, peer, tag, bytes, true);

	mail->src = buf;
	mail->src_after = after;
	mail->sent = done;
	mail->order = ++post.order;
	return 0;
}

static int receive(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		   const struct pd_event *after, struct pd_event *done)
{
	struct mail *mail = letter(peer, ((struct end *)t)->rank, tag, bytes, false);

	mail->dst = buf;
	mail->dst_after = after;
	mail->received = done;
	return 0;
}

static bool may_go(const struct mail *mail)
{
	if (!mail->sent || !mail->received ||
	    (mail->src_after && !pd_event_done(mail->src_after)) ||
	    (mail->dst_after && !pd_event_done(mail->dst_after)))
		return false;
	for (int i = 0; i < post.count; i++) {
		const struct mail *other = &post.mail[i];

		if (other->from == mail->from && other->to == mail->to && other->order > 0 &&
		    other->order < mail->order)
			return false;
	}
	return true;
}

/* first: the member who did it, where that is what began an all-reduce if nothing did before. */
static void complete(struct pd_event *ev, int first)
{
	int64_t start_ns = ++post.clock;

	if (first >= 0 && post.first[first] == 0)
		post.first[first] = start_ns;
	pd_event_complete(ev, start_ns, ++post.clock, NULL);
}

static bool deliver(void)
{
	int start = post.count > 0 ? (int)any((unsigned)post.count) : 0;

	for (int n = 0; n < post.count; n++) {
		struct mail *mail = &post.mail[(start + n) % post.count];

		if (!may_go(mail))
			continue;
		memcpy(mail->dst, mail->src, mail->bytes);
		complete(mail->sent, mail->from);
		complete(mail->received, -1);
		*mail = post.mail[--post.count];
		return true;
	}
	return false;
}

/* A device whose only stream does a thing when told to. */
struct stream {
	struct pd_stream base;
	int member;
	struct stream_item {
		struct pd_event *wait, *done;
		struct pd_mixed_sum sum;
	} queue[QUEUE];
	int queued;
};

static size_t allocated;

static void *take(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	allocated += bytes;
	return pd_zalloc(bytes);
}

static void give(struct pd_device *device, void *ptr)
{
	free(ptr);
}

static int enqueue(struct stream *s, const struct stream_item *stream_item)
{
	if (s->queued == QUEUE)
		return PD_AGAIN;
	s->queue[s->queued++] = *stream_item;
	return 0;
}

static int await(struct pd_stream *stream, struct pd_event *ev)
{
	return enqueue((struct stream *)stream, &(struct stream_item){ .wait = ev });
}

static int sum(struct pd_stream *stream, float *dst, const float *const *src, int n, size_t count,
	       struct pd_event *ev)
{
	struct stream_item stream_item = { .sum = { .dst = dst, .n = n, .count = count }, .done = ev };

	if (n > PD_SUM_SOURCES)
		return -1;
	for (int i = 0; i < n; i++)
		stream_item.sum.src[i] = src[i];
	return enqueue((struct stream *)stream, &stream_item);
}

static int mixed_sum(struct pd_stream *stream, const struct pd_mixed_sum *sum, struct pd_event *ev)
{
	return enqueue((struct stream *)stream, &(struct stream_item){ .sum = *sum, .done = ev });
}

static uint16_t narrow(const struct pd_rounding *r, float x)
{
	return r->dtype == PD_BF16 ? pd_to_bf16(x * r->scale) : pd_to_f16(x * r->scale);
}

static float widen(const struct pd_rounding *r, uint16_t x)
{
	return (r->dtype == PD_BF16 ? pd_from_bf16(x) : pd_from_f16(x)) / r->scale;
}

static float source(const struct pd_mixed_sum *sum, int k, size_t i)
{
	return sum->narrow_sources >> k & 1
		? widen(&sum->rounding, ((const uint16_t *)sum->src[k])[i])
		: ((const float *)sum->src[k])[i];
}

static bool work(struct stream *s)
{
	struct stream_item *stream_item = s->queue;

	if (s->queued == 0 || (stream_item->wait && !pd_event_done(stream_item->wait)))
		return false;
	for (size_t i = 0; i < stream_item->sum.count; i++) {
		const struct pd_mixed_sum *sum = &stream_item->sum;
		float all = source(sum, 0, i);

		for (int k = 1; k < sum->n; k++)
			all += source(sum, k, i);
		if (sum->narrow)
			((uint16_t *)sum->dst)[i] = narrow(&sum->rounding, all);
		else
			((float *)sum->dst)[i] = all;
	}
	if (stream_item->done)
		complete(stream_item->done, stream_item->sum.n > 0 ? s->member : -1);
	memmove(stream_item, stream_item + 1, sizeof(*stream_item) * (size_t)--s->queued);
	return true;
}

static const struct pd_transport_ops transport_ops = { .send = send, .recv = receive };
static const struct pd_device_ops device_ops = {
	.memory.alloc = take, .memory.free = give, .stream.wait = await, .math.sum = sum,
	.math.mixed_sum = mixed_sum,
};

/* Sums of these depend on their order. */
static float value(int member, size_t i)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(member * 40503 + 1);

	x ^= x >> 15;
	x *= 0x2c1b3c6d;
	x ^= x >> 12;
	return ((float)(x & 0xffffff) - 8388608.0f) * (float)(1 << x % 24);
}

/* What travels: f32 where not said otherwise.  f16 needs a scale, so that sums are no infinity. */
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

/* Each begins when it likes; where it is done the sum is there, and its buffer nobody's. */
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
	struct all all = { .device.ops = &device_ops };
	size_t staging = (size_t)pd_allreduce_staging_bytes(&how, (int64_t)(floats * sizeof(float)),
							    rounding.dtype);
	float *right = pd_calloc(floats, sizeof(*right));
	bool good = true;
	struct pd_error err;

	add_up(right, n, floats);
	for (int m = 0; m < n; m++) {
		all.ends[m] = (struct end){ { &transport_ops }, m };
		all.streams[m].base.device = &all.device;
		all.streams[m].member = m;
		all.ranks[m] = m;
		all.buf[m] = pd_calloc(floats + 1, sizeof(float));
		allocated = 0;
		all.c[m] = pd_dense_open(&(struct pd_reduction_config){
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

	for (int n = 2; n <= MEMBERS; n += rounding.dtype == PD_F32 ? 1 : 5) {
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
#define LAST 2          /* bucket of one stage, behind whose update the other stage's backward is */

struct buckets {
	struct pd_reduction_queue queue;
	struct pd_reduction *r[BUCKETS];
	struct pd_event ready[BUCKETS], done[BUCKETS];
	float *buf[BUCKETS];
	int started;
};

static size_t bucket_floats(int bucket)
{
	static const size_t floats[BUCKETS] = { 1000, 1, 333, 90, 2048 };

	return floats[bucket];
}

/* Hosts of four. */
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

		at->r[b] = kind == PD_REDUCER_dense ? pd_dense_open(&config, how, &err)
						    : pd_reductions[kind]->open(&config, &err);
		at->buf[b] = pd_calloc(bucket_floats(b), sizeof(float));
	}
}

/* A backward makes bucket after bucket; the list has the sums in this order at every member. */
static bool start_next(struct buckets *at, int m)
{
	int b = at->started;

	if (b == BUCKETS || any(9) > 0)
		return false;
	for (size_t i = 0; i < bucket_floats(b); i++)
		at->buf[b][i] = value(m + 7 * b, i);
	pd_event_arm(&at->ready[b]);
	pd_event_arm(&at->done[b]);
	if (b != LAST + 1 && any(2) > 0)        /* or later: see move_buckets() */
		complete(&at->ready[b], -1);
	post.wrong += at->r[b]->ops->start(at->r[b], at->buf[b], (uint64_t)b * PD_REDUCTION_TAGS,
					   &at->ready[b], &at->done[b]) < 0 ||
		      pd_reduction_queue_add(&at->queue, at->r[b],
					     b != LAST && b != BUCKETS - 1) < 0;
	at->started++;
	return true;
}

static bool move_buckets(struct all *all, struct buckets *at, int m)
{
	bool moved = start_next(at, m);

	moved |= pd_reduction_queue_progress(&at->queue) > 0;
	moved |= any(3) > 0 && work(&all->streams[m]);
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

/* So many members of a butterfly from the first on, with those above the power of two. */
static float butterfly(int power, int n, int first, int count, int b, size_t i)
{
	float one = rounded(value(first + 7 * b, i));

	if (count == 1)
		return first + power < n ? one + rounded(value(first + power + 7 * b, i)) : one;
	return butterfly(power, n, first, count / 2, b, i) +
	       butterfly(power, n, first + count / 2, count / 2, b, i);
}

/* Of all of a host's members, from the last one on; then of hosts, each piece from another one on. */
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

/* The sum that the reducer promises, in its order. */
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

/* What the row says that all members send, of all buckets. */
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
		bytes += pd_reducer_sent_bytes(kind, &members,
					       (int64_t)(bucket_floats(b) * sizeof(float)));
	return llround(bytes);
}

/* Pieces of a ring are of whole cache lines; of hosts, some may send the first in 16 bits. */
static int64_t sent_slack(enum pd_reducer_kind kind, int n)
{
	return kind == PD_REDUCER_hierarchical && rounding.dtype != PD_F32 && n % 4 == 1
		? BUCKETS * PD_PIECE_ALIGN * 4 : 0;
}

static bool try_buckets(enum pd_reducer_kind kind, int n, int groups, int pieces)
{
	struct pd_allreduce how = { n, groups, pieces };
	struct all all = { .device.ops = &device_ops };
	struct buckets *members = pd_calloc((size_t)n, sizeof(*members));
	int64_t sent = 0;
	bool good = true;

	for (int m = 0; m < n; m++) {
		all.ends[m] = (struct end){ { &transport_ops }, m };
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
		}
	for (int m = 0; m < n; m++) {
		good = good && pd_reduction_queue_empty(&members[m].queue);
		pd_reduction_queue_release(&members[m].queue);
	}
	if (groups == 1 && n <= PD_ALLREDUCE_FEW)
		good = good && llabs(sent - expected_bytes(kind, n)) <= sent_slack(kind, n);
	good = good && post.count == 0 && post.wrong == 0;
	post.count = post.wrong = 0;
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

/* Of all kinds, in the order that each promises. */
static void test_kinds(void)
{
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int bad = 0;

		for (int n = 2; n <= MEMBERS; n += n < 18 ? 1 : 5)
			bad += !try_buckets((enum pd_reducer_kind)kind, n, 1, n);
		is_int(bad, 0, "%s, %s: sums as it promises, 2 to 33 members", pd_reducer_kind_name[kind],
		       pd_dtype_name[rounding.dtype]);
	}
}

/* What a member sends, by the row, is what others get from it: all together as in its manual. */
static void test_sends(void)
{
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		int bad = 0, peer;
		double part;

		for (int n = 2; n <= MEMBERS && pd_reducers[kind]->sends; n++) {
			int ranks[MEMBERS];
			struct pd_members members = { hosts(), ranks, n, PD_F32 };
			double got[MEMBERS] = { 0 }, all = 0, extras = n;

			for (int m = 0; m < n; m++)
				ranks[m] = m;
			for (int m = 0; m < n; m++)
				for (int i = 0; pd_reducers[kind]->sends(&members, m, i, &peer, &part);
				     i++) {
					bad += peer < 0 || peer >= n || peer == m;
					got[peer] += part;
					all += part;
				}
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

/* The row of a reducer says what one allocates, and what it costs. */
static void test_rows(void)
{
	static const char *const topologies[] = { "33@1GB/s", "4@12GB/s,8@1.25GB/s" };
	int bad = 0;

	for (size_t t = 0; t < 2 * PD_COUNT(topologies); t++)
		for (int kind = 0; kind < PD_REDUCER_KINDS; kind++)
			for (int n = 2; n <= 32; n++) {
				struct pd_device device = { &device_ops };
				struct end end = { { &transport_ops }, 0 };
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
				r = pd_reductions[kind]->open(&(struct pd_reduction_config){
					.transport = &end.base, .device = &device,
					.stream = &stream.base, .topology = &topology,
					.ranks = ranks, .members = n, .floats = 1234567,
					.rounding = { members.dtype, 1, false } }, &err);
				/* NCCL's is carried by a ring here, and its memory not counted */
				bad += (int64_t)allocated !=
				       pd_reducers[kind == PD_REDUCER_nccl ? PD_REDUCER_ring : kind]->
						staging_bytes(&members, 4938268) ||
				       r->ops->staging_bytes(r) !=
				       (kind == PD_REDUCER_nccl ? 0 : allocated);
				r->ops->close(r);
			}
	is_int(bad, 0, "what a reducer allocates is what its row says");
}

/* On four members, 1 GB/s and 7 ns. */
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
	struct pd_error err;

	pd_topology_parse_string("4@1GB/s+7ns", &topology, &err);
	for (int kind = 0; kind < PD_REDUCER_KINDS; kind++) {
		struct pd_members members = { &topology, ranks, 1, PD_F32 };

		ok(pd_reducers[kind]->cost_ns(&members, 600) == 0, "%s: nobody to sum with takes no time",
		   pd_reducer_kind_name[kind]);
		members.count = 4;
		ok(pd_reducers[kind]->cost_ns(&members, 0) == 0, "%s: nothing to sum takes no time",
		   pd_reducer_kind_name[kind]);
		is_int(pd_reducers[kind]->cost_ns(&members, INT64_MAX / 4), PD_REDUCER_MOST_NS,
		       "%s: what takes too long is cut off", pd_reducer_kind_name[kind]);
		for (size_t i = 0; i < PD_COUNT(costs); i++) {
			if (strcmp(costs[i].name, pd_reducer_kind_name[kind]) != 0)
				continue;
			members.dtype = costs[i].dtype;
			is_int(pd_reducers[kind]->cost_ns(&members, 600), costs[i].ns,
			       "%s, %s: steps, and the latency of each", costs[i].name,
			       pd_dtype_name[costs[i].dtype]);
		}
		members.dtype = PD_F32;
	}
}

/* Every piece has one owner in each group, and every member is in one. */
static void test_parts(void)
{
	int bad = 0;

	for (int n = 1; n < 70; n++)
		for (int groups = 1; groups <= n; groups++) {
			struct pd_allreduce how = { n, groups, 2 * n + 5 };
			int size = (n + groups - 1) / groups;

			for (int m = 0; m < n; m++) {
				int g = pd_allreduce_group_of(&how, m);

				bad += m < pd_allreduce_group_begin(&how, g) ||
				       m >= pd_allreduce_group_begin(&how, g + 1);
			}
			for (int p = 0; p < how.pieces; p++) {
				int i = pd_allreduce_owner(&how, size, p);

				bad += p < pd_allreduce_piece_begin(&how, size, i) ||
				       p >= pd_allreduce_piece_begin(&how, size, i + 1);
			}
			for (int g = 0; g < groups; g++) {
				int here = pd_allreduce_group_begin(&how, g + 1) -
					pd_allreduce_group_begin(&how, g);

				bad += here != size && here != size - 1;
			}
		}
	is_int(bad, 0, "who is in which group, who owns which piece");
}

/* How many groups there are for 100 MB, between two numbers. */
static const struct choice {
	int first, step, n, low, high;
	const char *topology, *what;
} choices[] = {
	{ 0, 1, 16, 16, 16, "4@12GB/s,4@1.25GB/s", "four servers of four" },
	{ 0, 1, 8, 8, 8, "4@12GB/s,4@1.25GB/s", "two of them" },
	{ 2, 1, 4, 4, 4, "4@12GB/s,4@1.25GB/s", "half of two" },
	{ 0, 1, 4, 1, 1, "4@12GB/s,4@1.25GB/s", "one server" },
	{ 0, 4, 4, 1, 1, "4@12GB/s,4@1.25GB/s", "one member on each server" },
	{ 3, 1, 2, 1, 1, "4@12GB/s,4@1.25GB/s", "two members on two servers" },
	{ 15, -1, 16, 1, 1, "4@12GB/s,4@1.25GB/s", "another order than that of the servers" },
	{ 0, 1, 16, 1, 1, "16@1.25GB/s", "no servers" },
	{ 0, 1, 16, 1, 1, "4@12GB/s,4@1.25GB/s+1s", "steps that take long" },
	{ 0, 1, 32, 1, 1, "32@1GB/s", "few members" },
	{ 0, 1, 32, 32, 32, "8@12GB/s,4@1.25GB/s", "four servers of eight" },
	{ 0, 1, 64, 4, 64, "4@12GB/s,4@12GB/s,4@1.25GB/s", "three levels" },
	{ 0, 1, 96, 1, 1, "96@1GB/s", "some more members than few" },
	{ 0, 1, 300, 3, 16, "300@1GB/s", "some hundreds" },
	{ 0, 1, 8, 2, 2, "4@12GB/s+20ms,2@1GB/s", "few members, but both others far slower" },
	{ 0, 1, 1024, 8, 64, "1024@1GB/s", "a thousand" },
	{ 1023, -1, 1024, 8, 64, "1024@1GB/s", "the same in another order" },
	{ 0, 1, 16384, 128, 512, "16384@1GB/s", "sixteen thousand" },
	{ 0, 1, 1 << 20, 8192, 1 << 16, "1048576@1GB/s", "a million" },
	{ 0, 1, 512, 64, 128, "8@100GB/s,64@10GB/s", "sixty-four servers of eight" },
	{ 0, 1, 4096, 32, 64, "4096@1GB/s+5ms", "four thousand, in steps that take long" },
	{ 0, 2, 10, 10, 10, "4@12GB/s,16@1.25GB/s", "every second device" },
	{ 0, 1, 42, 7, 42, "6@12GB/s,8@1.25GB/s", "servers of six" },
	{ 0, 1, 107, 107, 107, "8@100GB/s,64@10GB/s", "the last server not full: no groups fit" },
	{ 0, 1, 12, 12, 12, "4@1GB/s,4@12GB/s", "servers with slow links inside" },
	{ 0, 1, 8, 8, 8, "4@12GB/s,4@1.25GB/s+1s", "two servers far from each other" },
};

static void test_choice(void)
{
	for (size_t i = 0; i < PD_COUNT(choices); i++) {
		const struct choice *at = &choices[i];
		int *ranks = pd_calloc((size_t)at->n, sizeof(*ranks)), size;
		struct pd_allreduce how, line;
		struct pd_topology t;
		struct pd_error err;

		for (int r = 0; r < at->n; r++)
			ranks[r] = at->first + r * at->step;
		if (pd_topology_read(at->topology, &t, &err) < 0)
			pd_bug("%s", err.text);
		how = pd_allreduce_choose(&t, ranks, at->n, 100000000);
		line = pd_allreduce_choose_line(&t, at->first, at->n, 100000000);
		size = (how.members + how.groups - 1) / how.groups;
		if (!ok(how.groups >= at->low && how.groups <= at->high && how.pieces >= size &&
			(at->step != 1 || memcmp(&how, &line, sizeof(how)) == 0) &&
			(at->n <= PD_ALLREDUCE_FEW || how.groups == 1 ||
			 size + how.pieces / size <= 129),
			"%s: groups of %d", at->what, size))
			diag("%d groups, %d pieces", how.groups, how.pieces);
		free(ranks);
	}
}

/* What is short takes as long as its steps: as few of them one after the other as can be. */
static void test_short(void)
{
	static const struct { const char *topology; int n, bytes, most, pieces; } all[] = {
		{ "4096@1GB/s+5us", 4096, 64, 128, 1 },         /* pieces: of each owner */
		{ "8@12GB/s,16@1.25GB/s", 94, 1000, 6, 1 },
		{ "6@12GB/s+5us,30@1.25GB/s+20us", 55, 100000, 14, 19 },
	};

	for (size_t i = 0; i < PD_COUNT(all); i++) {
		struct pd_allreduce how;
		struct pd_topology t;
		struct pd_error err;
		int size;

		pd_topology_read(all[i].topology, &t, &err);
		how = pd_allreduce_choose_line(&t, 0, all[i].n, all[i].bytes);
		size = (how.members + how.groups - 1) / how.groups;
		if (!ok(how.groups <= all[i].most && how.pieces == all[i].pieces * size,
			"%d bytes among %d: groups of %d", all[i].bytes, all[i].n, size))
			diag("%d groups, %d pieces", how.groups, how.pieces);
	}
}

int main(void)
{
	post.rng = 1;
	test_parts();
	test_choice();
	test_short();
	test_rows();
	test_costs();
	test_bits();
	test_buckets();
	test_kinds();
	test_sends();
	rounding = (struct pd_rounding){ PD_BF16, 1, false };
	test_bits();
	test_kinds();
	rounding = (struct pd_rounding){ PD_F16, 0x1p-36f, false };
	test_buckets();
	test_kinds();
	free(post.mail);
	return done_testing();
}
