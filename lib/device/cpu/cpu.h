/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU device, inside: what it brings to a compiled stage (net.c), streams (stream.c) and
 * one table entry per kind of layer.
 */
#ifndef PD_DEVICE_CPU_CPU_H
#define PD_DEVICE_CPU_CPU_H

#include "device/compiled.h"
#include "device/cpu/onednn.h"

/*
 * Loops of our own: vectorised for the machine at hand.  No contraction to fused
 * multiply-add, so that every machine and every remainder of a loop rounds alike.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PD_VECTOR __attribute__((optimize("O3,fp-contract=off"), \
				 target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define PD_VECTOR
#endif

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
/* The plain layout of one batch of a shape. */
const struct pd_layout *pd_cpu_plain(struct pd_compiled *net, const struct pd_shape *shape);

/* --- update.c */
void pd_cpu_update(const struct pd_compiled *net, const struct pd_update *update, int from,
		   int count);

/* --- sgd.c, adam.c: `floats` elements from element `at` of the arenas; gradients: theirs */
void pd_cpu_sgd(const struct pd_update *update, const float *gradients, size_t at, size_t floats);
void pd_cpu_adam(const struct pd_update *update, const float *gradients, size_t at, size_t floats);

/* --- squares.c */
void pd_cpu_squares(const struct pd_compiled *net, const struct pd_squares *what);
void pd_cpu_unite(double *vector, const double *other, size_t count);

/* --- sum.c: of 16 bits, in f32 and rounded once */
void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count);
void pd_cpu_sum_narrow(enum pd_dtype dtype, void *dst, const void *const *src, int n,
		       size_t count);
/* a + b, but 0 where y is not positive; NULL: everywhere a + b.  dst may be one of them. */
void pd_cpu_sum_relu(enum pd_dtype dtype, void *dst, const void *a, const void *b, const void *y,
		     size_t count);

/* --- half.c: elements of 16 bits from and to f32, as base/half.h has it */
void pd_cpu_widen(enum pd_dtype dtype, float *dst, const void *src, size_t count);
void pd_cpu_narrow(enum pd_dtype dtype, void *dst, const float *src, size_t count);

/* --- stream.c */
struct pd_stream *pd_cpu_stream_open(struct pd_device *device, struct pd_error *err);
void pd_cpu_stream_close(struct pd_stream *stream);

/* --- reorder.c: an argument that an op wants in another layout or type than it has */
struct pd_reorder {
	bool converts;                          /* else it is right as it is */
	size_t widens, narrows;                 /* elements, before and after the reorder */
	struct pd_primitive *primitive;		/* or NULL */
	size_t offset, scratch_offset;          /* in the layer's scratch */
	size_t wide_from, wide_to;              /* there too */
};

/* Each takes room from *bytes_p on, and moves that up; _between only what the way there needs. */
int pd_reorder_between(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, size_t *bytes_p,
		       struct pd_error *err);
int pd_reorder_convert(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
		       const void *from, void *to, struct pd_error *err);
int pd_reorder_prepare(struct pd_compiled_layer *l, struct pd_reorder *reorder,
		       const struct pd_layout *from, const struct pd_layout *to, bool output,
		       size_t *bytes_p, struct pd_error *err);
/* An input: converts it, and says where it is; NULL with *err. */
const void *pd_reorder_in(struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			  const void *ptr, struct pd_error *err);
/* An output: where to put it; then converts it into ptr. */
void *pd_reorder_buffer(const struct pd_compiled_layer *l, const struct pd_reorder *reorder,
			void *ptr);
int pd_reorder_out(struct pd_compiled_layer *l, const struct pd_reorder *reorder, void *ptr,
		   struct pd_error *err);
/* Room for the own scratch of an op of that layer; compiles it, and notes a slow one. */
int pd_primitive_prepare(struct pd_compiled_layer *l, struct pd_primitive *op, size_t *offset_p,
			 size_t *bytes_p, struct pd_error *err);

/* --- plain.c: as struct pd_compiled_device has them */
int pd_cpu_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err);
const void *pd_cpu_plain_input(struct pd_compiled_layer *l, int i, bool back,
			       struct pd_error *err);
void *pd_cpu_plain_room(struct pd_compiled_layer *l, int i);
int pd_cpu_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient,
			  struct pd_error *err);
/* How many rows, of its last axis, a batch of a shape has; that as a plain matrix. */
int64_t pd_cpu_rows(const struct pd_compiled *net, const struct pd_shape *shape);
const struct pd_layout *pd_cpu_matrix(struct pd_compiled *net, const struct pd_shape *shape);

/* --- conv_linear.c: what conv2d and linear have in common */
struct pd_conv_linear_ops {
	struct pd_primitive *forward, *data, *weights; /* data: NULL when no gradient is wanted */
};

int pd_conv_linear_prepare(struct pd_compiled_layer *l, const struct pd_conv_linear_ops *ops,
			   struct pd_error *err);
int pd_conv_linear_forward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err);
int pd_conv_linear_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err);

/* --- linear_blocked.c: linear, where ops are f32 and the net is not */
void pd_linear_blocked_prepare(struct pd_compiled_layer *l); /* l->out is set */
int pd_linear_blocked_forward(struct pd_compiled_layer *l, struct pd_error *err);
int pd_linear_blocked_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			       struct pd_error *err);

#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	extern const struct pd_compiled_kind pd_cpu_##name;
#include "model/layer_kind.def"
#undef LAYER_KIND

#endif
