/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which passes the CUDA device takes for the same (lib/run/device/cuda/graph_cache.h). */
#include "tap.h"

#include "run/device/cuda/graph_cache.h"

#include <string.h>

static char memory[PD_GRAPH_CACHE_KEYS + 64];

static struct pd_pass some_pass(void)
{
	return (struct pd_pass){
		.weights = memory, .state = memory + 1, .gradients = memory + 2,
		.inbox = memory + 3, .slot = memory + 4, .scratch = memory + 5,
		.gradient_in = memory + 6, .gradient_out = memory + 7,
		.first_sample = 640, .valid = 64,
	};
}

static struct pd_graph_cache cache;

/* Returns how often the pass has been seen, this time included, or -1 if the cache is full. */
static int seen(const struct pd_pass *pass, bool backward, int from, int count)
{
	const struct pd_graph_key key = pd_graph_key(pass, backward, from, count);
	const struct pd_graph_entry *entry = pd_graph_cache_see(&cache, &key);

	return entry ? entry->seen : -1;
}

static void test_same(void)
{
	struct pd_loss loss;
	struct pd_pass pass = some_pass();

	memset(&cache, 0, sizeof(cache));
	ok(seen(&pass, false, 0, 5) == 1 && seen(&pass, false, 0, 5) == 2,
	   "the same pass is seen again");
	pass.first_sample = 704;
	pass.valid = 3;
	pass.losses = &loss;
	ok(seen(&pass, false, 0, 5) == 2, "other samples and another place for the loss: the same");
	pass.gradients = pass.gradient_in = pass.gradient_out = NULL;
	pass.scale = (const struct pd_scale *)memory;
	pass.part = PD_BACKWARD_WEIGHT;
	ok(seen(&pass, false, 0, 5) == 2, "what only backward reads does not tell forwards apart");
	ok(cache.count == 1, "one place was taken");
}

static void test_different(void)
{
	struct pd_pass pass = some_pass(), other;

	memset(&cache, 0, sizeof(cache));
	seen(&pass, false, 0, 5);
	ok(seen(&pass, true, 0, 5) == 1, "backward is another");
	ok(seen(&pass, false, 0, 4) == 1 && seen(&pass, false, 1, 4) == 1, "so are other layers");
#define OTHER(backward, field, value) do { \
		other = pass; \
		other.field = value; \
		ok(seen(&other, backward, 0, 5) == 1, "so is another " #field); \
	} while (0)
	OTHER(false, weights, memory + 20);
	OTHER(false, state, memory + 21);
	OTHER(false, inbox, memory + 22);
	OTHER(false, slot, memory + 23);
	OTHER(false, scratch, memory + 24);
	OTHER(false, evaluate, true);
	OTHER(false, again, true);
	OTHER(true, weights, memory + 20);
	OTHER(true, gradients, memory + 21);
	OTHER(true, inbox, memory + 22);
	OTHER(true, slot, memory + 23);
	OTHER(true, scratch, memory + 24);
	OTHER(true, gradient_in, memory + 25);
	OTHER(true, gradient_out, memory + 26);
	OTHER(true, scale, (const struct pd_scale *)(memory + 27));
	OTHER(true, part, PD_BACKWARD_INPUT);
#undef OTHER
	ok(seen(&pass, false, 0, 5) == 2 && seen(&pass, true, 0, 5) == 2,
	   "and the first ones are still known");
}

static int seen_iteration(const struct pd_pass *pass, const struct pd_update *update)
{
	const struct pd_graph_key key = pd_graph_key_of_iteration(pass, update, 0, 5);
	const struct pd_graph_entry *entry = pd_graph_cache_see(&cache, &key);

	return entry ? entry->seen : -1;
}

static void test_iterations(void)
{
	struct pd_update update = {
		.kind = PD_ADAM, .weights = memory, .next = memory + 1, .velocity = memory + 2,
		.second = memory + 3, .master = memory + 4, .gradients = memory + 5,
		.rate = 0.1, .count = 7,
	}, other;
	struct pd_pass pass = some_pass();

	memset(&cache, 0, sizeof(cache));
	seen(&pass, true, 0, 5);
	ok(seen_iteration(&pass, NULL) == 1 && seen_iteration(&pass, &update) == 1,
	   "an iteration is another, and with an update");
	update.rate = 0.05;
	update.count = 8;
	ok(seen_iteration(&pass, &update) == 2, "with another rate it is the same");
#define OTHER(field, value) do { \
		other = update; \
		other.field = value; \
		ok(seen_iteration(&pass, &other) == 1, "an update's other " #field); \
	} while (0)
	OTHER(kind, PD_SGD);
	OTHER(kind, PD_ADAMW);
	OTHER(weights, memory + 20);
	OTHER(next, memory + 21);
	OTHER(velocity, memory + 22);
	OTHER(second, memory + 23);
	OTHER(master, memory + 24);
	OTHER(gradients, memory + 25);
#undef OTHER
	pass.slot = memory + 30;
	ok(seen_iteration(&pass, &update) == 1, "another slot");
}

/* Tests which works are one graph; the net is never looked into. */
static void test_joint(void)
{
	struct pd_net *net = (struct pd_net *)memory;
	struct pd_work row[] = {
		{ .kind = PD_WORK_UPDATE, .net = net, .count = 5, .update = { .kind = PD_ADAM } },
		{ .kind = PD_WORK_FORWARD, .net = net, .count = 5, .pass = some_pass() },
		{ .kind = PD_WORK_BACKWARD, .net = net, .count = 5, .pass = some_pass() },
		{ .kind = PD_WORK_COPY },
	}, other[4];
	struct pd_work *update = other, *forward = other + 1, *backward = other + 2;

	ok(pd_graph_joint(row, 4) == 3 && pd_graph_joint(row, 3) == 3 && pd_graph_joint(row + 1, 3) == 2,
	   "forward and backward are one, with an update before them or without");
	ok(pd_graph_joint(row, 2) == 1 && pd_graph_joint(row + 1, 1) == 1 && pd_graph_joint(row + 2, 2) == 1,
	   "but not unless all of them came");
#define OTHER(change, joint_with_update, joint) do { \
		memcpy(other, row, sizeof(row)); \
		change; \
		ok(pd_graph_joint(other, 4) == joint_with_update && pd_graph_joint(other + 1, 3) == joint, #change); \
	} while (0)
	OTHER(update->kind = PD_WORK_WAIT, 1, 2);
	OTHER(update->net = NULL, 1, 2);
	OTHER(update->count = 4, 1, 2);
	OTHER(update->update.norm.vector = (double *)memory, 1, 2);
	OTHER(update->update.delta = memory, 1, 2);
	OTHER(update->update.spares_vectors = true, 3, 2);
	OTHER(update->update.kind = PD_LARS, 1, 2);
	OTHER(forward->pass.evaluate = true, 1, 1);
	OTHER(forward->pass.again = true, 1, 1);
	OTHER(forward->pass.first_sample = 704, 1, 1);
	OTHER(forward->pass.slot = memory + 20, 1, 1);
	OTHER(forward->pass.weights = memory + 20, 1, 1);
	OTHER(backward->kind = PD_WORK_COPY, 1, 1);
	OTHER(backward->net = NULL, 1, 1);
	OTHER(backward->from = 1, 1, 1);
	OTHER(backward->pass.part = PD_BACKWARD_INPUT, 1, 1);
#undef OTHER
}

static void test_full(void)
{
	struct pd_pass pass = some_pass();
	bool once = true, again = true;

	memset(&cache, 0, sizeof(cache));
	for (int i = 0; i < PD_GRAPH_CACHE_KEYS; i++) {
		pass.slot = memory + i;
		once = once && seen(&pass, i % 2, 0, 1) == 1;
	}
	for (int i = 0; i < PD_GRAPH_CACHE_KEYS; i++) {
		pass.slot = memory + i;
		again = again && seen(&pass, i % 2, 0, 1) == 2;
	}
	ok(once && again && cache.count == PD_GRAPH_CACHE_KEYS, "%d are told apart",
	   PD_GRAPH_CACHE_KEYS);
	pass.slot = memory + PD_GRAPH_CACHE_KEYS;
	ok(seen(&pass, false, 0, 1) == -1, "and no more");
	pass.slot = memory;
	ok(seen(&pass, false, 0, 1) == 2, "which the others do not mind");
}

/* Tests passes that differ in one field alone, so many that several are looked for at the same place. */
static void test_crowded(const char *what, size_t field)
{
	struct pd_pass pass = some_pass();
	bool once = true;

	memset(&cache, 0, sizeof(cache));
	for (int i = 0; i < PD_GRAPH_CACHE_KEYS; i++) {
		void *at = memory + i;

		memcpy((char *)&pass + field, &at, sizeof(at));
		once = once && seen(&pass, true, 0, 1) == 1;
	}
	ok(once, "%d that differ in %s are told apart", PD_GRAPH_CACHE_KEYS, what);
}

int main(void)
{
#define CROWDED(field) test_crowded(#field, offsetof(struct pd_pass, field))
	CROWDED(weights);
	CROWDED(state);
	CROWDED(inbox);
	CROWDED(slot);
	CROWDED(scratch);
	CROWDED(scale);
	CROWDED(gradients);
	CROWDED(gradient_in);
	CROWDED(gradient_out);
#undef CROWDED
	test_same();
	test_different();
	test_iterations();
	test_joint();
	test_full();
	return done_testing();
}
