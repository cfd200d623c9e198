/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/memory.h"

#include "base/buffer_pieces.h"
#include "memory/scratch.h"
#include "small_profile.h"
#include "tap.h"

#include <stdlib.h>

/*
 * Tests three layers: tensor 0 arrives, layer 0 makes tensor 1 from it, layer 1 tensor 2 from 1, layer 2
 * tensor 3 from 1 and 2, and tensor 3 leaves.
 */
static void test_scratch(void)
{
	static const int zero[] = { 0 }, one[] = { 1 }, both[] = { 1, 2 };
	static const bool wants[] = { true, true };
	struct pd_contribution c0[1], c1[1], c2[2];
	struct pd_scratch_layer layers[] = {
		{ .input_count = 1, .inputs = zero, .wants = wants, .contributions = c0,
		  .backward_bytes = 10, .forward_bytes = 1000 },
		{ .input_count = 1, .inputs = one, .wants = wants, .contributions = c1 },
		{ .input_count = 2, .inputs = both, .wants = wants, .contributions = c2,
		  .backward_bytes = 65 },
	};
	struct pd_scratch_tensor tensors[] = {
		{ .bytes = 64, .arrives = true, .out_offset = 640 },
		{ .bytes = 100 }, { .bytes = 200 },
		{ .bytes = 64, .leaves = true, .in_offset = 320 },
	};

	is_int((int64_t)pd_scratch_place(layers, 3, tensors, 1), 1024,
	       "forward's temporaries are more than all of backward");
	ok(layers[2].diff_dst_at.buffer == PD_GRADIENT_IN && layers[2].diff_dst_at.offset == 320,
	   "the gradient of what leaves has arrived");
	is_int((int64_t)layers[2].offset, 0, "temporaries first");
	is_int((int64_t)c2[1].sum.offset, 128, "then the gradient of the last input");
	is_int((int64_t)c2[0].sum.offset, 384, "then that of the first");
	ok(c2[0].before.buffer == PD_NOWHERE, "which nobody has added to");
	is_int((int64_t)c1[0].part.offset, 0, "the part of another consumer, where there is room");
	ok(c1[0].before.offset == 384 && c1[0].sum.offset == 384, "is added to it, in place");
	ok(c0[0].sum.buffer == PD_GRADIENT_OUT && c0[0].sum.offset == 640,
	   "the gradient of what arrived leaves");
	layers[0].forward_bytes = 0;
	for (int t = 0; t < 4; t++)
		tensors[t].gradient = (struct pd_location){ PD_NOWHERE, 0 };
	is_int((int64_t)pd_scratch_place(layers, 3, tensors, 1), 512, "the most at one time");
	for (int t = 0; t < 4; t++)
		tensors[t].gradient = (struct pd_location){ PD_NOWHERE, 0 };
	tensors[1].bytes = 200;
	layers[1].in_place = true;
	layers[2].inputs = (const int[]){ 2, 2 };
	layers[2].input_count = 1;
	is_int((int64_t)pd_scratch_place(layers, 3, tensors, 1), 384,
	       "in place, the gradient goes on where it is");
	ok(c1[0].sum.offset == 128 && layers[0].offset == 0, "and temporaries go around it");
}

static bool is_at(struct pd_location location, size_t offset)
{
	return location.buffer == PD_SCRATCH && location.offset == offset;
}

/*
 * Tests a residual block: layer 1 makes tensor 2 from 1, layer 2 tensor 3 from 2 (in place), layer 3
 * tensor 4 from 3, layer 4 adds 4 and 1 to 5, and layer 5 makes tensor 6 from 5.  All have 64 bytes.
 */
static void test_passed_on(void)
{
	static const int in[] = { 0, 1, 2, 3, 5 }, both[] = { 4, 1 }, twice[] = { 4, 4 };
	static const bool wants[] = { true, true };
	struct pd_contribution c[6][2];
	struct pd_scratch_layer layers[6];
	struct pd_scratch_tensor tensors[7];

	for (int way = 0; way < 4; way++) {
		for (int l = 0; l < 6; l++)
			layers[l] = (struct pd_scratch_layer){
				.input_count = l == 4 ? 2 : 1, .wants = wants,
				.inputs = l == 4 ? both : &in[l < 4 ? l : 4], .contributions = c[l],
				.in_place = l == 2, .passes = l == 4,
			};
		for (int t = 0; t < 7; t++)
			tensors[t] = (struct pd_scratch_tensor){ .bytes = 64 };
		tensors[0].arrives = tensors[6].leaves = true;
		if (way == 1)
			layers[3].in_place = true;
		if (way == 2)
			layers[4].inputs = twice;
		if (way == 3)
			tensors[5].leaves = true;
		pd_scratch_place(layers, 6, tensors, 1);
		if (way == 0) {
			ok(is_at(c[4][0].part, c[5][0].sum.offset) && is_at(c[4][1].part,
			   c[5][0].sum.offset) && c[4][1].before.buffer == PD_NOWHERE,
			   "the gradient of a sum is that of what was added");
			ok(!is_at(c[3][0].sum, c[5][0].sum.offset),
			   "while the other needs it nobody writes there");
			ok(is_at(c[1][0].before, c[5][0].sum.offset) &&
			   is_at(c[1][0].sum, c[5][0].sum.offset) &&
			   !is_at(c[1][0].part, c[5][0].sum.offset),
			   "but when it is alone, a sum is made there");
		} else if (way == 1) {
			ok(!is_at(c[3][0].sum, c[5][0].sum.offset),
			   "nor in place of a gradient that another needs");
		} else if (way == 2) {
			ok(is_at(c[4][0].before, c[5][0].sum.offset) &&
			   is_at(c[4][0].part, c[5][0].sum.offset) &&
			   !is_at(c[4][0].sum, c[5][0].sum.offset),
			   "what is added to itself has its sum elsewhere");
		} else {
			ok(is_at(c[5][0].sum, c[4][0].part.offset) &&
			   c[5][0].before.buffer == PD_GRADIENT_IN, "a gradient that came is added");
		}
	}
}

/* Tests a sum that leaves the stage: its gradient has arrived, and is read where it is. */
static void test_passed_in(void)
{
	static const int first[] = { 0 }, both[] = { 1, 1 };
	static const bool wants[] = { true, true };
	struct pd_contribution c[2];
	struct pd_scratch_layer layers[] = {
		{ .input_count = 1, .inputs = first, .wants = wants },
		{ .input_count = 2, .inputs = both, .wants = wants, .passes = true,
		  .contributions = c },
	};
	struct pd_scratch_tensor tensors[] = {
		{ .bytes = 64, .arrives = true }, { .bytes = 64 }, { .bytes = 64, .leaves = true },
	};

	pd_scratch_place(layers, 2, tensors, 1);
	ok(c[1].part.buffer == PD_GRADIENT_IN && c[0].part.buffer == PD_GRADIENT_IN,
	   "what has arrived is passed on where it is");
	ok(c[0].sum.buffer == PD_SCRATCH, "and not written over");
}

static void test_pieces(void)
{
	is_int((int64_t)pd_piece_most(100, 3), 36,
	       "7 cache lines for three: 2, 2, and 3 with the end cut off");
	is_int((int64_t)(pd_piece_begin(100, 3, 3)), 100, "the last ends where the buffer does");
	is_int((int64_t)pd_piece_most(0, 3), 0, "nothing has empty pieces");
}

int main(void)
{
	struct pd_profile *profile = small_profile("a<x b<a c<b");
	struct pd_memory m;

	/* Layers b and c have parameters 2000 + 3000, stash 400 + 600, workspace the larger of 2 and 3. */
	pd_memory_of(profile, 1, 2, 1, 3, 100, 7, &m);
	is_int(m.weights_bytes, 4 * 5000, "a version for each minibatch in flight");
	is_int(m.gradient_bytes, 5000, "gradients");
	is_int(m.optimizer_bytes, 5000, "velocity");
	is_int(m.stash_bytes, 4 * 1000 + 5 * 100, "a slot for each minibatch in flight; an inbox"
	       " for each, and for the next");
	is_int(m.transfer_bytes, 2 * 100 + 2 * 7, "gradients on their way: two each");
	/* While c works, there are the gradient of b, 200 bytes, and c's own workspace of 3. */
	is_int(m.scratch_bytes, 203, "gradients of activations, workspace of one layer at a time");
	is_int(m.total_bytes, 20000 + 5000 + 5000 + 4500 + 214 + 203, "in all");
	pd_memory_of(profile, 1, 2, 2, 0, 0, 0, &m);
	is_int(m.weights_bytes, 5000, "one version without warm-up");
	is_int(m.transfer_bytes, 5000, "replicas: staging for the all-reduce");
	profile->layers[1].parameter_bytes = INT64_C(1) << 52;
	pd_memory_of(profile, 1, 2, 2, 1 << 20, 0, 0, &m);
	is_int(m.total_bytes, INT64_MAX, "what does not fit 64 bits is as large as can be said");
	pd_profile_free(profile);

	/* b and c read a, whose gradient (100) lives from c to a; b's part is a second one. */
	profile = small_profile("a<x b<a c<ab");
	pd_memory_of(profile, 0, 3, 1, 0, 0, 0, &m);
	is_int(m.scratch_bytes, 100 + 200 + 100 + 2, "a second gradient where one is added to");
	profile->layers[1].stash_bytes = 0;
	pd_memory_of(profile, 0, 2, 1, 0, 0, 0, &m);
	is_int(m.scratch_bytes, 100 + 2, "the gradient of the last layer's output has its own "
	       "place");
	pd_profile_free(profile);
	test_scratch();
	test_passed_on();
	test_passed_in();
	test_pieces();
	return done_testing();
}
