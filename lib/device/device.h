/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device seam: memory, streams, and the layers of a network.
 *
 * A device executes what is on its streams, each stream in order, and answers through
 * events.  None of the functions marked (queued) waits for anything: they put work on a
 * stream and return; the event given, if not NULL, has been armed by the caller and is
 * completed when the work is done.  A queued function fails (-1) only when the stream's
 * queue is full (try again later: *err untouched, return PD_AGAIN) or the device is broken.
 *
 * Memory from alloc() may not be readable by the host.  All the memory that a network
 * uses belongs to the caller; sizes come from net_sizes().
 *
 * A net computes in one type (dtype): f32, or 16 bits (bf16, f16).  Of that type are the
 * weights that forward and backward read, the floating-point inputs of the model, all
 * activations and their gradients.  The gradients of parameters, the optimizer's moments and
 * running statistics are f32 in any net, and every sum inside a kernel is taken in f32 and
 * rounded once, to nearest even (base/half.h).  What is updated in a net of 16 bits is the
 * master: f32, one of a stage, in place; an update writes what it becomes, rounded, to the
 * next version of the weights.
 */
#ifndef PD_DEVICE_DEVICE_H
#define PD_DEVICE_DEVICE_H

#include "base/event.h"
#include "device/global_norm.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_AGAIN 1
#define PD_SUM_SOURCES 16           /* of one sum, at most */

struct pd_device { const struct pd_device_ops *ops; };
struct pd_stream { struct pd_device *device; };
struct pd_net { struct pd_device *device; };

struct pd_device_config {
	int ordinal;                    /* which of those usable here */
	int threads;                    /* 0: as many as the process may use */
	bool tf32;                      /* products of f32 may be made of shorter numbers */
	bool untimed;                   /* nobody looks at the times of events: it is enough that
					   those of a stream ascend and are about right, which
					   may cost less */
	struct pd_gate *gate;           /* NULL in virtual time */
};

struct pd_device_info {
	char name[128];                 /* of the hardware */
	char place[32];                 /* where that is, as no other is: of ranks that share it the
					   same; "" where that means nothing */
	int threads;                    /* 0 where that means nothing */
	int64_t memory_bytes;
};

/*
 * A stage of a network on a device: layers first to first + count - 1 of the model, at
 * one minibatch size.  Layouts are the device's own, and are chosen from the whole model,
 * so that a tensor has the same layout and every kernel the same form whatever the stage:
 * a partition does not change a bit.  One stream at a time runs a net's layers.
 */
struct pd_net_config {
	const struct pd_model *model;   /* must outlive the net */
	int first, count;
	int64_t batch_size;             /* of a microbatch */
	/* That a minibatch is made of; 0: 1.  Backward begins with the gradient of the mean over all
	 * their samples, so that what the microbatches of a minibatch add up to is that of its loss. */
	int64_t microbatches;
	enum pd_dtype dtype;            /* what it computes in; one that the device does not know
					   is refused by net_open */
	uint64_t seed;                  /* of parameters and dropout masks */
	bool copies;                    /* each layer that shares parameters has its own */
	bool split;                     /* slots have room for backward in two parts; devices
					   that cannot refuse it */
	/* Which algorithms: those in pd_net_layer.algorithms of a net that measured (by model
	 * layer; only read by net_open), or NULL; and whether to measure where there is none. */
	const int64_t *algorithms;
	const char *const *engines;     /* likewise; NULL, or NULL for a layer: none */
	bool measure;
};

struct pd_net_tensor {                  /* one that crosses the stage's boundary */
	int tensor;                     /* model tensor number */
	size_t bytes;
	bool inbox;                     /* it lies in the inbox, else in the slot */
	size_t offset;                  /* where there */
	size_t gradient_offset;         /* where its gradient lies in gradient-in or gradient-out;
					   SIZE_MAX when it has none (model inputs) */
};

struct pd_net_sizes {
	/*
	 * Arenas of parameters come in two forms, alike element by element: f32 (master,
	 * gradients, moments, delta), and the net's type (weights, corrected).  In a net of f32
	 * they are one; else an element that is at byte n of one is at n / 2 of the other.
	 */
	size_t full_bytes, weights_bytes;
	size_t state_bytes;
	size_t inbox_bytes, slot_bytes;
	size_t scratch_bytes;
	size_t gradient_in_bytes, gradient_out_bytes;
	/*
	 * Tensors that come in, all into the inbox: model inputs used here and layers before the stage; those that
	 * go out: layers up to its end that later layers use, passed on ones (which came in)
	 * among them.  Ascending by tensor.
	 */
	int in_count, out_count;
	struct pd_net_tensor *in, *out;
	int loss_count;                 /* loss layers of the stage */
};

/*
 * What one layer costs.  The slots of the layers add up to slot_bytes; parameters to
 * full_bytes (shared ones count once, at the first layer).
 */
struct pd_net_layer {
	size_t parameter_bytes;
	size_t slot_bytes;              /* its output, if that has memory of its own, and extras */
	size_t split_bytes;             /* what that is more where the net is split */
	size_t scratch_bytes;           /* beside the gradients of activations */
	size_t activation_bytes;        /* its output, when that crosses a boundary */
	size_t state_bytes;
	/* from these and the rest lib/plan/memory makes the sizes of any stage, to the byte */
	size_t forward_bytes, backward_bytes;   /* scratch_bytes, and room for gradients added */
	bool in_place;                  /* its input's gradient may be made over its output's */
	bool passes_gradient;           /* its inputs' gradients are its output's */
	int64_t algorithms;             /* the device's own number; 0: those that it takes anyway */
	const char *engines;            /* and its own words; NULL: none; the net's */
	const char *slow_kernel;        /* the library's name of a kernel that this layer runs on
					   although it is many times slower than the others;
					   NULL: there is none; the net's */
};

struct pd_loss {                /* of one microbatch; in host memory, valid once the event is done */
	/* Over the rows of the valid samples: one of a sample, or as many as its logits have. */
	double sum;
	int64_t correct;
	int64_t samples;                /* the valid ones */
};

/*
 * Backward can be had in two parts, where the net was opened for that: INPUT makes the
 * gradients of activations, and keeps in the slot what WEIGHT makes the gradients of
 * parameters from.  Together they give the bits of ALL.  WEIGHT reads inbox, slot and
 * weights, and writes gradients and scratch; in between neither inbox nor slot may change.
 */
enum pd_backward_part { PD_BACKWARD_ALL, PD_BACKWARD_INPUT, PD_BACKWARD_WEIGHT };

/* What one forward or backward reads and writes.  Copied when queued. */
struct pd_pass {
	const void *weights;
	void *state, *gradients, *inbox, *slot, *scratch, *gradient_in, *gradient_out;
	int64_t first_sample;           /* global number of the minibatch's first sample, for dropout */
	int64_t valid;                  /* samples that count; the rest is padding */
	bool evaluate;                  /* running statistics are used and not changed; no dropout */
	bool again;                     /* recomputation: running statistics were moved by the forward
					   before, and stay */
	enum pd_backward_part part;
	struct pd_loss *losses;         /* NULL, or written by the stage's loss layers: one each, in
					   their order */
	const struct pd_scale *scale;   /* what each loss is multiplied by for backward; device
					   memory; NULL: 1 */
};

/*
 * One pass over each element, from `weights` to `next`, which may be the same, as PyTorch has
 * it.  SGD with momentum; velocity is NULL without:
 *     g = gradient + weight_decay * w;  v = momentum * v + g;  w' = w - rate * v
 * Adam, where v is the first moment, s the second, and this is update number t = count, from 1:
 *     g = gradient + weight_decay * w
 *     v = beta1 * v + (1 - beta1) * g;  s = beta2 * s + (1 - beta2) * g * g
 *     w' = w - rate / (1 - beta1^t) * v / (sqrt(s) / sqrt(1 - beta2^t) + eps)
 * AdamW is Adam with g = gradient, and  w' = (1 - rate * weight_decay) * w - ...  instead.
 *
 * Where all ranks agree on it (norm.vector is not NULL; the whole stage in one call), gradient
 * is that in the arena times pd_global_norm_factor, in double and rounded once, t is count less the
 * updates skipped before, and an update that is skipped makes w' = w and leaves the moments alone.
 *
 * Where delta is not NULL, after any of them, each operation rounded by itself:
 *     delta = keep * delta + (1 - keep) * (w' - w);  corrected = w' - delay * delta
 *
 * In a net of 16 bits w and w' are those of the master, which is moved in place; next is w'
 * rounded (also where the update is skipped), corrected is rounded, and weights is not read.
 */
enum pd_update_kind { PD_SGD, PD_ADAM, PD_ADAMW };

struct pd_update {
	enum pd_update_kind kind;
	const void *weights;
	void *next, *velocity, *second;         /* second: of Adam, AdamW */
	void *master;                           /* of a net of 16 bits; else NULL */
	const void *gradients;
	double rate, momentum, weight_decay;
	double beta1, beta2, eps;               /* of Adam, AdamW */
	int64_t count;
	struct pd_global_norm norm;
	void *delta, *corrected;
	double keep, delay;
};

/*
 * A stage that sends nothing on does these in a row: an update, the next microbatch's forward, and
 * its backward.
 */
struct pd_iteration {
	const struct pd_update *update;         /* NULL: there is none */
	const struct pd_pass *pass;             /* forward and backward share it; it is neither
						   an evaluation nor one part of backward */
	struct pd_event *updated, *forwarded, *ended;
};

/* Of the gradients of a stage, into the vector of lib/device/global_norm.h. */
struct pd_squares {
	const void *gradients;
	const struct pd_scale *scale;   /* with which they were made; NULL: there were none */
	double *vector;                 /* device memory, as all here */
	bool clear;                     /* first make all of it PD_ABSENT */
};

/* The form of an arena of parameters: of the net's type, or f32. */
enum pd_form { PD_WORKING, PD_FULL };

/*
 * Work that somebody else puts on a stream: post() does, on the stream's thread, given the
 * device's own handle of the stream (a cudaStream_t), or does it at once where that is NULL;
 * check(), on whatever thread, says whether it went well, once it is done.  Either returns -1
 * with *err where not.
 */
struct pd_call {
	int (*post)(void *context, void *native, struct pd_error *err);
	int (*check)(void *context, struct pd_error *err);
	void *context;                  /* until check() has returned, or the stream is closed */
};

enum pd_copy { PD_COPY_TO_DEVICE, PD_COPY_TO_HOST, PD_COPY_WITHIN };

/* Named tensors of a layer, for checkpoints: host side, plain layout, f32. */
enum pd_part { PD_PART_PARAMETER, PD_PART_STATE };
struct pd_named {
	char *name;                     /* "conv1.weight", "bn1.running_mean"; the net's */
	enum pd_part part;              /* PARAMETER: in weights, gradients, moments arenas alike;
					   STATE: always f32 */
	bool copy;                      /* of that name's, in a net with copies: not its owner's */
	int layer;
	int which;                      /* of that layer's parameters or states (struct pd_layer),
					   from 0 */
	int dims;
	int64_t size[4];
	int64_t elements;
};

/* In a net with copies: a layer of the stage that shares parameters, or whose others do. */
struct pd_tied_layer {
	int layer, owner;
	size_t offset, bytes;           /* of its parameters, in arenas of f32 */
};

/* Memory of the device, and of the host. */
struct pd_memory_ops {
	void *(*alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);    /* zeroed */
	void (*free)(struct pd_device *device, void *ptr);
	/* Host memory, zeroed, that copies to and from the device are fastest with. */
	void *(*host_alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);
	void (*host_free)(struct pd_device *device, void *ptr);
};

/* Streams, and what is queued on them but passes and sums. */
struct pd_stream_ops {
	struct pd_stream *(*open)(struct pd_device *device, struct pd_error *err);
	/* After its work is done; once an event at the gate has failed, without waiting for
	 * events that may never come. */
	void (*close)(struct pd_stream *stream);
	/* Work queued from now on starts after ev.  (queued) */
	int (*wait)(struct pd_stream *stream, struct pd_event *ev);
	int (*copy)(struct pd_stream *stream, void *dst, const void *src, size_t bytes,
		    enum pd_copy way, struct pd_event *ev);
	/* NULL: the device cannot.  (queued) */
	int (*call)(struct pd_stream *stream, const struct pd_call *call, struct pd_event *ev);
};

/* A stage's layers: their sizes, parameters and passes. */
struct pd_net_ops {
	struct pd_net *(*open)(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err);
	void (*close)(struct pd_net *net);
	const struct pd_net_sizes *(*sizes)(const struct pd_net *net);
	/* A layer (model number) of the stage; NULL where the device cannot say. */
	void (*layer)(const struct pd_net *net, int layer, struct pd_net_layer *out_p);
	/* Initial parameters and state, from the seed.  master: NULL in a net of f32. */
	int (*init)(struct pd_net *net, void *weights, void *master, void *state,
		    struct pd_error *err);
	/* Layers from to from + count - 1 (model numbers) of the stage.  (queued) */
	int (*forward)(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
		       int from, int count, struct pd_event *ev);
	/* The same, or one part of it, from the last layer to the first.  Gradients of parameters
	 * are overwritten, not added to.  Between calls for parts of a stage, scratch holds
	 * gradients of activations: the same scratch, and nothing else in between. */
	int (*backward)(struct pd_stream *stream, struct pd_net *net, const struct pd_pass *pass,
			int from, int count, struct pd_event *ev);
	int (*update)(struct pd_stream *stream, struct pd_net *net, const struct pd_update *update,
		      int from, int count, struct pd_event *ev);
	/* Does what update, forward and backward do, each with its own event.  All of it is queued,
	 * or nothing.  NULL: the device gains nothing by being told at once.  (queued) */
	int (*iterate)(struct pd_stream *stream, struct pd_net *net,
		       const struct pd_iteration *iteration, int from, int count);
	/*
	 * The end of a rehearsal (device/rehearse.h): every kind of pass over all layers of the net
	 * has been run twice, and nothing is on a stream.  From now on passes of the net make
	 * nothing for which the device would have to be idle: what they may need is made here.
	 * Blocks.  NULL: they never do.
	 */
	int (*settle)(struct pd_net *net, struct pd_error *err);
	/* Named tensors, in layer order; list is owned by the net. */
	int (*named)(const struct pd_net *net, const struct pd_named **list_p);
	/* In layer order; owned by the net.  NULL: the device has no copies. */
	int (*tied_layers)(const struct pd_net *net, const struct pd_tied_layer **list_p);
	/* One named tensor between an arena of that form and host memory in plain layout, f32.
	 * Into one of 16 bits it is rounded as an update rounds.  The arena must be at rest:
	 * blocks. */
	int (*export)(struct pd_net *net, int named, enum pd_form form, const void *arena,
		      float *host);
	int (*import)(struct pd_net *net, int named, enum pd_form form, void *arena,
		      const float *host);
};

/* What is computed outside of layers. */
struct pd_math_ops {
	/* dst[i] = src[0][i] + src[1][i] + ... in that order, count floats; dst may be one of
	 * them; n = 0 makes zeros.
	 * (queued) */
	int (*sum)(struct pd_stream *stream, float *dst, const float *const *src, int n,
		   size_t count, struct pd_event *ev);
	/* Those of all layers of the stage; and vector[i] = other[i] where vector[i] is PD_ABSENT.
	 * NULL, both: the device cannot.  (queued) */
	int (*squares)(struct pd_stream *stream, struct pd_net *net, const struct pd_squares *what,
		       struct pd_event *ev);
	int (*unite)(struct pd_stream *stream, double *vector, const double *other, size_t count,
		     struct pd_event *ev);
};

struct pd_device_ops {
	const char *name;
	bool splits;                    /* backward can be had in two parts */
	bool separate_memory;		/* the host cannot read memory from alloc() */
	int (*count)(struct pd_error *why);     /* usable here; 0: none, and why */
	struct pd_device *(*open)(const struct pd_device_config *config, struct pd_error *err);
	void (*close)(struct pd_device *device);
	void (*describe)(struct pd_device *device, struct pd_device_info *info_p);
	struct pd_memory_ops memory;
	struct pd_stream_ops stream;
	struct pd_net_ops net;
	struct pd_math_ops math;
};

/*
 * The devices that this program was linked with, best first, NULL-terminated; only
 * programs that compute link them (lib/device/list.c).
 */
extern const struct pd_device_ops *const pd_devices[];
/* "auto": the first that is usable here. */
const struct pd_device_ops *pd_device_find(const char *name, struct pd_error *err);

extern const struct pd_device_ops pd_device_cpu, pd_device_cuda;

#endif
