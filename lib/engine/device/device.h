/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device seam: memory, streams, and the layers of a network.
 *
 * A device executes the works (work.h) on its streams, each stream in order, and completes their events.
 * To submit works does not wait.  It returns PD_AGAIN when the stream's queue is full (try again later), and
 * -1 when the device is broken.
 *
 * The host may be unable to read memory from alloc().  The caller owns all memory that a network
 * uses; net.sizes() says how much.
 *
 * A net computes in one dtype: f32, or 16 bits (bf16, f16).  The weights that forward and backward
 * read, the model's floating-point inputs, all activations and their gradients have that dtype.
 * Gradients of parameters, the optimizer's moments and running statistics are always f32.  Every
 * sum inside a kernel is taken in f32 and rounded once, to nearest even (base/half.h).  In a net of
 * 16 bits an update moves the master, which is f32 and exists once per stage, in place; it writes
 * the rounded result to the next version of the weights.
 */
#pragma once

#include "base/event.h"
#include "engine/device/work.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_AGAIN 1

struct pd_device { const struct pd_device_ops *ops; };
struct pd_stream { struct pd_device *device; };
struct pd_net { struct pd_device *device; };

struct pd_device_config {
	int ordinal;                    /* number among the devices usable here */
	int threads;                    /* 0: as many as the process may use */
	bool tf32;                      /* f32 products may use TF32 */
	/* nobody reads the times of events, so rough ones will do that ascend within a stream */
	bool untimed;
	struct pd_gate *gate;           /* NULL in virtual time */
};

#define PD_DEVICE_PLACE 32

struct pd_device_info {
	char name[128];                 /* name of the hardware */
	/* identifies the hardware among all of the host; "" where that means nothing */
	char place[PD_DEVICE_PLACE];
	int threads;                    /* 0 where the device has none */
	int64_t memory_bytes;
};

/*
 * A stage of a network on a device is layers first to first + count - 1 of the model, at one batch
 * size.  The device chooses layouts from the whole model, so that every tensor has the same layout
 * and every kernel the same form whatever the stage: the partition changes no bit.  Only one stream
 * at a time runs a net's layers.
 */
struct pd_net_config {
	const struct pd_model *model;   /* must outlive the net */
	int first, count;
	int64_t batch_size;             /* samples of a microbatch */
	/*
	 * Microbatches of a minibatch; 0: 1.  Backward starts from the gradient of the mean over
	 * all their samples, so that the gradients of the microbatches add up to the minibatch's.
	 */
	int64_t microbatches;
	enum pd_dtype dtype;            /* net.open() refuses one that the device cannot compute in */
	uint64_t seed;                  /* for parameters and dropout masks */
	bool copies;                    /* each layer that shares parameters has a copy */
	bool split;	/* slots have room for backward in two parts; a device without refuses */
	bool recomputes;                /* inboxes have room for what a second forward begins with */
	/*
	 * By model layer: with which others it is computed again (memory/segments.h); -1: it is not.
	 * NULL: all are, with all others.
	 */
	const int *segment;
	/*
	 * Algorithms by model layer, from pd_net_layer.algorithms of a net that measured, or NULL;
	 * only net.open() reads them.  `measure` chooses by measuring where there are none.
	 */
	const int64_t *algorithms;
	const char *const *engines;     /* likewise; NULL, or NULL for a layer: none */
	bool measure;
};

struct pd_net_tensor {                  /* a tensor that crosses the stage's boundary */
	int tensor;                     /* model tensor number */
	size_t bytes;
	bool inbox, kept;               /* it lies in the inbox, in what is kept apart; else in the slot */
	size_t offset;                  /* in that */
	/* of its gradient in gradient-in or gradient-out; SIZE_MAX: none (model inputs) */
	size_t gradient_offset;
};

struct pd_net_sizes {
	/*
	 * Arenas of parameters have two forms with the same order of elements: f32 (master,
	 * gradients, moments, delta), and the net's dtype (weights, corrected).  In a net of 16
	 * bits, offset n of the first corresponds to n / 2 of the second.
	 */
	size_t full_bytes, weights_bytes;
	size_t state_bytes, moved_bytes;        /* moved: at its beginning, what forwards change */
	size_t inbox_bytes, slot_bytes;
	size_t kept_bytes;              /* what is not computed again (memory/segments.h) */
	size_t scratch_bytes;
	size_t gradient_in_bytes, gradient_out_bytes;
	/*
	 * Tensors that come in, all into the inbox, are model inputs used here and outputs of
	 * layers before the stage.  Tensors that go out are outputs that later layers use, those
	 * that came in and are passed on included.  Both ascend by tensor.
	 */
	int in_count, out_count;
	struct pd_net_tensor *in, *out;
	int loss_count;                 /* loss layers of the stage */
};

/*
 * The cost of one layer.  slot_bytes of all layers add up to slot_bytes and kept_bytes of the stage, parameter_bytes to
 * full_bytes (shared parameters count once, at the first layer).
 */
struct pd_net_layer {
	size_t parameter_bytes;
	size_t slot_bytes;              /* its output, if that has memory of its own, and extras */
	size_t split_bytes;             /* additional slot_bytes where the net is split */
	size_t scratch_bytes;           /* without gradients of activations */
	size_t activation_bytes;        /* its output, if that crosses a boundary */
	size_t state_bytes;
	/* with these, too, lib/memory/memory computes the sizes of any stage, to the byte */
	size_t forward_bytes, backward_bytes;   /* scratch_bytes, and gradients that are added */
	bool in_place;                  /* its input's gradient may overwrite its output's */
	bool passes_gradient;           /* its inputs' gradients equal its output's */
	int64_t algorithms;             /* a number of the device's; 0: the usual ones */
	const char *engines;            /* in words of the device's; NULL: none; owned by the net */
	/*
	 * the library's name of this layer's kernel, if it is many times slower than others; else
	 * NULL; owned by the net
	 */
	const char *slow_kernel;
};

/* An arena of parameters is in the net's dtype (WORKING) or in f32 (FULL). */
enum pd_form { PD_WORKING, PD_FULL };

/* A named tensor of a layer, for checkpoints: in host memory, plain layout, f32. */
enum pd_part { PD_PART_PARAMETER, PD_PART_STATE, PD_PART_FROZEN };
struct pd_named {
	char *name;                     /* "conv1.weight", "bn1.running_mean"; owned by the net */
	/*
	 * a PARAMETER is in all arenas of parameters; a STATE is always f32; a FROZEN one, a parameter of a
	 * frozen layer, is in the arena of states and of the net's dtype, whatever the form
	 */
	enum pd_part part;
	bool copy;                      /* a copy of the owner's tensor, in a net with copies */
	int layer;
	int which;	/* number among the layer's parameters or states (struct pd_layer), from 0 */
	int dims;
	int64_t size[4];
	int64_t elements;
};

/* In a net with copies: a layer of the stage that shares parameters with others. */
struct pd_tied_layer {
	int layer, owner;
	size_t offset, bytes;           /* its parameters in f32 arenas */
};

struct pd_memory_ops {
	void *(*alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);    /* zeroed */
	/*
	 * Does the same with memory that other processes of the host can map, as far as there is such
	 * (base/shared_memory.h).  NULL: the device cannot.
	 */
	void *(*shared_alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);
	/*
	 * Tells whether these ranks sum floats in each other's memory from shared_alloc().  NULL: they
	 * ask each other.  (In virtual time a plan knows.)
	 */
	bool (*shares)(struct pd_device *device, const int *ranks, int n, size_t floats);
	void (*free)(struct pd_device *device, void *ptr);
	/* Allocates zeroed host memory that copies to and from the device are fast with. */
	void *(*host_alloc)(struct pd_device *device, size_t bytes, struct pd_error *err);
	void (*host_free)(struct pd_device *device, void *ptr);
};

struct pd_stream_ops {
	struct pd_stream *(*open)(struct pd_device *device, struct pd_error *err);
	/*
	 * Waits for the stream's work; once an event at the gate has failed, it does not wait for
	 * events that may never come.
	 */
	void (*close)(struct pd_stream *stream);
	/*
	 * Puts works on the stream, in this order: all of them, or none (PD_AGAIN).  They are copied.  Works
	 * that come together a device may do together.  engine/device/submit.h makes single ones.
	 */
	int (*submit)(struct pd_stream *stream, const struct pd_work *works, int n);
};

/* The layers of a stage: their sizes, parameters and passes. */
struct pd_net_ops {
	struct pd_net *(*open)(struct pd_device *device, const struct pd_net_config *config,
			       struct pd_error *err);
	void (*close)(struct pd_net *net);
	const struct pd_net_sizes *(*sizes)(const struct pd_net *net);
	/* Describes a layer of the stage (model number); NULL where the device cannot. */
	void (*layer)(const struct pd_net *net, int layer, struct pd_net_layer *out_p);
	/* Sets initial parameters and state, from the seed. master: NULL in a net of f32. */
	int (*init)(struct pd_net *net, void *weights, void *master, void *state,
		    struct pd_error *err);
	/*
	 * Ends a rehearsal (run/device/rehearse.h): every kind of pass over all layers of the net has
	 * run twice, and nothing is on a stream.  Makes everything for which the device has to be
	 * idle, so that no later pass of the net does, if those of a kind have at most so many
	 * combinations of buffers.  Blocks.  NULL: passes never do that.
	 */
	int (*settle)(struct pd_net *net, int64_t turns, struct pd_error *err);
	/* Lists named tensors, in layer order; the net owns the list. */
	int (*named)(const struct pd_net *net, const struct pd_named **list_p);
	/* Lists in layer order; the net owns the list.  NULL: the device has no copies. */
	int (*tied_layers)(const struct pd_net *net, const struct pd_tied_layer **list_p);
	/*
	 * These copy a named tensor between an arena of that form and host memory (plain layout,
	 * f32).  Import rounds to 16 bits as an update does.  They block; the arena must be at
	 * rest.
	 */
	int (*export)(struct pd_net *net, int named, enum pd_form form, const void *arena,
		      float *host);
	int (*import)(struct pd_net *net, int named, enum pd_form form, void *arena,
		      const float *host);
};

struct pd_device_ops {
	const char *name;
	bool splits;                    /* backward comes in two parts */
	bool separate_memory;		/* the host cannot read memory from alloc() */
	bool joins;                     /* it gains from works that come together (stream.submit) */
	bool calls;                     /* its streams take PD_WORK_CALL */
	int (*count)(struct pd_error *why);     /* of those usable here; 0: none, and why */
	/* pd_device_info.place of one of those; NULL: it means nothing */
	void (*place)(int ordinal, char place[PD_DEVICE_PLACE]);
	struct pd_device *(*open)(const struct pd_device_config *config, struct pd_error *err);
	void (*close)(struct pd_device *device);
	void (*describe)(struct pd_device *device, struct pd_device_info *info_p);
	struct pd_memory_ops memory;
	struct pd_stream_ops stream;
	struct pd_net_ops net;
};

/*
 * The devices that this program was linked with, best first, NULL-terminated.  Only programs that
 * compute link them (lib/run/device/list.c).
 */
extern const struct pd_device_ops *const pd_devices[];
/* Returns the device called name, or for "auto" the first that is usable here. */
const struct pd_device_ops *pd_device_find(const char *name, struct pd_error *err);

extern const struct pd_device_ops pd_device_cpu, pd_device_cuda;
