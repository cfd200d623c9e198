/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU device, inside: a stage compiled (net.c, place.c, run.c), streams (stream.c) and
 * one table entry per kind of layer.
 *
 * Every layer of the model is prepared, in order, so that each tensor gets one layout
 * whatever the stage; kernels are made for those inside the stage.  Then place.c gives
 * every tensor, gradient and temporary its place in the caller's buffers.
 */
#ifndef PD_DEVICE_CPU_CPU_H
#define PD_DEVICE_CPU_CPU_H

#include "device/cpu/onednn.h"
#include "device/device.h"
#include "plan/scratch.h"

struct pd_cpu_net;
struct pd_cpu_layer;

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

struct pd_cpu_kind {
	bool keeps_output;      /* backward reads the output */
	bool in_place;          /* the output may overwrite the input, and again if run again */
	bool is_loss;           /* backward needs no gradient of the output */
	bool splits;            /* its weight part reads the gradient of the output */
	/* Sets the layouts and sizes below; kernels only for a layer inside the stage. */
	int (*prepare)(struct pd_cpu_layer *l, struct pd_error *err);
	int (*forward)(struct pd_cpu_layer *l, const struct pd_pass *pass, struct pd_error *err);
	/* Overwrites each gradient whose pointer is not NULL and which is of pass->part; the
	 * weight part is not asked of a layer without parameters. */
	int (*backward)(struct pd_cpu_layer *l, const struct pd_pass *pass, struct pd_error *err);
};

extern const struct pd_cpu_kind *const pd_cpu_kinds[PD_LAYER_KINDS];

struct pd_cpu_layer {
	struct pd_cpu_net *net;
	const struct pd_layer *layer;
	const struct pd_cpu_kind *kind;
	int index;
	bool inside;
	int owner;                              /* layer whose parameters it uses */
	bool adds;                              /* its parameters' gradients are added */

	/* known before prepare; arrays by input */
	const struct pd_layout **in;            /* NULL where not f32 */
	const struct pd_shape **in_shape;
	bool *wants;                            /* a gradient of that input is wanted */

	/* set by prepare */
	const struct pd_layout *out;
	const struct pd_layout *parameter[2];   /* by the first layer of those that share them */
	bool same_memory;                       /* the output is the input, under another shape */
	size_t extra_bytes;                     /* in the slot, besides the output */
	size_t split_bytes;                     /* there too, from one part of backward to the other */
	size_t state_bytes;
	size_t forward_bytes, backward_bytes;   /* of scratch */
	void *own;                              /* the kind's; one malloc */

	/* set by place.c */
	struct pd_where scratch;                /* of backward; that of forward is at 0 */
	struct pd_contribution *contributions;
	struct pd_where diff_dst_at;
	struct pd_where diff_dst_from;          /* copied from here, if that is anywhere */
	size_t extra_offset, split_offset, state_offset, added_offset, backward_room;

	/* where everything is in this pass */
	const void **src;
	void *dst, *extra, *split, *state, *temporary;
	const void *parameters[2];
	void **diff_src;
	const void *diff_dst;
	void *diff_parameters[2];
};

struct pd_cpu_tensor {
	const struct pd_layout *layout;         /* NULL: i32 */
	size_t bytes;
	bool here;                              /* in this stage's slots */
	bool arrives, leaves;
	int memory;                             /* tensor in whose memory it lies; itself, mostly */
	bool inbox;                             /* it lies in the inbox, else in the slot */
	size_t slot_offset;
	size_t out_offset;                      /* in gradient-out, if it arrives */
	size_t in_offset;                       /* in gradient-in, if it leaves */
};

/* One parameter tensor, kept by the layer that owns it. */
struct pd_cpu_parameter {
	const struct pd_layout *layout, *plain;
	size_t offset, bytes;
};

struct pd_cpu_net {
	struct pd_net base;
	struct pd_net_sizes sizes;
	const struct pd_model *model;
	struct pd_onednn *dnn;
	int first, count;
	int64_t batch;
	uint64_t seed;
	bool split;
	struct pd_cpu_layer *layers;            /* all of the model's */
	struct pd_cpu_tensor *tensors;
	struct pd_cpu_parameter (*parameters)[2];       /* by owner */
	int *home;              /* by owner: the first layer that uses its parameters; -1 */
	/* by layer: where the parameters begin of which it is the home, and how long they are */
	size_t *step_offset, *step_bytes;
	struct pd_named *named;
	int named_count;
};

struct pd_cpu_device {
	struct pd_device base;
	int threads;
	struct pd_gate *gate;
};

/* --- place.c */
/* Offsets of parameters, state, slots, gradients and scratch; fills net->sizes. */
int pd_cpu_place(struct pd_cpu_net *net, struct pd_error *err);

/* --- run.c: called by a stream's thread; -1 with *err */
int pd_cpu_forward(struct pd_cpu_net *net, const struct pd_pass *pass, int from, int count,
		   struct pd_error *err);
int pd_cpu_backward(struct pd_cpu_net *net, const struct pd_pass *pass, int from, int count,
		    struct pd_error *err);

/* --- net.c */
struct pd_net *pd_cpu_net_open(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err);
void pd_cpu_net_close(struct pd_net *net);
const struct pd_net_sizes *pd_cpu_net_sizes(const struct pd_net *net);
void pd_cpu_net_layer(const struct pd_net *net, int layer, struct pd_net_layer *out_p);
int pd_cpu_net_init(struct pd_net *net, void *weights, void *state, struct pd_error *err);
int pd_cpu_net_named(const struct pd_net *net, const struct pd_named **list_p);
int pd_cpu_net_export(struct pd_net *net, int named, const void *arena, float *host);
int pd_cpu_net_import(struct pd_net *net, int named, void *arena, const float *host);
/* The plain layout of one batch of a shape. */
const struct pd_layout *pd_cpu_plain(struct pd_cpu_net *net, const struct pd_shape *shape);

/* --- update.c */
void pd_cpu_update(const struct pd_cpu_net *net, const struct pd_update *update, int from,
		   int count);

/* --- sgd.c, adam.c: `floats` elements from element `at` of the arenas */
void pd_cpu_sgd(const struct pd_update *update, size_t at, size_t floats);
void pd_cpu_adam(const struct pd_update *update, size_t at, size_t floats);

/* --- sum.c */
void pd_cpu_sum(float *dst, const float *const *src, int n, size_t count);

/* --- stream.c */
struct pd_stream *pd_cpu_stream_open(struct pd_device *device, struct pd_error *err);
void pd_cpu_stream_close(struct pd_stream *stream);
int pd_cpu_queue_wait(struct pd_stream *stream, struct pd_event *ev);
int pd_cpu_queue_forward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			 int from, int count, struct pd_event *ev);
int pd_cpu_queue_backward(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			  int from, int count, struct pd_event *ev);
int pd_cpu_queue_update(struct pd_stream *stream, struct pd_net *net,
			const struct pd_update *update, int from, int count, struct pd_event *ev);
int pd_cpu_queue_sum(struct pd_stream *stream, float *dst, const float *const *src, int n,
		     size_t count, struct pd_event *ev);
int pd_cpu_queue_copy(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
		      enum pd_copy way, struct pd_event *ev);

/* --- via.c: an argument that an op wants in another layout than it has */
struct pd_via {
	struct pd_op *reorder;                  /* NULL: it is right as it is */
	size_t offset, scratch_offset;          /* in the layer's scratch */
};

/* Takes room from *bytes_p on, and moves that up. */
int pd_via_prepare(struct pd_cpu_layer *l, struct pd_via *via, const struct pd_layout *from,
		   const struct pd_layout *to, bool output, size_t *bytes_p, struct pd_error *err);
/* An input: converts it, and says where it is; NULL with *err. */
const void *pd_via_in(struct pd_cpu_layer *l, const struct pd_via *via, const void *ptr,
		      struct pd_error *err);
/* An output: where to put it; then converts it into ptr. */
void *pd_via_room(const struct pd_cpu_layer *l, const struct pd_via *via, void *ptr);
int pd_via_out(struct pd_cpu_layer *l, const struct pd_via *via, void *ptr, struct pd_error *err);
/* Room for an op's own scratch; compiles it. */
int pd_op_prepare(struct pd_op *op, size_t *offset_p, size_t *bytes_p, struct pd_error *err);

/* --- weighted.c: what conv2d and linear have in common */
struct pd_weighted_ops {
	struct pd_op *forward, *data, *weights; /* data: NULL when no gradient is wanted */
};

int pd_weighted_prepare(struct pd_cpu_layer *l, const struct pd_weighted_ops *ops,
			struct pd_error *err);
int pd_weighted_forward(struct pd_cpu_layer *l, const struct pd_pass *pass, struct pd_error *err);
int pd_weighted_backward(struct pd_cpu_layer *l, const struct pd_pass *pass,
			 struct pd_error *err);

extern const struct pd_cpu_kind pd_cpu_conv2d, pd_cpu_linear, pd_cpu_relu, pd_cpu_tanh,
	pd_cpu_sigmoid, pd_cpu_maxpool2d, pd_cpu_avgpool2d, pd_cpu_adaptive_avgpool2d,
	pd_cpu_batchnorm2d, pd_cpu_dropout, pd_cpu_add, pd_cpu_concat, pd_cpu_flatten,
	pd_cpu_softmax_cross_entropy;

#endif
