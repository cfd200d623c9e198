/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces for express.c.
 *
 * What a member posts and queues does not depend on time (lib/transport/collective.h), so it is
 * asked once: lib/transport/collective runs on a transport and a device that write down what they
 * are given.  What then waits for what is a graph, which every all-reduce of the stage goes
 * through again.  A member may begin the next one while another is still in this, but not more:
 * there are two sets of transfers.
 */
#include "planner/express_time.h"

#include "base/mem.h"
#include "topology/allreduce.h"
#include "transport/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SETS 2
#define ADDRESS ((float *)(uintptr_t)(UINT64_C(1) << 40))       /* of memory that nobody reads */

struct posted {
	int transfer;
	bool after;                     /* it waits for what the member's all-reduce waits for */
};

struct job {                            /* for a member's stream */
	int64_t duration_ns;
	int waits, event;               /* event -1: the end */
	bool after;
};

struct member {
	size_t post_count, job_count, post_room, job_room;
	struct posted *posts;
	struct job *jobs;
	struct pd_doing *tasks;
	int after;                      /* the event that it waits for */
	int64_t begun;
	struct pd_work_queue queue;
};

struct transfer {
	int from, to;                   /* members */
	uint64_t tag;
	int64_t bytes;
	int waits, sent, received;      /* events */
	struct pd_doing *set[SETS];
};

/* Something that waits for an event: a transfer, or a job of a member. */
struct wish { int event, transfer, member, job; };

struct pd_reduce {
	struct pd_express_clock *clock;
	int n;
	struct member *members;
	size_t transfer_count, transfer_room, wish_count, wish_room;
	struct transfer *transfers;
	struct wish *wishes;
	int event_count;
	int *first;                     /* of each event's in `waiting`; event_count + 1 */
	struct pd_doing **waiting[SETS];

	/* while members are asked */
	struct pd_transport transport;
	struct pd_device device;
	struct pd_stream stream;
	const int *ranks;
	int asked;                      /* the member */
	struct job job;                 /* gathers waits for the next */
	struct pd_event begins, ends;
	int64_t sum_bytes_per_s;
	size_t bucket_count;            /* a power of two */
	int *buckets;                   /* numbers of transfers plus 1 */
};

static struct pd_reduce *of_transport(struct pd_transport *t)
{
	return (struct pd_reduce *)((char *)t - offsetof(struct pd_reduce, transport));
}

static struct pd_reduce *of_stream(struct pd_stream *s)
{
	return (struct pd_reduce *)((char *)s - offsetof(struct pd_reduce, stream));
}

/* The number of a pending event, which it keeps until it is armed again. */
static int event_of(struct pd_reduce *reduce, const struct pd_event *event)
{
	if (!event->native)
		((struct pd_event *)event)->native = (void *)(intptr_t)++reduce->event_count;
	return (int)(intptr_t)event->native - 1;
}

static void wish(struct pd_reduce *reduce, struct wish wish)
{
	reduce->wishes = pd_grow(reduce->wishes, &reduce->wish_room, reduce->wish_count + 1,
				 sizeof(wish));
	reduce->wishes[reduce->wish_count++] = wish;
}

static int transfer_of(struct pd_reduce *reduce, int from, int to, uint64_t tag, int64_t bytes)
{
	uint64_t h = ((uint64_t)from << 40 ^ (uint64_t)to << 20 ^ tag) *
		     UINT64_C(0x9e3779b97f4a7c15);
	size_t at = (size_t)(h >> 32);

	for (;; at++) {
		int *bucket = &reduce->buckets[at & (reduce->bucket_count - 1)];
		struct transfer *x;

		if (*bucket) {
			x = &reduce->transfers[*bucket - 1];
			if (x->from == from && x->to == to && x->tag == tag)
				return *bucket - 1;
			continue;
		}
		reduce->transfers = pd_grow(reduce->transfers, &reduce->transfer_room,
					    reduce->transfer_count + 1,
					    sizeof(*reduce->transfers));
		reduce->transfers[reduce->transfer_count] = (struct transfer){
			.from = from, .to = to, .tag = tag, .bytes = bytes, .waits = 2,
			.sent = -1, .received = -1 };
		*bucket = (int)++reduce->transfer_count;
		return *bucket - 1;
	}
}

static int member_of(const struct pd_reduce *reduce, int rank)
{
	int i = 0;

	while (reduce->ranks[i] != rank)
		i++;
	return i;
}

static int post(struct pd_reduce *reduce, bool send, int peer, uint64_t tag, size_t bytes,
		const struct pd_event *after, struct pd_event *done)
{
	struct member *me = &reduce->members[reduce->asked];
	int other = member_of(reduce, peer);
	int number = transfer_of(reduce, send ? reduce->asked : other,
				 send ? other : reduce->asked, tag, (int64_t)bytes);
	struct transfer *x = &reduce->transfers[number];
	bool waits = after && !pd_event_done(after);

	if (send)
		x->sent = event_of(reduce, done);
	else
		x->received = event_of(reduce, done);
	if (waits) {
		wish(reduce, (struct wish){ event_of(reduce, after), number, -1, -1 });
		x->waits++;
	}
	me->posts = pd_grow(me->posts, &me->post_room, me->post_count + 1, sizeof(*me->posts));
	me->posts[me->post_count++] = (struct posted){ number, after == &reduce->begins };
	return 0;
}

static int note_send(struct pd_transport *t, int peer, uint64_t tag, const void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	return post(of_transport(t), true, peer, tag, bytes, after, done);
}

static int note_recv(struct pd_transport *t, int peer, uint64_t tag, void *buf, size_t bytes,
		     const struct pd_event *after, struct pd_event *done)
{
	return post(of_transport(t), false, peer, tag, bytes, after, done);
}

static void *note_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	return ADDRESS;
}

static void note_free(struct pd_device *device, void *ptr)
{
}

static int note_wait(struct pd_stream *stream, struct pd_event *event)
{
	struct pd_reduce *reduce = of_stream(stream);
	struct member *me = &reduce->members[reduce->asked];

	if (pd_event_done(event))
		return 0;
	reduce->job.waits++;
	reduce->job.after |= event == &reduce->begins;
	wish(reduce, (struct wish){ event_of(reduce, event), -1, reduce->asked,
				    (int)me->job_count });
	return 0;
}

/* As long as lib/device/sim says. */
static int note_sum(struct pd_stream *stream, float *dst, const float *const *src, int n,
		    size_t count, struct pd_event *event)
{
	struct pd_reduce *reduce = of_stream(stream);
	struct member *me = &reduce->members[reduce->asked];
	double bytes = (double)count * sizeof(float) * (n + 1) / 3;
	struct job job = reduce->job;

	if (reduce->sum_bytes_per_s > 0)
		job.duration_ns = llround(bytes * 1e9 / (double)reduce->sum_bytes_per_s);
	job.waits++;            /* its turn */
	job.event = event && event != &reduce->ends ? event_of(reduce, event) : -1;
	me->jobs = pd_grow(me->jobs, &me->job_room, me->job_count + 1, sizeof(*me->jobs));
	me->jobs[me->job_count++] = job;
	reduce->job = (struct job){ 0 };
	return 0;
}

static const struct pd_transport_ops note_transport = { .send = note_send, .recv = note_recv };
static const struct pd_device_ops note_device = { .alloc = note_alloc, .free = note_free,
						  .wait = note_wait, .sum = note_sum };

/* What a member does; false: not all at once. */
static bool ask(struct pd_reduce *reduce, int member, const struct pd_allreduce *how, size_t floats)
{
	struct pd_error err;
	struct pd_collective *c;
	bool issued;

	reduce->asked = member;
	reduce->job = (struct job){ 0 };
	pd_event_arm(&reduce->begins);
	pd_event_arm(&reduce->ends);
	reduce->members[member].after = event_of(reduce, &reduce->begins);
	c = pd_collective_new(&reduce->transport, &reduce->device, &reduce->stream, reduce->ranks,
			      member, how, floats, &err);
	issued = c && pd_collective_start(c, ADDRESS, 0, &reduce->begins, &reduce->ends) == 0 &&
		 pd_collective_issued(c);
	pd_collective_free(c);
	return issued;
}

/* The transfers and tasks, and who waits for each event, in the order in which it came. */
static void make_graph(struct pd_reduce *reduce)
{
	struct pd_arena *arena = &reduce->clock->arena;
	int *next = pd_calloc((size_t)reduce->event_count + 1, sizeof(int));

	for (size_t t = 0; t < reduce->transfer_count; t++) {
		struct transfer *x = &reduce->transfers[t];
		const struct pd_way *way = pd_clock_way(reduce->clock, reduce->ranks[x->from],
							reduce->ranks[x->to]);

		for (int set = 0; set < SETS; set++) {
			x->set[set] = pd_arena_take(arena, 1, sizeof(struct pd_doing));
			*x->set[set] = (struct pd_doing){
				.kind = PD_DOING_TRANSFER, .waits = x->waits, .all = x->waits,
				.way = way, .duration_ns = pd_way_ns(way, x->bytes) };
		}
	}
	for (int m = 0; m < reduce->n; m++)
		reduce->members[m].tasks = pd_arena_take(arena, reduce->members[m].job_count,
							 sizeof(struct pd_doing));
	reduce->first = pd_calloc((size_t)reduce->event_count + 1, sizeof(int));
	for (size_t w = 0; w < reduce->wish_count; w++)
		reduce->first[reduce->wishes[w].event + 1]++;
	for (int e = 0; e < reduce->event_count; e++)
		next[e + 1] = reduce->first[e + 1] += reduce->first[e];
	for (int set = 0; set < SETS; set++) {
		reduce->waiting[set] = pd_calloc(reduce->wish_count, sizeof(struct pd_doing *));
		memcpy(next, reduce->first, (size_t)reduce->event_count * sizeof(int));
		for (size_t w = 0; w < reduce->wish_count; w++) {
			const struct wish *wish = &reduce->wishes[w];

			reduce->waiting[set][next[wish->event]++] =
				wish->transfer >= 0 ? reduce->transfers[wish->transfer].set[set]
				: &reduce->members[wish->member].tasks[wish->job];
		}
	}
	free(next);
}

static struct pd_told told_of(const struct pd_reduce *reduce, int set, int event)
{
	if (event < 0)
		return (struct pd_told){ .rank = -1 };
	return (struct pd_told){ .rank = -1, .list = reduce->waiting[set] + reduce->first[event],
				 .count = reduce->first[event + 1] - reduce->first[event] };
}

struct pd_reduce *pd_reduce_new(struct pd_express_clock *clock, const struct pd_plan *plan, int stage,
				int64_t bytes)
{
	const struct pd_stage *at = &plan->stages[stage];
	struct pd_reduce *reduce = pd_zalloc(sizeof(*reduce));
	struct pd_allreduce how = pd_allreduce_choose(&plan->topology, at->ranks, at->replicas,
						      bytes);
	bool known = true;

	reduce->clock = clock;
	reduce->n = at->replicas;
	reduce->ranks = at->ranks;
	reduce->transport.ops = &note_transport;
	reduce->device.ops = &note_device;
	reduce->stream.device = &reduce->device;
	reduce->sum_bytes_per_s = plan->profile->sum_bytes_per_s;
	reduce->members = pd_calloc((size_t)reduce->n, sizeof(*reduce->members));
	for (reduce->bucket_count = 64; reduce->bucket_count < 2 * pd_allreduce_messages(&how);)
		reduce->bucket_count *= 2;
	reduce->buckets = pd_calloc(reduce->bucket_count, sizeof(int));
	for (int m = 0; m < reduce->n && known; m++)
		known = ask(reduce, m, &how, (size_t)bytes / sizeof(float));
	free(reduce->buckets);
	reduce->buckets = NULL;
	if (known) {
		make_graph(reduce);
		for (size_t t = 0; t < reduce->transfer_count; t++)
			for (int set = 0; set < SETS; set++) {
				struct transfer *x = &reduce->transfers[t];

				x->set[set]->told = told_of(reduce, set, x->sent);
				x->set[set]->received = told_of(reduce, set, x->received);
			}
		return reduce;
	}
	pd_reduce_free(reduce);
	return NULL;
}

void pd_reduce_free(struct pd_reduce *reduce)
{
	if (!reduce)
		return;
	for (int m = 0; m < reduce->n; m++) {
		free(reduce->members[m].posts);
		free(reduce->members[m].jobs);
	}
	for (int set = 0; set < SETS; set++)
		free(reduce->waiting[set]);
	free(reduce->members);
	free(reduce->transfers);
	free(reduce->wishes);
	free(reduce->first);
	free(reduce->buckets);
	free(reduce);
}

size_t pd_reduce_transfers(const struct pd_reduce *reduce)
{
	return reduce->transfer_count;
}

bool pd_reduce_begin(struct pd_reduce *reduce, int member, const struct pd_told *told,
		     struct pd_doing *hook)
{
	struct member *me = &reduce->members[member];
	int set = (int)(me->begun++ % SETS);

	for (size_t i = 0; i < me->post_count; i++) {
		const struct posted *posted = &me->posts[i];
		struct pd_doing *x = reduce->transfers[posted->transfer].set[set];

		if (x->waits <= 0 || x->left)
			return false;
		pd_clock_let(reduce->clock, x);
		if (!hook && posted->after)
			pd_clock_let(reduce->clock, x);
	}
	for (size_t i = 0; i < me->job_count; i++) {
		const struct job *job = &me->jobs[i];

		me->tasks[i] = (struct pd_doing){
			.kind = PD_DOING_TASK, .waits = job->waits - (!hook && job->after),
			.duration_ns = job->duration_ns,
			.told = i + 1 == me->job_count ? *told : told_of(reduce, set, job->event) };
		pd_clock_queue(reduce->clock, &me->queue, &me->tasks[i]);
	}
	if (hook)
		*hook = (struct pd_doing){ .kind = PD_DOING_HOOK,
					   .told = told_of(reduce, set, me->after) };
	return true;
}
