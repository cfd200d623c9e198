/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max pooling by plain loops, which are right for a NaN and infinity, too.  Channels lie in blocks
 * of `lanes`, side by side: 1 of them (plain), all (channels last), or some, the last block padded with
 * zeros.
 */
#pragma once

#include "model/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_maxpool {
	enum pd_dtype dtype;
	int64_t batch, blocks, lanes;
	int64_t in[2], out[2];          /* height and width */
	int64_t kernel[2], stride[2], padding[2];
};

/* Tells whether oneDNN's kernels may be wrong: a number in src is not finite. */
bool pd_maxpool_must(const struct pd_maxpool *m, const void *src);
/* Returns the bytes of the choices that forward keeps for backward. */
size_t pd_maxpool_bytes(const struct pd_maxpool *m);
void pd_maxpool_forward(const struct pd_maxpool *m, void *dst, void *choices, const void *src);
void pd_maxpool_backward(const struct pd_maxpool *m, void *diff_src, const void *choices,
			 const void *diff_dst);
