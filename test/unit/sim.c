/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of virtual time: streams, events, links. */
#include "base/mem.h"
#include "engine/device/sim/engine.h"
#include "engine/device/submit.h"
#include "engine/transport/sim/sim.h"
#include "tap.h"

#include <stdlib.h>

static const struct pd_work nothing;

#define LAYERS 4
#define MANY 500

static struct pd_profile_layer layers[LAYERS] = {
	{ .forward_ns = 10, .backward_ns = 20, .update_ns = 3, .update_apart_ns = 8,
	  .activation_bytes = 100,
	  .stash_bytes = 200, .parameter_bytes = 1000, .workspace_bytes = 7 },
	{ .forward_ns = 11, .backward_ns = 21, .update_ns = 4, .activation_bytes = 300,
	  .stash_bytes = 250, .parameter_bytes = 10, .workspace_bytes = 9 },
	{ .forward_ns = 12, .backward_ns = 22, .activation_bytes = 64, .stash_bytes = 64 },
	{ .forward_ns = 0, .backward_ns = 0 },
};
static struct pd_profile profile = { .name = "made up", .layer_count = LAYERS, .layers = layers };

/* A plan with layers 0 and 1 on rank 2, layer 2 on rank 1, layer 3 on ranks 0 and 3; both later stages
 * read the outputs of layers 0 and 1, so that rank 1 passes them on. */
static int ranks[4] = { 2, 1, 0, 3 };
static struct pd_stage stages[3] = {
	{ .first_layer = 0, .layer_count = 2, .replicas = 1, .ranks = ranks },
	{ .first_layer = 2, .layer_count = 1, .replicas = 1, .ranks = ranks + 1 },
	{ .first_layer = 3, .layer_count = 1, .replicas = 2, .ranks = ranks + 2 },
};
static struct pd_plan plan = { .profile = &profile, .stage_count = 3, .stages = stages,
			       .rank_count = 4 };
static int t01[] = { 0, 1 }, t012[] = { 0, 1, 2 };
static struct pd_link links[] = {
	{ .from = 0, .to = 1, .tensor_count = 2, .tensors = t01, .bytes = 400 },
	{ .from = 1, .to = 2, .tensor_count = 3, .tensors = t012, .bytes = 464 },
};
static int link0 = 0, link1 = 1;
static int in_count[] = { 0, 1, 1 }, out_count[] = { 1, 1, 0 };
static int *in[] = { NULL, &link0, &link1 }, *out[] = { &link0, &link1, NULL };
static struct pd_wiring wiring = { .link_count = 2, .links = links, .stage_count = 3,
				   .in_count = in_count, .out_count = out_count,
				   .in = in, .out = out };

static void is_event(const struct pd_event *ev, int64_t start, int64_t end, const char *what)
{
	ok(pd_event_done(ev), "%s: done", what);
	is_int(ev->start_ns, start, "%s: start", what);
	is_int(ev->end_ns, end, "%s: end", what);
}

static void run_out(struct pd_sim *sim)
{
	while (pd_sim_advance(sim))
		;
}

static const struct pd_pass pass;      /* a pass over all of backward */

static void test_streams(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_device *a = pd_sim_device(sim, 2), *b = pd_sim_device(sim, 1);
	struct pd_stream *s = ops->stream.open(a, NULL), *t = ops->stream.open(b, NULL);
	struct pd_update apart = { .weights = "a", .next = sim };
	struct pd_event f, g, h, u, v;

	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_event_arm(&h);
	pd_event_arm(&u);
	pd_event_arm(&v);
	/* Device b waits for work that is queued on device a only afterwards, and for work already done. */
	pd_submit_wait(t, &f);
	pd_submit_backward(t, pd_sim_net(sim, 1), &pass, 2, 1, &g);
	pd_submit_forward(s, pd_sim_net(sim, 0), &nothing.pass, 0, 2, &f);
	pd_submit_sum(s, NULL, (const float *const[2]){ NULL }, 2, 5, NULL);
	pd_submit_update(s, pd_sim_net(sim, 0), &nothing.update, 0, 2, &u);
	pd_submit_update(s, pd_sim_net(sim, 0), &apart, 0, 2, &v);
	ok(!pd_event_done(&f), "nothing happens before the clock moves");
	ok(pd_sim_advance(sim), "something happens");
	is_int(pd_sim_now_ns(sim), 21, "the clock is at the end of the forward");
	is_event(&f, 0, 21, "forward of layers 0 and 1");
	is_int(pd_sim_ready(sim), 2, "rank 2 has something to look at");
	is_int(pd_sim_ready(sim), -1, "nobody else has");
	pd_submit_wait(t, &f);
	pd_submit_forward(t, pd_sim_net(sim, 1), &nothing.pass, 2, 1, &h);
	run_out(sim);
	is_event(&g, 21, 43, "backward behind the wait");
	is_event(&h, 43, 55, "forward behind it on the stream");
	is_event(&u, 21, 28, "update behind a sum that takes no time");
	is_event(&v, 28, 40, "an update into another buffer takes its own time");
	is_int(pd_sim_ready(sim), 2, "update was first");
	is_int(pd_sim_ready(sim), 1, "then rank 1, once for two events");
	is_int(pd_sim_ready(sim), -1, "and that is all");
	ok(!pd_sim_advance(sim), "nothing more happens");
	ops->stream.close(s);
	ops->stream.close(t);
	pd_sim_free(sim);
}

/* Tests two processors, of which ranks 0 and 2 share one, ranks 1 and 3 the other. */
static void test_shared_processors(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_stream *s = ops->stream.open(pd_sim_device(sim, 0), NULL);
	struct pd_stream *t = ops->stream.open(pd_sim_device(sim, 2), NULL);
	struct pd_stream *u = ops->stream.open(pd_sim_device(sim, 1), NULL);
	struct pd_event f, g, h, k;

	pd_sim_set_processors(sim, 2, 1);
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_event_arm(&h);
	pd_event_arm(&k);
	pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 0, 1, &f);       /* 10 ns */
	pd_submit_forward(t, pd_sim_net(sim, 2), &nothing.pass, 0, 2, &g);       /* 21 ns */
	pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 2, 1, &k);       /* 12 ns */
	pd_submit_forward(u, pd_sim_net(sim, 1), &nothing.pass, 0, 2, &h);
	run_out(sim);
	is_event(&h, 0, 21, "alone on its processor");
	is_event(&f, 0, 20, "half a processor until the shorter one is done");
	is_event(&g, 0, 42, "the other goes on beside the next");
	is_event(&k, 20, 43, "which is alone at last");
	ops->stream.close(s);
	ops->stream.close(t);
	ops->stream.close(u);
	pd_sim_free(sim);
}

/* Tests that a worker's own work for an operation is done beside the next operation. */
static void test_operations(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_event f, g, h;
	struct pd_stream *s;
	struct pd_sim *sim;

	profile.operation_ns = 4;
	for (int shared = 0; shared < 2; shared++) {
		sim = pd_sim_new(&plan, &wiring);
		s = ops->stream.open(pd_sim_device(sim, 0), NULL);
		if (shared)
			pd_sim_set_processors(sim, 2, 1);
		pd_event_arm(&f);
		pd_event_arm(&g);
		pd_event_arm(&h);
		pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 0, 1, &f);       /* 10 ns */
		pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 0, 2, &g);       /* 21 ns */
		pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 2, 1, &h);       /* 12 ns */
		run_out(sim);
		is_event(&f, 0, 10, "nothing is before the first");
		is_event(&g, 10, shared ? 35 : 31, "the second");
		is_event(&h, shared ? 35 : 31, shared ? 51 : 43, "the third");
		ops->stream.close(s);
		pd_sim_free(sim);
	}
	profile.operation_ns = 0;
}

/* Tests spare processors: of six, four ranks of two threads have one each. */
static void test_own_processors(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_topology flat = { .levels = 1, .devices = 4, .level = { {
		.count = 4, .bandwidth_bytes_per_s = 1000000000 } } };
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &flat);
	struct pd_stream *s = ops->stream.open(pd_sim_device(sim, 0), NULL);
	struct pd_stream *t = ops->stream.open(pd_sim_device(sim, 2), NULL);
	struct pd_event f, g, sent, received;

	pd_sim_set_processors(sim, 6, 2);
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_event_arm(&sent);
	pd_event_arm(&received);
	pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 0, 1, &f);
	pd_submit_forward(t, pd_sim_net(sim, 2), &nothing.pass, 0, 2, &g);
	pd_transport_sim.send(pd_sim_transport(fabric, 0), 2, 1, NULL, 4, NULL, &sent);
	pd_transport_sim.recv(pd_sim_transport(fabric, 2), 0, 1, NULL, 4, NULL, &received);
	run_out(sim);
	is_event(&f, 0, 10, "who sends is not held up");
	is_event(&received, 0, 8, "what arrives is copied beside a computation");
	is_event(&g, 0, 25, "and that takes longer");
	ops->stream.close(s);
	ops->stream.close(t);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

/* Tests a link of half the profile's speed, which is therefore a network: both ends copy the data. */
static void test_network(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_topology flat = { .levels = 1, .devices = 4, .level = { {
		.count = 4, .bandwidth_bytes_per_s = 1000000000 } } };
	struct pd_event f, g, sent, received;
	struct pd_sim_fabric *fabric;
	struct pd_stream *s, *t;
	struct pd_sim *sim;

	profile.link_bandwidth_bytes_per_s = 2000000000;
	sim = pd_sim_new(&plan, &wiring);
	profile.link_bandwidth_bytes_per_s = 0;
	fabric = pd_sim_fabric_new(sim, &flat);
	s = ops->stream.open(pd_sim_device(sim, 0), NULL);
	t = ops->stream.open(pd_sim_device(sim, 2), NULL);
	pd_sim_set_processors(sim, 4, 1);
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_event_arm(&sent);
	pd_event_arm(&received);
	pd_submit_forward(s, pd_sim_net(sim, 2), &nothing.pass, 0, 1, &f);       /* 10 ns */
	pd_submit_forward(t, pd_sim_net(sim, 2), &nothing.pass, 0, 2, &g);       /* 21 ns */
	pd_transport_sim.send(pd_sim_transport(fabric, 0), 2, 1, NULL, 8, NULL, &sent);
	pd_transport_sim.recv(pd_sim_transport(fabric, 2), 0, 1, NULL, 8, NULL, &received);
	run_out(sim);
	is_event(&f, 0, 14, "who sends copies 4 ns beside its computation");
	is_event(&received, 0, 12, "what arrives is copied in the end, at half the pace");
	is_event(&g, 0, 25, "beside another computation");
	ops->stream.close(s);
	ops->stream.close(t);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

static void test_sums(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	const struct pd_mixed_sum round = { .n = 1, .narrow = true, .count = 6 };
	const struct pd_mixed_sum add = { .n = 2, .narrow_sources = 2, .count = 6 };
	struct pd_event f, g;
	struct pd_stream *s;
	struct pd_sim *sim;

	profile.sum_bytes_per_s = 1000000000;
	sim = pd_sim_new(&plan, &wiring);
	s = ops->stream.open(pd_sim_device(sim, 0), NULL);
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_submit_sum(s, NULL, (const float *const[2]){ NULL }, 2, 3, &f);
	pd_submit_sum(s, NULL, NULL, 0, 3, &g);
	run_out(sim);
	is_event(&f, 0, 12, "a sum at the profile's rate");
	is_event(&g, 12, 16, "zeros are only written");
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_submit_mixed_sum(s, &round, &f);
	pd_submit_mixed_sum(s, &add, &g);
	run_out(sim);
	is_event(&f, 16, 28, "without rates of their own, rounding reads and writes half as much as a sum");
	is_event(&g, 28, 48, "and adding 16 bits to others ten bytes of twelve");
	profile.round_bytes_per_s = 500000000;
	profile.mixed_sum_bytes_per_s = 250000000;
	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_submit_mixed_sum(s, &round, &f);
	pd_submit_mixed_sum(s, &add, &g);
	run_out(sim);
	is_event(&f, 48, 96, "rounding at its rate");
	is_event(&g, 96, 192, "and adding 16 bits to others at theirs");
	profile.sum_bytes_per_s = profile.round_bytes_per_s = profile.mixed_sum_bytes_per_s = 0;
	ops->stream.close(s);
	pd_sim_free(sim);
}

static void test_memory(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_device *device = pd_sim_device(sim, 3);
	void *a = ops->memory.alloc(device, 1000, NULL), *b = ops->memory.alloc(device, 0,
										NULL), *c;

	ok(a && b && a != b, "addresses differ and are not NULL");
	ops->memory.free(device, a);
	c = ops->memory.alloc(device, 600, NULL);
	is_int(sim->devices[3].bytes, 600, "bytes held");
	ops->memory.free(device, b);
	ops->memory.free(device, c);
	is_int(sim->devices[3].bytes, 0, "all freed");
	pd_sim_free(sim);
}

/* Tests blocks that are freed in any order, with others allocated in between. */
static void test_blocks(void)
{
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_device *device = pd_sim_device(sim, 0);
	int64_t held = 0;
	void *at[101] = { NULL };
	struct pd_error err;
	bool right = true;

	for (int64_t n = 0; n < 1000; n++) {
		int64_t i = n * 37 % 101, was = at[i] ? i + 1 : 0;

		ops->memory.free(device, at[i]);
		at[i] = n < 800 && n % 3 > 0 ? ops->memory.alloc(device, (size_t)i + 1,
								 &err) : NULL;
		held += (at[i] ? i + 1 : 0) - was;
		right = right && sim->devices[0].bytes == held;
	}
	ok(right && held == 0, "bytes held while a thousand blocks come and go");
	at[0] = ops->memory.alloc(device, INT64_MAX, &err);
	ok(at[0] && !ops->memory.alloc(device, 1, &err), "no more than can be said");
	is_str(err.text, "rank 0 holds 2^63 bytes or more", "says so");
	ops->memory.free(device, at[0]);
	pd_sim_free(sim);
}

static void test_sizes(void)
{
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	const struct pd_net_sizes *z0 = pd_device_sim.net.sizes(pd_sim_net(sim, 0));
	const struct pd_net_sizes *z1 = pd_device_sim.net.sizes(pd_sim_net(sim, 1));
	const struct pd_net_sizes *z2 = pd_device_sim.net.sizes(pd_sim_net(sim, 2));

	is_int(z0->weights_bytes, 1024 + 64, "weights: aligned parameters");
	is_int(z0->scratch_bytes, 9, "scratch: the largest workspace");
	is_int(z0->in_count, 0, "nothing comes into the first stage");
	is_int(z0->out_count, 2, "two tensors leave it");
	is_int(z0->out[1].tensor, 1, "the second is layer 1's");
	is_int(z0->out[1].bytes, 300, "its size");
	is_int((int64_t)z0->out[1].offset, 256, "in a slot: behind what layer 0 keeps");
	is_int(z0->slot_bytes, 256 + 320, "a slot: the tensor is larger than its layer's stash");
	is_int(z0->gradient_in_bytes, 128 + 320, "gradients arriving");
	is_int(z1->in_count, 2, "two come into the second");
	is_int(z1->out_count, 3, "three leave it");
	ok(z1->out[1].inbox && z1->out[1].offset == z1->in[1].offset, "one passed on stays in place");
	ok(!z1->out[2].inbox && z1->out[2].offset == 0, "its own lies in the slot");
	is_int(z1->out[2].gradient_offset, 128 + 320, "and so does its gradient");
	is_int(z1->gradient_out_bytes, 128 + 320, "gradients leaving");
	is_int(z2->in_count, 3, "three come into the last");
	pd_sim_free(sim);
}

/* Two servers of two devices; 1 byte per ns inside, 1 byte per 2 ns and 50 ns between. */
static const struct pd_topology topology = {
	.levels = 2, .devices = 4,
	.level = { { .count = 2, .bandwidth_bytes_per_s = 1000000000, .latency_ns = 5 },
		   { .count = 2, .bandwidth_bytes_per_s = 500000000, .latency_ns = 50 } },
};

struct move {
	struct pd_event sent, received;
};

static void move(struct pd_sim_fabric *fabric, int from, int to, uint64_t tag, size_t bytes,
		 struct move *m)
{
	struct pd_transport *a = pd_sim_transport(fabric, from), *b = pd_sim_transport(fabric, to);

	pd_event_arm(&m->sent);
	pd_event_arm(&m->received);
	a->ops->send(a, to, tag, NULL, bytes, NULL, &m->sent);
	b->ops->recv(b, from, tag, NULL, bytes, NULL, &m->received);
}

static void test_links(void)
{
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &topology);
	struct move near, far, behind, back, other, long_one;

	move(fabric, 0, 1, 1, 100, &near);
	move(fabric, 0, 2, 1, 100, &far);
	move(fabric, 1, 3, 1, 10, &other);
	move(fabric, 1, 3, 2, 100, &long_one);
	move(fabric, 0, 1, 2, 10, &behind);
	move(fabric, 2, 0, 1, 100, &back);
	run_out(sim);
	is_event(&near.sent, 0, 100, "inside a server, sent");
	is_event(&near.received, 0, 105, "inside a server, received");
	is_event(&other.sent, 0, 20, "to the other server, at its link's rate");
	is_event(&other.received, 0, 70, "with the outer level's latency");
	is_event(&long_one.sent, 20, 220, "another one, behind it");
	is_event(&far.sent, 220, 420, "from another device, behind that on the server's link");
	is_event(&behind.sent, 100, 110, "what waits there holds up nobody on the device's link");
	is_event(&back.sent, 0, 200, "the other way round is free");
	move(fabric, 0, 2, 3, 100, &far);
	move(fabric, 0, 1, 3, 10, &near);
	move(fabric, 1, 3, 3, 10, &other);
	run_out(sim);
	is_event(&far.sent, 470, 670, "again between servers");
	is_event(&near.sent, 570, 580, "the device's own link is free when it is through there");
	is_event(&other.sent, 670, 690, "the server's when it is through that");
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

/* Tests that the transfer that waits longest goes first, also if it comes from another link. */
static void test_turns(void)
{
	static const struct pd_topology flat = {
		.levels = 1, .devices = 4,
		.level = { { .count = 4, .bandwidth_bytes_per_s = 1000000000 } } };
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &flat);
	struct pd_transport *a = pd_sim_transport(fabric, 0), *b = pd_sim_transport(fabric, 1);
	struct move first, wide, older, younger, last;
	struct pd_event sent, received;

	move(fabric, 0, 2, 1, 10, &first);
	move(fabric, 3, 1, 1, 30, &wide);
	move(fabric, 0, 1, 1, 5, &older);
	move(fabric, 2, 1, 1, 5, &younger);
	run_out(sim);
	is_event(&older.sent, 30, 35, "moved from one link to another, it keeps its turn");
	is_event(&younger.sent, 35, 40, "before a younger one there");

	move(fabric, 0, 2, 2, 10, &first);
	move(fabric, 0, 3, 2, 5, &last);
	pd_event_arm(&sent);
	pd_event_arm(&received);
	a->ops->send(a, 1, 2, NULL, 5, &first.sent, &sent);
	b->ops->recv(b, 0, 2, NULL, 5, NULL, &received);
	run_out(sim);
	is_event(&last.sent, 50, 55, "who waited gets the link when it is free");
	is_event(&sent, 55, 60, "not who is ready at that very moment");
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

/*
 * Tests that a transfer which needs two links gets them when both are free at one time, before younger ones
 * that need one of them, and that it is overtaken 32 times at most where they never are.
 */
static void test_two_busy_links(void)
{
	static const struct pd_topology flat = {
		.levels = 1, .devices = 4,
		.level = { { .count = 4, .bandwidth_bytes_per_s = 1000000000 } } };
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &flat);
	struct move both, up[80], down[80];

	move(fabric, 2, 3, 1, 10, &down[0]);
	move(fabric, 0, 1, 1, 10, &up[0]);
	move(fabric, 0, 3, 1, 10, &both);
	move(fabric, 2, 3, 2, 10, &down[1]);
	move(fabric, 0, 1, 2, 10, &up[1]);
	run_out(sim);
	is_event(&both.sent, 10, 20, "it is before a younger one, whichever link was free first");
	is_event(&down[1].sent, 20, 30, "which comes next");

	move(fabric, 0, 1, 11, 10, &up[0]);
	move(fabric, 2, 3, 11, 5, &down[0]);
	move(fabric, 0, 3, 11, 10, &both);
	for (int i = 1; i < 80; i++) {
		move(fabric, 0, 1, (uint64_t)(11 + i), 10, &up[i]);
		move(fabric, 2, 3, (uint64_t)(11 + i), 10, &down[i]);
	}
	run_out(sim);
	is_event(&up[16].sent, 190, 200, "of two links that are never free at one time");
	is_event(&both.sent, 200, 210, "one is kept for it in the end");
	is_event(&down[17].sent, 210, 220, "and younger ones wait then");
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

static void test_dependent_transfers(void)
{
	static const struct pd_topology free_links = { .levels = 1, .devices = 4,
						       .level = { { .count = 4 } } };
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &free_links);
	struct pd_transport *a = pd_sim_transport(fabric, 2), *b = pd_sim_transport(fabric, 1);
	struct pd_stream *s = ops->stream.open(pd_sim_device(sim, 2), NULL);
	struct pd_stream *t = ops->stream.open(pd_sim_device(sim, 1), NULL);
	struct pd_event f, g, sent, received, room;

	pd_event_arm(&f);
	pd_event_arm(&g);
	pd_event_arm(&sent);
	pd_event_arm(&received);
	pd_event_arm(&room);
	b->ops->recv(b, 2, 7, NULL, 5, &room, &received);
	pd_submit_wait(t, &received);
	pd_submit_backward(t, pd_sim_net(sim, 1), &pass, 2, 1, &g);
	ok(!pd_sim_advance(sim), "a receive alone does not happen");
	pd_submit_forward(s, pd_sim_net(sim, 0), &nothing.pass, 0, 1, &f);
	a->ops->send(a, 1, 7, NULL, 5, &f, &sent);
	run_out(sim);
	ok(!pd_event_done(&sent), "nor does a transfer without room at the receiver");
	pd_submit_update(s, pd_sim_net(sim, 0), &nothing.update, 0, 1, &room);
	run_out(sim);
	is_event(&sent, 13, 13, "it starts after both events, and takes no time");
	is_event(&g, 13, 35, "what waited for it comes behind");
	ops->stream.close(s);
	ops->stream.close(t);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

/* Tests many transfers that are posted in one order and matched in another. */
static void test_many_tags(void)
{
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_sim_fabric *fabric = pd_sim_fabric_new(sim, &topology);
	struct pd_transport *a = pd_sim_transport(fabric, 0), *b = pd_sim_transport(fabric, 1);
	static struct pd_event sent[MANY], received[MANY];
	bool in_order = true;

	for (int i = 0; i < MANY; i++) {
		pd_event_arm(&sent[i]);
		a->ops->send(a, 1, (uint64_t)i, NULL, 1, NULL, &sent[i]);
	}
	for (int i = MANY - 1; i >= 0; i--) {
		pd_event_arm(&received[i]);
		b->ops->recv(b, 0, (uint64_t)i, NULL, 1, NULL, &received[i]);
	}
	run_out(sim);
	for (int i = 0; i < MANY; i++)
		in_order &= received[i].start_ns == MANY - 1 - i;
	ok(in_order, "%d transfers take their turns in the order in which they were matched", MANY);
	pd_sim_fabric_free(fabric);
	pd_sim_free(sim);
}

/* Tests that tasks of random length, on a stream per rank, end in order of time, then of start. */
static void test_order(void)
{
	static struct pd_profile_layer various[MANY];
	static int all[MANY];
	static struct pd_event events[MANY];
	struct pd_profile long_profile = { .layer_count = MANY, .layers = various };
	struct pd_stage one = { .layer_count = MANY, .replicas = MANY, .ranks = all };
	struct pd_plan wide = { .profile = &long_profile, .stage_count = 1, .stages = &one,
				.rank_count = MANY };
	int *none[1] = { NULL }, zero[1] = { 0 };
	struct pd_wiring no_links = { .stage_count = 1, .in_count = zero, .out_count = zero,
				      .in = none, .out = none };
	struct pd_sim *sim;
	struct pd_stream *streams[MANY];
	uint32_t random = 1;
	int before = -1, count = 0;
	bool in_order = true, on_time = true;

	for (int i = 0; i < MANY; i++) {
		random = random * 1664525 + 1013904223;
		various[i].forward_ns = random >> 26;
		all[i] = i;
	}
	sim = pd_sim_new(&wide, &no_links);
	for (int i = 0; i < MANY; i++) {
		streams[i] = pd_device_sim.stream.open(pd_sim_device(sim, i), NULL);
		pd_event_arm(&events[i]);
		pd_submit_forward(streams[i], pd_sim_net(sim, i), &nothing.pass, i, 1, &events[i]);
	}
	while (pd_sim_advance(sim))
		for (int r; (r = pd_sim_ready(sim)) >= 0; before = r, count++) {
			on_time &= events[r].end_ns == various[r].forward_ns
				   && events[r].end_ns == pd_sim_now_ns(sim);
			in_order &= before < 0 || events[before].end_ns < events[r].end_ns
				    || (events[before].end_ns == events[r].end_ns && before < r);
		}
	is_int(count, MANY, "all tasks ended");
	ok(on_time, "each at its time");
	ok(in_order, "those of one time in the order in which they began");
	for (int i = 0; i < MANY; i++)
		pd_device_sim.stream.close(streams[i]);
	pd_sim_free(sim);
}

/* Tests that streams which wait for the same event go on in the order in which they came. */
static void test_waiters(void)
{
	static const int order[] = { 3, 1, 0 };
	const struct pd_device_ops *ops = &pd_device_sim;
	struct pd_sim *sim = pd_sim_new(&plan, &wiring);
	struct pd_stream *s = ops->stream.open(pd_sim_device(sim, 2), NULL);
	struct pd_stream *t = ops->stream.open(pd_sim_device(sim, 2), NULL), *waiting[3];
	struct pd_event f, g, done[3];

	pd_event_arm(&f);
	pd_event_arm(&g);
	for (int i = 0; i < 3; i++) {
		waiting[i] = ops->stream.open(pd_sim_device(sim, order[i]), NULL);
		pd_event_arm(&done[i]);
		if (i == 1)
			pd_submit_wait(waiting[i], &g);
		pd_submit_wait(waiting[i], &f);
		pd_submit_copy(waiting[i], NULL, NULL, 0, PD_COPY_WITHIN, &done[i]);
	}
	pd_submit_forward(s, pd_sim_net(sim, 0), &nothing.pass, 0, 2, &f);
	pd_submit_copy(t, NULL, NULL, 0, PD_COPY_WITHIN, &g);
	run_out(sim);
	is_int(pd_sim_ready(sim), 2, "what three wait for");
	for (int i = 0; i < 3; i++) {
		is_event(&done[i], 21, 21, "one that waited");
		is_int(pd_sim_ready(sim), order[i], "number %d to come is number %d to go on", i, i);
		ops->stream.close(waiting[i]);
	}
	ops->stream.close(s);
	ops->stream.close(t);
	pd_sim_free(sim);
}

int main(void)
{
	test_streams();
	test_waiters();
	test_shared_processors();
	test_operations();
	test_own_processors();
	test_network();
	test_sums();
	test_memory();
	test_blocks();
	test_sizes();
	test_links();
	test_turns();
	test_two_busy_links();
	test_dependent_transfers();
	test_many_tags();
	test_order();
	return done_testing();
}
