/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage compiled: what the devices that compute have in common.
 *
 * Every layer of the model is prepared, in order, so that each tensor gets one layout
 * whatever the stage; kernels are made for those inside the stage.  Then memory_layout.c gives
 * every tensor, gradient and temporary its place in the caller's buffers, and run.c calls
 * the kinds' functions with pointers into them.  A device brings a table of kinds and
 * struct pd_compiled_device.
 */
#ifndef PD_DEVICE_COMPILED_H
#define PD_DEVICE_COMPILED_H

#include "base/mem.h"
#include "device/device.h"
#include "plan/scratch.h"

struct pd_compiled;
struct pd_compiled_layer;
struct pd_layout;                       /* the device's own; NULL where all are plain */

struct pd_compiled_kind {
	bool keeps_output;      /* backward reads the output */
	bool in_place;          /* the output may overwrite the input, and again if run again */
	bool is_relu;           /* where its output's gradient is a sum, that may do its backward */
	bool does_relu;         /* it can do the relu behind it, where the device has it do so */
	bool plain;             /* it takes its inputs in plain layout */
	/* Sets the layouts and sizes below; kernels only for a layer inside the stage. */
	int (*prepare)(struct pd_compiled_layer *l, struct pd_error *err);
	int (*forward)(struct pd_compiled_layer *l, const struct pd_pass *pass,
		       struct pd_error *err);
	/* Overwrites each gradient whose pointer is not NULL and which is of pass->part; the
	 * weight part is not asked of a layer without parameters. */
	int (*backward)(struct pd_compiled_layer *l, const struct pd_pass *pass,
			struct pd_error *err);
};

/* What differs from device to device.  All that runs, runs where the layers do, in order. */
struct pd_compiled_device {
	const struct pd_compiled_kind *const *kinds;    /* by enum pd_layer_kind */
	/* Bytes (and layout) of a model input, of a layer's output, of a parameter. */
	void (*set_tensor)(struct pd_compiled *net, int tensor, const struct pd_layout *layout);
	void (*set_input)(struct pd_compiled *net, int input);
	void (*set_parameter)(struct pd_compiled *net, struct pd_compiled_layer *l, int which);
	/*
	 * Of kinds that take their inputs plain: the layout; what scratch needs beside the kind's
	 * own, where inputs lie in another; input i as the kind takes it; where it is to put the
	 * gradient of that, which is then brought to where it belongs.
	 */
	const struct pd_layout *(*plain)(struct pd_compiled *net, const struct pd_shape *shape);
	int (*plain_prepare)(struct pd_compiled_layer *l, struct pd_error *err);
	const void *(*plain_input)(struct pd_compiled_layer *l, int i, bool back,
				   struct pd_error *err);
	void *(*plain_room)(struct pd_compiled_layer *l, int i);
	int (*plain_gradient)(struct pd_compiled_layer *l, int i, void *gradient,
			      struct pd_error *err);
	/* Frees what a kind keeps in l->own; NULL: free(). */
	void (*release)(struct pd_compiled_layer *l);
	int (*copy)(struct pd_compiled *net, void *dst, const void *src, size_t bytes,
		    struct pd_error *err);
	int (*zero)(struct pd_compiled *net, void *dst, size_t bytes, struct pd_error *err);
	/* dst = a + b, of that type (f32 or the net's); dst may be one of them. */
	int (*add)(struct pd_compiled *net, enum pd_dtype dtype, void *dst, const void *a,
		   const void *b, size_t count, struct pd_error *err);
	/* The same, but 0 where y, a relu's output, is not positive; of the net's type.  NULL: a
	 * relu's backward is always a pass of its own. */
	int (*add_relu)(struct pd_compiled *net, void *dst, const void *a, const void *b,
			const void *y, size_t count, struct pd_error *err);
};

struct pd_compiled_layer {
	struct pd_compiled *net;
	const struct pd_layer *layer;
	const struct pd_compiled_kind *kind;
	int index;
	bool inside;
	int loss;                               /* which of the stage's loss layers, from 0 */
	int group;                              /* layer that owns the parameters in the model */
	int owner;                              /* layer whose parameters it uses: group, or itself
						   where it has a copy */
	bool adds;                              /* its parameters' gradients are added */
	bool adds_room;                         /* or would be, if there were no copies */

	int64_t recorded;                       /* which algorithms: the plan's wish; 0: none */
	int64_t algorithms;                     /* those taken, where not as ever; by prepare */
	const char *recorded_engines;           /* the same in words; NULL: none; for prepare */
	char *engines;                          /* NULL: none; by prepare */
	const char *slow_kernel;                /* NULL: none; by prepare; lives as long as the net */

	/* arrays by parameter have room for all of the kind's; NULL where the layer has it not */

	/* known before prepare; arrays by input */
	const struct pd_layout **in;            /* NULL where i32 */
	const struct pd_shape **in_shape;
	bool *wants;                            /* a gradient of that input is wanted */
	size_t state_bytes;                     /* its states one after the other, each aligned */

	/* set by prepare */
	const struct pd_layout *out;
	const struct pd_layout **parameter;     /* by the first layer of those that share them */
	bool same_memory;                       /* the output is the input, under another shape */
	bool passes;                            /* the inputs' gradients are the output's: where
						   both have the same place, backward does nothing */
	bool sums;                              /* backward adds to what came before: diff_src is
						   the sum of that and of l->before */
	size_t extra_bytes;                     /* in the slot, besides the output */
	size_t split_bytes;                     /* there too, from one part of backward to the other */
	size_t forward_bytes, backward_bytes;   /* of scratch */
	void *own;                              /* the kind's; one malloc */
	void *plain;                            /* the device's, of a kind that takes plain inputs;
						   one malloc */

	/* set by memory_layout.c */
	struct pd_location scratch;		/* of backward; that of forward is at 0 */
	struct pd_contribution *contributions;
	bool *completes;                        /* by input: its part makes the gradient of a relu's
						   output whole, and the sum does the relu's part */
	bool completed;                         /* of a relu: somebody does so */
	struct pd_location diff_dst_at;
	struct pd_location diff_dst_from;	/* copied from here, if that is anywhere */
	size_t extra_offset, split_offset, state_offset, added_offset, backward_reserved;

	/* where everything is in this pass */
	const void **src;
	void *dst, *extra, *split, *state, *temporary;
	const void **parameters;
	void **diff_src;
	const void **before;                    /* by input; NULL: nothing; only where it sums */
	const void *diff_dst;
	void **diff_parameters;
};

struct pd_compiled_tensor {
	const struct pd_layout *layout;         /* NULL: i32, or plain */
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
struct pd_compiled_parameter {
	const struct pd_layout *layout, *plain; /* layout: of the net's type */
	const struct pd_layout *full;           /* the same of f32; plain is f32 too */
	size_t offset, bytes;                   /* in an arena of f32 */
};

struct pd_compiled {
	struct pd_net base;
	const struct pd_compiled_device *device;
	struct pd_net_sizes sizes;
	const struct pd_model *model;
	void *engine;                           /* the device's libraries, as it knows them */
	int first, count;
	int64_t batch;
	int64_t minibatch;                      /* its samples: the mean over them is trained */
	enum pd_dtype dtype;
	uint64_t seed;
	bool split, copies, measure;
	struct pd_tied_layer *tied_layers;
	int tied_layer_count;
	struct pd_compiled_layer *layers;       /* all of the model's */
	struct pd_compiled_tensor *tensors;
	struct pd_compiled_parameter **parameters;      /* by owner, and its parameter */
	int *home;              /* by owner: the first layer that uses its parameters; -1 */
	/* by layer: where the parameters begin of which it is the home, and how long they are */
	size_t *step_offset, *step_bytes;
	struct pd_named *named;
	int named_count;
};

/* --- compiled.c */
/* The net, its layers described and nothing prepared; pd_compiled_build does that, once the
 * engine is there.  NULL, -1: *err. */
struct pd_compiled *pd_compiled_new(struct pd_device *device,
				    const struct pd_compiled_device *how,
				    const struct pd_net_config *config, struct pd_error *err);
int pd_compiled_build(struct pd_compiled *net, struct pd_error *err);
/* All but the engine. */
void pd_compiled_free(struct pd_compiled *net);
/* As the device's functions of these names. */
const struct pd_net_sizes *pd_compiled_sizes(const struct pd_net *net);
void pd_compiled_layer_sizes(const struct pd_net *net, int layer, struct pd_net_layer *out_p);
int pd_compiled_named(const struct pd_net *net, const struct pd_named **list_p);
int pd_compiled_tied_layers(const struct pd_net *net, const struct pd_tied_layer **list_p);
int pd_compiled_init(struct pd_net *net, void *weights, void *master, void *state,
		     struct pd_error *err);
/* Where something at this offset of an arena of f32 lies in one of the net's type. */
static inline size_t pd_compiled_working(const struct pd_compiled *net, size_t offset)
{
	return offset / sizeof(float) * pd_dtype_bytes(net->dtype);
}
/* The room that a parameter tensor has in an arena of f32: what lies at half its offset, in
 * one of 16 bits, is aligned too.  The gradient of one takes as much where it is kept from one
 * part of backward to the other (lib/plan/memory: pd_memory_split). */
static inline size_t pd_compiled_reserved(const struct pd_compiled *net, size_t bytes)
{
	size_t times = sizeof(float) / pd_dtype_bytes(net->dtype);

	return times * pd_align((bytes + times - 1) / times);
}
/* Where a named tensor lies in its arena (of f32). */
size_t pd_compiled_offset(const struct pd_compiled *net, const struct pd_named *named);
/* The elements of an arena that an update of these layers goes over: [*begin_p, *end_p). */
void pd_compiled_range(const struct pd_compiled *net, int from, int count, size_t *begin_p,
		       size_t *end_p);

/* --- memory_layout.c */
/* Offsets of parameters, state, slots, gradients and scratch; fills net->sizes. */
int pd_compiled_lay_out(struct pd_compiled *net, struct pd_error *err);

/* --- run.c: called by a stream's thread; -1 with *err */
int pd_compiled_forward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			struct pd_error *err);
int pd_compiled_backward(struct pd_compiled *net, const struct pd_pass *pass, int from, int count,
			 struct pd_error *err);

#endif
