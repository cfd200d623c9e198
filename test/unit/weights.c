/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the version store with host memory as the device's. */
#include "tap.h"

#include "engine/worker/weights.h"

#include <stdlib.h>

/* Returns how many versions live now. */
static int live(const struct pd_weights *weights)
{
	int n = 0;

	for (int i = 0; i < weights->count; i++)
		n += weights->versions[i].number >= 0;
	return n;
}

static void *host_alloc(struct pd_device *device, size_t bytes, struct pd_error *err)
{
	return calloc(1, bytes);
}

static void host_free(struct pd_device *device, void *ptr)
{
	free(ptr);
}

static const struct pd_device_ops host_ops = { .name = "host", .memory.alloc = host_alloc,
					       .memory.free = host_free };
static struct pd_device host = { .ops = &host_ops };

/* Tests 1F1B of a stage with `warmup` forwards ahead: the versions that are read, and how many live. */
static void steady_state(int warmup)
{
	struct pd_weights w;
	struct pd_error err;
	bool right = true;
	int most = 0;

	pd_weights_init(&w, &host, 64, warmup + 1, 0, &err);
	for (int64_t i = 0; i < 50; i++) {
		int64_t version = i < warmup ? 0 : i - warmup;
		const void *from;
		void *to;

		/* The number that the version's update wrote is still in its buffer. */
		right = right && *(const int64_t *)pd_weights_read(&w, version) == version;
		if (i < warmup)
			continue;
		version = i - warmup < warmup ? 0 : i - 2 * warmup;
		right = right && *(const int64_t *)pd_weights_find(&w, version) == version;
		pd_weights_done(&w, version);
		pd_weights_step(&w, i - warmup + 1, i - warmup + 1, &from, &to);
		right = right && *(const int64_t *)from == i - warmup;
		*(int64_t *)to = i - warmup + 1;
		most = live(&w) > most ? live(&w) : most;
	}
	ok(right, "warm-up %d: every reader finds its version as it was written", warmup);
	is_int(most, warmup + 1, "warm-up %d: as many versions live as minibatches in flight, and one",
	       warmup);
	pd_weights_release(&w);
}

static void in_place(void)
{
	struct pd_weights w;
	struct pd_error err;
	const void *from;
	void *to;

	pd_weights_init(&w, &host, 64, 2, 0, &err);
	pd_weights_read(&w, 0);
	pd_weights_done(&w, 0);
	pd_weights_step(&w, 1, 1, &from, &to);
	ok(from == to, "nobody reads the old version: updated in place");
	pd_weights_read(&w, 1);
	pd_weights_step(&w, 2, 2, &from, &to);
	ok(from != to, "somebody reads the old version: updated into another buffer");
	is_int(live(&w), 2, "both live");
	pd_weights_done(&w, 1);
	is_int(live(&w), 1, "the old one is free with its last reader");
	pd_weights_release(&w);
}

static void restored(void)
{
	struct pd_weights w;
	struct pd_error err;
	void *old[2], *to;
	const void *from;

	pd_weights_init(&w, &host, 64, 3, 10, &err);
	old[0] = pd_weights_restore(&w, 8);
	old[1] = pd_weights_restore(&w, 9);
	is_int(live(&w), 3, "restored versions live before anybody reads them");
	ok(pd_weights_read(&w, 8) == old[0] && pd_weights_read(&w, 9) == old[1],
	   "and are found where they were put");
	pd_weights_done(&w, 8);
	is_int(live(&w), 3, "and until an update says that nobody will read them");
	pd_weights_step(&w, 11, 10, &from, &to);
	ok(to == old[0], "then the free one takes the next version");
	pd_weights_release(&w);
}

int main(void)
{
	for (int warmup = 0; warmup < 5; warmup++)
		steady_state(warmup);
	in_place();
	restored();
	return done_testing();
}
