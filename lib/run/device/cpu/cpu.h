/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CPU device: net.c supplies what a compiled stage needs, stream.c streams, and one file
 * per kind of layer the rest.
 *
 * The CPU's layers are oneDNN's.  Its files are written for oneDNN 3; lib/run/device/cpu/dnnl2.h gives
 * its calls to 2.6, and is the only place that knows both.  A convolution chooses the layout of
 * its output, among those in which the layers behind it have kernels with generated code
 * (lib/run/device/cpu/quick.c).  The choice depends on the whole model, so that it is the same
 * wherever the network is cut.  Whether one goes Winograd's way depends on the layer and the batch
 * (lib/run/device/cpu/primitives.c), and so does whether the gradient of a large linear layer's input
 * is our own product (linear_transposed.c), or all products of a linear layer are
 * (linear_blocked.c).  Where its kernels lose a NaN or -infinity, max
 * pooling goes by plain loops (maxpool.c) and a sigmoid of padded channels is mended (eltwise.c).
 */
#pragma once

#include "run/device/compiled_net.h"
#include "run/device/cpu/onednn.h"

/*
 * Our own loops are vectorised for the machine that runs them.  They are not contracted to fused
 * multiply-add, so that every machine, and the remainder of every loop, rounds alike.  A build can be given
 * other kinds of machines (contrib/check.sh).
 */
#ifndef PD_VECTOR_CLONES
#define PD_VECTOR_CLONES "arch=x86-64-v4", "avx2", "default"
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PD_VECTOR __attribute__((optimize("O3,fp-contract=off"), \
				 target_clones(PD_VECTOR_CLONES)))
#else
#define PD_VECTOR
#endif

/* What a relu keeps, of its input and of the gradient of its output: what is positive, or a NaN. */
static inline bool pd_relu_keeps(float x)
{
	return !(x <= 0);
}

/* The same by the bits of 16 as an integer, which ascend with positive numbers, from that of -infinity on. */
static inline bool pd_relu_keeps_bits(int16_t x, int16_t minus_infinity)
{
	return x > minus_infinity && x != 0;
}

static inline int16_t pd_minus_infinity(enum pd_dtype dtype)
{
	return dtype == PD_BF16 ? (int16_t)0xff80 : (int16_t)0xfc00;
}

struct pd_cpu_device {
	struct pd_device base;
	int threads;
	struct pd_gate *gate;
};

/* --- net.c */
struct pd_net *pd_cpu_net_open(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err);
void pd_cpu_net_close(struct pd_net *net);
int pd_cpu_net_export(struct pd_net *net, int named, enum pd_form form, const void *arena,
		      float *host);
int pd_cpu_net_import(struct pd_net *net, int named, enum pd_form form, void *arena,
		      const float *host);
/* Returns the plain layout of a batch of that shape. */
const struct pd_layout *pd_cpu_plain(struct pd_compiled *net, const struct pd_shape *shape);

/* --- update.c */
void pd_cpu_update(const struct pd_compiled *net, const struct pd_update *update, int from,
		   int count);

/* --- move.c: `count` elements of the arenas from `at` on; `gradients` begins there */
void pd_cpu_move(const struct pd_update *update, const struct pd_factors *factors, const float *gradients, size_t at,
		 size_t count);

/* --- squares.c */
void pd_cpu_squares(const struct pd_compiled *net, const struct pd_squares *what);
/* Returns the sum of the squares of count floats; its bits depend on them and their order alone. */
double pd_cpu_sum_squares(const float *g, size_t count);
void pd_cpu_unite(double *vector, const double *other, size_t count);

/* --- chunks.c */
void pd_cpu_chunks(const struct pd_chunks *what);

/* --- sum.c: sums of 16-bit numbers are taken in f32 and rounded once */
void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count);
void pd_cpu_sum_all(float *const *arrays, int n, size_t count);
void pd_cpu_sum_narrow(enum pd_dtype dtype, void *dst, const void *const *src, int n,
		       size_t count);
void pd_cpu_mixed_sum(const struct pd_mixed_sum *sum);
/* Computes a + b, or 0 where y, a relu's output unless NULL, is 0; dst may be a or b. */
void pd_cpu_sum_relu(enum pd_dtype dtype, void *dst, const void *a, const void *b, const void *y,
		     size_t count);

/* --- broadcast.c: sums and products of two inputs whose shapes differ */
extern const struct pd_compiled_kind pd_cpu_broadcast;

/* --- curves.c: the approximation that the kind gelu (eltwise.c) has under an attribute */
extern const struct pd_compiled_kind pd_cpu_gelu_tanh;

/* --- dropout.c */
/*
 * Multiplies values of a weight, which are its elements `first` (a multiple of 4) and on, by what
 * weight_dropout makes of them in the microbatch: 0 or 1 / (1 - p), by its first sample's number.
 */
void pd_cpu_drop_weights(const struct pd_compiled_layer *l, const struct pd_pass *pass, float *values,
			 int64_t first, int64_t count);

/* --- half.c: conversions between 16 bits and f32, with the bits of base/half.h */
void pd_cpu_widen(enum pd_dtype dtype, float *dst, const void *src, size_t count);
void pd_cpu_narrow(enum pd_dtype dtype, void *dst, const float *src, size_t count);
/* Returns elements from `at` on of a tensor in f32: its own, or converted in room. */
const float *pd_cpu_wide(enum pd_dtype dtype, const void *tensor, int64_t at, int64_t count,
			 float *room);
/* Writes elements from `at` on of a tensor. */
void pd_cpu_put(enum pd_dtype dtype, void *tensor, int64_t at, const float *values, int64_t count);

/* --- stream.c */
struct pd_stream *pd_cpu_stream_open(struct pd_device *device, struct pd_error *err);
void pd_cpu_stream_close(struct pd_stream *stream);

/* --- reorder.c: converts an argument where an op wants another layout or type */
struct pd_reorder {
	bool converts;                          /* false: the argument serves as it is */
	size_t widens, narrows;                 /* elements to convert before and after the reorder */
	struct pd_primitive *primitive;		/* NULL: the layout is right */
	size_t offset, scratch_offset;          /* in the layer's scratch */
	size_t wide_from, wide_to;              /* in the layer's scratch, too */
};

/*
 * Each reserves scratch from *bytes_p on, and advances *bytes_p; pd_reorder_between() for one
 * direction only.
 */
int pd_reorder_between(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, size_t *bytes_p,
		       struct pd_error *err);
int pd_reorder_convert(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
		       const void *from, void *to, struct pd_error *err);
int pd_reorder_prepare(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, bool output,
		       size_t *bytes_p, struct pd_error *err);
/* Converts an input if needed, and returns where it is; NULL with *err. */
const void *pd_reorder_in(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			  const void *ptr, struct pd_error *err);
/* The first returns where an op is to put its output; the second converts that into ptr. */
void *pd_reorder_buffer(const struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			void *ptr);
int pd_reorder_out(struct pd_compiled_layer *l, const struct pd_reorder *reorder, void *ptr,
		   struct pd_error *err);
/* Reserves an op's own scratch, compiles the op, and notes its kernel if it is slow. */
int pd_primitive_prepare(struct pd_compiled_layer *l, struct pd_primitive *op, size_t *offset_p,
			 size_t *bytes_p, struct pd_error *err);

/* --- plain.c: functions of struct pd_compiled_device */
int pd_cpu_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err);
const void *pd_cpu_plain_input(struct pd_compiled_layer *l, int i, bool back,
			       struct pd_error *err);
void *pd_cpu_plain_room(struct pd_compiled_layer *l, int i);
int pd_cpu_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient,
			  struct pd_error *err);
/* A batch of a shape as a plain matrix: the rows of its last axis. */
int64_t pd_cpu_rows(const struct pd_compiled *net, const struct pd_shape *shape);
const struct pd_layout *pd_cpu_matrix(struct pd_compiled *net, const struct pd_shape *shape);

/* --- conv_linear.c: shared by conv2d, conv_transpose2d and linear */
struct pd_conv_linear_ops {
	struct pd_primitive *forward, *data, *weights;
	bool transposed;        /* linear_transposed.c makes the input's gradient; else data, unless NULL */
	/*
	 * forward is the op of a convolution that makes the gradient of its input, and data, which makes its
	 * output, is that of forward; no op knows the layer's bias
	 */
	bool turned;
	/* is given what forward made, before it is rounded; NULL: nothing is to be done */
	void (*behind)(const struct pd_compiled_layer *l, const struct pd_layout *layout, void *made);
};

int pd_conv_linear_prepare(struct pd_compiled_layer *l, const struct pd_conv_linear_ops *ops,
			   struct pd_error *err);
int pd_conv_linear_forward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err);
int pd_conv_linear_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err);

/* --- linear_blocked.c: linear by products of plain matrices */
/* Once l->in is set.  It depends on the layer, the batch and the kind of processor alone. */
bool pd_linear_is_blocked(const struct pd_compiled_layer *l);
void pd_linear_blocked_prepare(struct pd_compiled_layer *l); /* after l->out is set */
int pd_linear_blocked_forward(struct pd_compiled_layer *l, struct pd_error *err);
int pd_linear_blocked_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			       struct pd_error *err);

/* --- linear_transposed.c: the gradient of linear's input */
/*
 * Tells whether this is the fastest way, which depends on layer, batch and processor alone; l->parameter[0]
 * is set.
 */
bool pd_linear_transposes(const struct pd_compiled_layer *l);
/* Returns the bytes of scratch that it takes in backward. */
size_t pd_linear_transposed_scratch(const struct pd_compiled_layer *l);
void pd_linear_transposed_backward(struct pd_compiled_layer *l);

#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	extern const struct pd_compiled_kind pd_cpu_##name;
#include "model/layer_kind.def"
#undef LAYER_KIND
