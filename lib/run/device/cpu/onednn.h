/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneDNN, as much of it as the CPU device uses.  Its interface (version 3, or 2.6) is known to the
 * files that include dnn.h and to nobody else.
 *
 * A layout is how a tensor lies in memory, perhaps blocked and padded.  An op is one
 * primitive, ready to be given pointers.  Both belong to the pd_onednn that made them and
 * live as long as it does.  Ops are made for the number of OpenMP threads in force when
 * they are made, and must be run with the same.  An op is run by one thread at a time.
 */
#pragma once

#include "base/error.h"
#include "model/dtype.h"
#include "run/device/cpu/product.h"
#include "run/device/curve.h"
#include "run/device/propagation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_onednn;
struct pd_layout;
struct pd_primitive;

/*
 * Layouts are of that type but where said.  So are ops, where oneDNN's kernels for it are the
 * quickest of this processor; else ops are f32, and what they take and give is widened and rounded
 * around them (reorder.c).  NULL with *err.
 */
struct pd_onednn *pd_onednn_open(enum pd_dtype dtype, struct pd_error *err);
/* Are ops f32, and the type another? */
bool pd_onednn_widens(const struct pd_onednn *dnn);
void pd_onednn_close(struct pd_onednn *dnn);

/* Row-major, up to 5 dimensions.  (Scalars: dims 1.) */
const struct pd_layout *pd_layout_plain(struct pd_onednn *dnn, int dims, const int64_t *size);
/* Return the layout with elements of f32, or of the net's type; element n stays element n. */
const struct pd_layout *pd_layout_full(struct pd_onednn *dnn, const struct pd_layout *layout);
const struct pd_layout *pd_layout_stored(struct pd_onednn *dnn, const struct pd_layout *layout);
bool pd_layout_is_full(const struct pd_layout *layout);
/* The layout of the same kind (blocking, order of axes) for other extents; NULL: there is none. */
const struct pd_layout *pd_layout_like(struct pd_onednn *dnn, const struct pd_layout *layout,
				       const int64_t *size);
/* Returns how many channels lie side by side in a layout of images of which there are others like it. */
int64_t pd_layout_lanes(const struct pd_layout *layout);
/* Returns the layout that reads a plain matrix as its transpose. */
const struct pd_layout *pd_layout_transposed(struct pd_onednn *dnn, const struct pd_layout *layout);
#define PD_LAYOUT_PANEL 64
/*
 * Tells whether a matrix has this layout: panels of PD_LAYOUT_PANEL rows, one after the other, each column
 * by column, without padding.
 */
bool pd_layout_in_panels(const struct pd_layout *layout);
size_t pd_layout_bytes(const struct pd_layout *layout);
/* Writes zeros into the padding of a tensor. */
void pd_layout_clear_padding(const struct pd_layout *layout, void *tensor);
bool pd_layout_same(const struct pd_layout *a, const struct pd_layout *b);
/*
 * The layout in which batch normalisation and pooling of this tensor have quick kernels: this one
 * if they have, else a blocked one or channels last.  This one, too, where no layout helps.
 */
const struct pd_layout *pd_layout_quick(struct pd_onednn *dnn, const struct pd_layout *layout);
/*
 * Samples follow each other, and within one sample channels (in blocks without padding) come
 * first: such tensors can be put side by side along the channels by copying each sample.
 */
bool pd_layout_stacks(const struct pd_layout *layout);

enum pd_arg {
	PD_ARG_SRC, PD_ARG_DST, PD_ARG_WEIGHTS, PD_ARG_BIAS, PD_ARG_SCALE, PD_ARG_SHIFT,
	PD_ARG_MEAN, PD_ARG_VARIANCE, PD_ARG_WORKSPACE,
	PD_ARG_DIFF_SRC, PD_ARG_DIFF_DST, PD_ARG_DIFF_WEIGHTS, PD_ARG_DIFF_BIAS,
	PD_ARG_DIFF_SCALE, PD_ARG_DIFF_SHIFT,
	PD_ARG_SCRATCH,
	PD_ARGS
};

struct pd_conv {
	int64_t batch, channels, height, width;         /* of the input */
	int64_t out_channels, out_height, out_width;
	int64_t kernel[2], stride[2], padding[2], dilation[2], groups;
	bool bias;
	bool wide;      /* the gradient of the input is made in f32, whatever the type of ops */
};

struct pd_pooling {
	int64_t kernel[2], stride[2], padding[2];
	bool max, count_include_pad;
};

/*
 * Each returns NULL after filling *err.  `forward` is the forward op that a backward one
 * belongs to.  Weights: the layout to take them (or, in f32, give their gradient) in, or NULL for
 * whichever is fastest; conv and linear fall back to that when the one asked for has no fast
 * kernel, so ask the op (pd_primitive_layout) what it got.  Backward of elementwise functions
 * takes PD_ARG_DST or PD_ARG_SRC (pd_curve_from_output).  Gradients of parameters, batch normalisation's
 * scale and shift and its statistics are f32.
 */
struct pd_primitive *pd_primitive_conv(struct pd_onednn *dnn, enum pd_propagation propagation,
				       const struct pd_conv *conv, const struct pd_layout *weights,
				       const struct pd_primitive *forward, struct pd_error *err);
struct pd_primitive *pd_primitive_linear(struct pd_onednn *dnn, enum pd_propagation propagation,
					 const struct pd_layout *src, const struct pd_layout *dst,
					 const struct pd_layout *weights, bool bias,
					 const struct pd_primitive *forward, struct pd_error *err);
/* The forward of linear without a bias, whose output is f32 in any case. */
struct pd_primitive *pd_primitive_product(struct pd_onednn *dnn, const struct pd_layout *src,
					  const struct pd_layout *dst, struct pd_error *err);
struct pd_primitive *pd_primitive_eltwise(struct pd_onednn *dnn, enum pd_propagation propagation,
					  enum pd_curve curve, const struct pd_layout *layout,
					  const struct pd_primitive *forward, struct pd_error *err);
struct pd_primitive *pd_primitive_pool(struct pd_onednn *dnn, enum pd_propagation propagation,
				       const struct pd_pooling *pool, const struct pd_layout *src,
				       const struct pd_layout *dst,
				       const struct pd_primitive *forward, struct pd_error *err);
/* global: mean and variance are given, not computed. */
struct pd_primitive *pd_primitive_batchnorm(struct pd_onednn *dnn, enum pd_propagation propagation, bool global,
					    const struct pd_layout *layout, float eps,
					    const struct pd_primitive *forward,
					    struct pd_error *err);
struct pd_primitive *pd_primitive_reorder(struct pd_onednn *dnn, const struct pd_layout *from,
					  const struct pd_layout *to, struct pd_error *err);

int pd_onednn_product(const struct pd_matrix_product *product, struct pd_error *err);

/* Returns the layout of an argument of the op; NULL if it has no such argument. */
const struct pd_layout *pd_primitive_layout(const struct pd_primitive *op, enum pd_arg arg);
/* oneDNN's name of the op's kernel; it lives as long as the op. */
const char *pd_primitive_kernel(const struct pd_primitive *op);
/* Is that one of oneDNN's plain loops, which can be a hundred times slower than its generated code? */
bool pd_primitive_is_slow(const struct pd_primitive *op);
/* Bytes that PD_ARG_SCRATCH must have. */
size_t pd_primitive_scratch_bytes(const struct pd_primitive *op);
/* Generates the code; an op that is only asked for its layouts can do without. */
int pd_primitive_compile(struct pd_primitive *op, struct pd_error *err);
/* All arguments that the op takes must be there.  Done when it returns. */
int pd_primitive_run(struct pd_primitive *op, const void *const args[PD_ARGS],
		     struct pd_error *err);
