/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled stage: the part that devices which compute have in common.
 *
 * Every layer of the model is prepared, in order, so that each tensor gets one layout whatever the
 * stage; kernels are made only for layers inside the stage.  Then memory_layout.c gives every
 * tensor, gradient and temporary its place in the caller's buffers, and run.c calls the kinds'
 * functions with pointers into them.  A device supplies a table of kinds and struct
 * pd_compiled_device.
 */
#pragma once

#include "base/mem.h"
#include "engine/device/device.h"
#include "memory/scratch.h"
#include "run/device/resize.h"
#include "run/device/rotary.h"

struct pd_compiled;
struct pd_compiled_layer;
struct pd_layout;                       /* defined by the device; NULL where all layouts are plain */

struct pd_compiled_kind {
	bool keeps_output;      /* backward reads the output */
	bool in_place;          /* the output may overwrite the input, also in a second run */
	bool is_relu;	/* its backward may be fused into the sum that makes its output's gradient */
	bool fuses_relu;        /* it can apply the relu behind it */
	bool plain;             /* it takes its inputs in plain layout */
	bool plain_parameters;  /* it and those that share its parameters take them plain */
	/* what computes a layer whose inputs' shapes differ (pd_layer.broadcasts); NULL: this does */
	const struct pd_compiled_kind *broadcast;
	/* Sets the layouts and sizes below, and makes kernels if the layer is inside the stage. */
	int (*prepare)(struct pd_compiled_layer *l, struct pd_error *err);
	int (*forward)(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err);
	/*
	 * Overwrites each gradient of pass->part whose pointer is not NULL. The weight part is only
	 * asked of layers with parameters.
	 */
	int (*backward)(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err);
};

/* The functions of a device.  Those that compute run on the thread of the stream, in order. */
struct pd_compiled_device {
	const struct pd_compiled_kind *const *kinds;    /* by enum pd_layer_kind */
	/*
	 * These set the bytes (and layout) of a model input, of a layer's output, of a parameter.
	 */
	void (*set_tensor)(struct pd_compiled *net, int tensor, const struct pd_layout *layout);
	void (*set_input)(struct pd_compiled *net, int input);
	void (*set_parameter)(struct pd_compiled *net, struct pd_compiled_layer *l, int which);
	/*
	 * These serve kinds that take their inputs in plain layout: plain() returns that layout,
	 * plain_prepare() adds to the scratch what reordering needs, plain_input() returns input i
	 * in plain layout, plain_room() returns where its plain gradient goes, and plain_gradient()
	 * reorders that gradient.
	 */
	const struct pd_layout *(*plain)(struct pd_compiled *net, const struct pd_shape *shape);
	/* A parameter's. */
	const struct pd_layout *(*plain_parameter)(struct pd_compiled *net,
						   const struct pd_layer *layer, int which);
	int (*plain_prepare)(struct pd_compiled_layer *l, struct pd_error *err);
	const void *(*plain_input)(struct pd_compiled_layer *l, int i, bool back,
				   struct pd_error *err);
	void *(*plain_room)(struct pd_compiled_layer *l, int i);
	int (*plain_gradient)(struct pd_compiled_layer *l, int i, void *gradient,
			      struct pd_error *err);
	/* Frees a kind's l->own; NULL: free() does. */
	void (*release)(struct pd_compiled_layer *l);
	int (*copy)(struct pd_compiled *net, void *dst, const void *src, size_t bytes,
		    struct pd_error *err);
	int (*zero)(struct pd_compiled *net, void *dst, size_t bytes, struct pd_error *err);
	/* Computes dst = a + b in that dtype (f32 or the net's); dst may be a or b. */
	int (*add)(struct pd_compiled *net, enum pd_dtype dtype, void *dst, const void *a,
		   const void *b, size_t count, struct pd_error *err);
	/*
	 * Computes dst = a + b, or 0 where y, a relu's output, is 0, in the net's dtype.  NULL:
	 * the device has a pass of its own for every relu's backward.
	 */
	int (*add_relu)(struct pd_compiled *net, void *dst, const void *a, const void *b,
			const void *y, size_t count, struct pd_error *err);
};

struct pd_compiled_layer {
	struct pd_compiled *net;
	const struct pd_layer *layer;
	const struct pd_compiled_kind *kind;
	int index;
	bool inside;
	int loss;                               /* number among the stage's loss layers, from 0 */
	int model_owner;                        /* the layer that owns its parameters in the model */
	/* the layer whose parameters it uses here: that one, or itself if it has a copy */
	int owner;
	bool shared;                            /* another layer has the same parameters */
	bool adds_gradient;                     /* it adds to its parameters' gradients */
	bool may_add_gradient;                  /* it adds, or would if no layer had a copy */

	int64_t recorded;                       /* algorithms that the plan asks for; 0: none */
	int64_t algorithms;                     /* algorithms chosen by prepare; 0: the usual ones */
	const char *recorded_engines;           /* engines that the plan asks for; NULL: none */
	char *engines;                          /* engines chosen by prepare; NULL: none */
	const char *slow_kernel;	/* set by prepare; NULL: none; lives as long as the net */

	/*
	 * arrays by parameter have an element for each of the kind; NULL where the layer lacks it
	 */

	/* known before prepare; arrays by input */
	const struct pd_layout **in;            /* NULL where i32 */
	const struct pd_shape **in_shape;
	bool *wants;                            /* whether a gradient of that input is wanted */
	size_t state_bytes;                     /* all states, each aligned */
	bool frozen;                            /* it has parameters, and no update moves them */

	/* set by prepare */
	const struct pd_layout *out;
	const struct pd_layout **parameter;     /* set by the first layer that has them */
	bool same_memory;                       /* the output is the input under another shape */
	/*
	 * the inputs' gradients equal the output's: where both share a place, backward does nothing
	 */
	bool passes;
	bool sums;	/* backward can add: diff_src is its gradient plus l->before */
	size_t extra_bytes;                     /* in the slot, besides the output */
	/*
	 * what the first forward of a microbatch keeps for its second and for backward: in the inbox
	 * where the stage recomputes, else in the slot
	 */
	size_t carried_bytes;
	size_t split_bytes;	/* in the slot, kept from one part of backward to the other */
	size_t forward_bytes, backward_bytes;   /* of scratch */
	void *own;                              /* the kind's data; one malloc */
	void *plain;                            /* the device's data for plain inputs; one malloc */

	/* set by memory_layout.c */
	struct pd_location scratch;		/* scratch of backward; forward's is at 0 */
	struct pd_contribution *contributions;
	/*
	 * by input: its part completes the gradient of a relu's output, and the sum does the relu's
	 * backward
	 */
	bool *completes_relu;
	bool relu_completed;                    /* this relu's backward is done by such a sum */
	struct pd_location diff_dst_at;
	/* diff_dst is copied from here first; may be PD_NOWHERE */
	struct pd_location diff_dst_from;
	size_t extra_offset, carried_offset, split_offset, state_offset, added_offset, backward_reserved;
	bool extra_kept;                        /* extras lie in what is kept apart; else in the slot */
	int point;                              /* where it is computed again, in the stage; -1: never */
	size_t again_offset;                    /* scratch of what is before its backward */

	/* pointers of the pass that runs */
	const void **src;
	void *dst, *extra, *carried, *split, *state, *temporary;
	const void **parameters;
	void **diff_src;
	const void **before;	/* by input, where the layer sums; NULL: nothing came before */
	const void *diff_dst;
	void **diff_parameters;
};

struct pd_compiled_tensor {
	const struct pd_layout *layout;         /* NULL: i32, or plain */
	size_t bytes;
	bool here;                              /* in this stage's slots */
	bool arrives, leaves;
	int memory;	/* the tensor in whose memory it lies, mostly itself */
	bool inbox, kept;                       /* it lies in the inbox, in what is kept apart; else in
						   the slot */
	size_t slot_offset;
	size_t out_offset;                      /* in gradient-out, if it arrives */
	size_t in_offset;                       /* in gradient-in, if it leaves */
};

/* A parameter tensor belongs to the layer that owns it; frozen ones that are shared, to each that uses it. */
struct pd_compiled_parameter {
	const struct pd_layout *layout, *plain; /* layout: in the net's dtype */
	const struct pd_layout *full;           /* the same layout in f32; plain is f32, too */
	size_t offset, bytes;                   /* in an f32 arena; of a frozen layer only the bytes hold */
	size_t frozen_offset;                   /* in the arena of states, in the net's dtype */
};

struct pd_compiled {
	struct pd_net base;
	const struct pd_compiled_device *device;
	struct pd_net_sizes sizes;
	const struct pd_model *model;
	void *engine;                           /* the device's library handles */
	int first, count;
	int64_t batch;
	int64_t minibatch;                      /* samples of a minibatch; the loss is their mean */
	enum pd_dtype dtype;
	uint64_t seed;
	bool split, copies, recomputes, measure;
	int *segment;                           /* by layer, of pd_net_config; NULL: all are one */
	/*
	 * What is computed again before the backward of the stage's i-th layer: again[again_first[i]]
	 * to again[again_first[i + 1] - 1], layers; but before the first of these points a forward of
	 * its own does that.  NULL: there is no other point.
	 */
	int *again_first, *again;
	int first_point;
	struct pd_tied_layer *tied_layers;
	int tied_layer_count;
	struct pd_compiled_layer *layers;       /* all layers of the model */
	struct pd_compiled_tensor *tensors;
	struct pd_compiled_parameter **parameters;      /* by owner and number */
	int *first_user;        /* by owner: the first layer that uses its parameters, or -1 */
	/* by layer: the parameters of which it is the first user */
	size_t *step_offset, *step_bytes;
	struct pd_named *named;
	int named_count;
};

/* --- compiled_net.c */
/*
 * Makes a net whose layers are described but not prepared.  pd_compiled_build() prepares them, once
 * the engine is set.  NULL or -1: *err.
 */
struct pd_compiled *pd_compiled_new(struct pd_device *device,
				    const struct pd_compiled_device *how,
				    const struct pd_net_config *config, struct pd_error *err);
int pd_compiled_build(struct pd_compiled *net, struct pd_error *err);
/* Frees all but the engine. */
void pd_compiled_free(struct pd_compiled *net);
/* These are the device's functions of the same names. */
const struct pd_net_sizes *pd_compiled_sizes(const struct pd_net *net);
void pd_compiled_layer_sizes(const struct pd_net *net, int layer, struct pd_net_layer *out_p);
int pd_compiled_named(const struct pd_net *net, const struct pd_named **list_p);
int pd_compiled_tied_layers(const struct pd_net *net, const struct pd_tied_layer **list_p);
int pd_compiled_init(struct pd_net *net, void *weights, void *master, void *state,
		     struct pd_error *err);
/* Converts an offset in an f32 arena to the offset in an arena of the net's dtype. */
static inline size_t pd_compiled_working(const struct pd_compiled *net, size_t offset)
{
	return offset / sizeof(float) * pd_dtype_bytes(net->dtype);
}
/*
 * Returns the bytes that a parameter takes in an f32 arena, such that half of them are aligned for
 * 16 bits, too.  Its gradient takes as many where it is kept from one part of backward to the other
 * (pd_memory_split() of lib/memory/memory).
 */
static inline size_t pd_compiled_reserved(const struct pd_compiled *net, size_t bytes)
{
	size_t times = sizeof(float) / pd_dtype_bytes(net->dtype);

	return times * pd_align((bytes + times - 1) / times);
}

/* Adds a part to what *bytes_p counts, and returns where it begins; both are aligned. */
static inline size_t pd_take(size_t *bytes_p, size_t bytes)
{
	size_t offset = pd_align(*bytes_p);

	*bytes_p = offset + pd_align(bytes);
	return offset;
}
/* Returns the offset of a named tensor in its arena (of f32). */
size_t pd_compiled_offset(const struct pd_compiled *net, const struct pd_named *named);
/* Returns the elements of an arena that an update of these layers covers: [*begin_p, *end_p). */
void pd_compiled_range(const struct pd_compiled *net, int from, int count, size_t *begin_p,
		       size_t *end_p);
/*
 * Returns whether an update treats the tensors of a layer differently, so that each must be updated by
 * itself.
 */
static inline bool pd_compiled_by_tensor(const struct pd_update *update)
{
	return pd_optimizer_is(update->kind, PD_OPTIMIZER_NORMS) || (update->spares_vectors && update->weight_decay != 0);
}
/* The elements of one parameter tensor in an arena, [begin, end); it may have one axis. */
struct pd_compiled_tensor_range {
	size_t begin, end;
	bool vector;
};
/*
 * Finds the parameter tensor that follows *layer_p and *number_p (0 at first, and *layer_p the first
 * layer of the update) among the layers before `end`, and moves them behind it.  false: none follows.
 */
bool pd_compiled_next_tensor(const struct pd_compiled *net, int end, int *layer_p, int *number_p,
			     struct pd_compiled_tensor_range *out_p);

/*
 * Of a layer that carries the state of lanes, called by its prepare: the samples of a microbatch
 * must be of as many lanes, and its state has what training carries on, then, in as many bytes, what
 * an evaluation does; of each the hidden states, then the cells, lane by lane.  What a microbatch
 * begins with is carried: hidden states, then cells, of every sample, f32, each aligned.
 */
int pd_compiled_lanes(struct pd_compiled_layer *l, struct pd_error *err);

/* --- memory_layout.c */
/* Sets all offsets (parameters, state, slots, gradients, scratch) and net->sizes. */
int pd_compiled_lay_out(struct pd_compiled *net, struct pd_error *err);

/*
 * Tells whether the layer's gradients of parameters are made in scratch: they are to be added; or they are
 * made beside that of the input, and nobody wants them.
 */
static inline bool pd_compiled_puts_aside(const struct pd_compiled_layer *l)
{
	return l->may_add_gradient || (l->frozen && !pd_layer_is(l->layer, PD_KIND_SPLITS));
}

/* --- run.c: called by a stream's thread; -1 with *err */
int pd_compiled_forward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			struct pd_error *err);
int pd_compiled_backward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			 struct pd_error *err);

/* Returns the input around an axis, samples among what is outer. */
static inline struct pd_axis pd_compiled_around(const struct pd_compiled_layer *l, int64_t axis)
{
	struct pd_axis a = pd_shape_axis(l->in_shape[0], axis);

	a.outer *= l->net->batch;
	return a;
}

/*
 * Returns the input around the numbers of a prelu's weight: of one, that of all, each of the parts before the
 * inner places has its own sum.
 */
static inline struct pd_axis pd_compiled_slopes(const struct pd_compiled_layer *l)
{
	const struct pd_axis scalars = { l->net->batch, 1, 1 };
	struct pd_axis a = l->in_shape[0]->dims > 0 ? pd_compiled_around(l, 0) : scalars;

	if (l->layer->out_channels > 1)
		return a;
	a.outer *= a.extent;
	a.extent = 1;
	return a;
}

/* Returns how an input is repeated to become the output, samples among what is outer. */
static inline struct pd_axis pd_compiled_repeats(const struct pd_compiled_layer *l, int input)
{
	struct pd_axis a = pd_shape_repeats(l->in_shape[input], &l->layer->output);

	a.outer *= l->net->batch;
	return a;
}

/*
 * These count the elements of a position_embedding's, bias's or parameter's parameter that are used, those of
 * a sample's positions or of a row, and the parts of the batch to which they are added.
 */
static inline int64_t pd_compiled_used(const struct pd_compiled_layer *l)
{
	int64_t all = pd_shape_elements(&l->layer->output);

	return all < l->layer->parameter_elements ? all : l->layer->parameter_elements;
}

static inline int64_t pd_compiled_parts(const struct pd_compiled_layer *l)
{
	return l->net->batch * pd_shape_elements(&l->layer->output) / pd_compiled_used(l);
}

/* The elements of a position_embedding's weight before those that are used. */
static inline int64_t pd_compiled_skipped(const struct pd_compiled_layer *l)
{
	const struct pd_layer_tensor *weight = &l->layer->parameters[0];
	int64_t row = 1;

	for (int d = 1; d < weight->dims; d++)
		row *= weight->size[d];
	return l->layer->start * row;
}

/* From where an upsample takes its outputs along an axis: 0, the height, or 1. */
struct pd_resize pd_compiled_resize(const struct pd_compiled_layer *l, int axis);
/* By which angles a layer of kind rope rotates. */
struct pd_rotary pd_compiled_rotary(const struct pd_layer *layer);
