/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/even.h"

#include "base/mem.h"
#include "doors/layout/blocks.h"
#include "doors/layout/segments.h"

/*
 * Where the number of blocks does not divide, the embedding and the head count as one block each, and the first stages
 * have one more, as in torchtitan (generate_llm_fqn_per_model_part).
 */
static int *even_stages(const struct pd_profile *profile, int stages)
{
	struct pd_blocks blocks;
	int *layers = NULL, count, before = 0, from = 0;

	pd_blocks_init(&blocks, profile);
	count = blocks.decoder_count;
	if (count > 0 && stages <= count + 2) {
		bool divides = count % stages == 0;
		int all = divides ? count : count + 2;
		int first = blocks.decoder_first - !divides;

		layers = pd_calloc((size_t)stages, sizeof(*layers));
		for (int s = 0; s < stages; s++) {
			int end = profile->layer_count;

			before += all / stages + (s < all % stages);
			if (s + 1 < stages)
				end = blocks.first[first + before];
			layers[s] = end - from;
			from = end;
		}
	}
	pd_blocks_release(&blocks);
	return layers;
}

const struct pd_layout_door pd_layout_door = { even_stages, pd_layout_segments };
