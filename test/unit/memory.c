/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/memory.h"

#include "small_profile.h"
#include "tap.h"

#include <stdlib.h>

int main(void)
{
	struct pd_profile *profile = small_profile("a<x b<a c<b");
	struct pd_memory m;

	/* layers b and c: parameters 2000 + 3000, stash 400 + 600, workspace the larger of 2 and 3 */
	pd_memory_of(profile, 1, 2, 1, 3, 100, 7, &m);
	is_int(m.weights_bytes, 4 * 5000, "a version for each minibatch in flight");
	is_int(m.gradient_bytes, 5000, "gradients");
	is_int(m.optimizer_bytes, 5000, "velocity");
	is_int(m.stash_bytes, 4 * 1000 + 5 * 100, "a slot for each minibatch in flight; an inbox"
	       " for each, and for the next");
	is_int(m.transfer_bytes, 2 * 100 + 2 * 7, "gradients on their way: two each");
	/* while c works: the gradient of b, which is 200 bytes, and its own workspace of 3 */
	is_int(m.scratch_bytes, 203, "gradients of activations, workspace of one layer at a time");
	is_int(m.total_bytes, 20000 + 5000 + 5000 + 4500 + 214 + 203, "in all");
	pd_memory_of(profile, 1, 2, 2, 0, 0, 0, &m);
	is_int(m.weights_bytes, 5000, "one version without warm-up");
	is_int(m.transfer_bytes, 5000, "replicas: staging for the all-reduce");
	profile->layers[1].parameter_bytes = INT64_C(1) << 52;
	pd_memory_of(profile, 1, 2, 2, 1 << 20, 0, 0, &m);
	is_int(m.total_bytes, INT64_MAX, "what does not fit 64 bits is as large as can be said");
	pd_profile_free(profile);

	/* a is used by b and c: its gradient (100) lives from c to a; b's part is a second one */
	profile = small_profile("a<x b<a c<ab");
	pd_memory_of(profile, 0, 3, 1, 0, 0, 0, &m);
	is_int(m.scratch_bytes, 100 + 200 + 100 + 2, "a second gradient where one is added to");
	profile->layers[1].stash_bytes = 0;
	pd_memory_of(profile, 0, 2, 1, 0, 0, 0, &m);
	is_int(m.scratch_bytes, 100 + 2, "the gradient of the last layer's output has its own "
	       "place");
	pd_profile_free(profile);
	return done_testing();
}
