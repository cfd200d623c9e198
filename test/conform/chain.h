/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on a device, cut into stages that run one after the other with the tensors
 * copied between them.  It computes the results of a pipeline without the pipeline.
 */
#pragma once

#include "engine/device/device.h"

struct stage {
	int first, count;
	struct pd_net *net;
	const struct pd_net_sizes *sizes;
	char *weights, *master, *gradients, *velocity, *second, *state, *inbox, *slot, *scratch, *in, *out;
};

struct chain {
	const struct pd_device_ops *ops;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_gate gate;
	const struct pd_model *model;
	enum pd_dtype dtype;
	int64_t batch, first_sample, valid;
	bool evaluate;
	bool singly;                    /* each layer in a call of its own */
	bool split;                     /* the nets have room for backward in two parts */
	bool parts;                     /* backward in two parts: all weight parts run at the end, after
					   scratch and gradients of activations are overwritten */
	bool twice;                     /* each stage's forward and backward run twice in a row */
	int stage_count;
	struct stage *stages;
	struct pd_loss loss;            /* the loss of the only loss layer, if there is one */
};

/*
 * Returns a model with these elements of "layers", an input x of that shape, and y, the labels.
 * In both strings ' stands for ".
 */
struct pd_model *model_of(const char *shape, const char *layers);
/* Returns a model like model_of() whose samples have several labels each, of the shape `labels`. */
struct pd_model *model_with(const char *shape, const char *labels, const char *layers);
/* Returns a model with everything that makes partitions hard: 3 x 8 x 8, 10 classes. */
struct pd_model *branching_model(void);
/* Returns a model of several kinds of residual blocks: 3 x 6 x 6, 10 classes. */
struct pd_model *residual_model(void);
/* Returns a model of attention, to itself and to others, with shared keys, lengths and dropout. */
struct pd_model *sequence_model(void);
/* Returns a model of several kinds of LSTMs in a row: sequences of 9 x 5, 10 classes. */
struct pd_model *recurrent_model(void);
/* Returns a block of a transformer with other layers for sequences: 6 x 8, 10 classes per position. */
struct pd_model *transformer_model(void);

/* Tells whether this machine has the device, and PD_TEST_DEVICE, if set, names it. */
bool chain_usable(const struct pd_device_ops *ops);

/* The number of opened layers that took one of the engines that PD_TEST_ENGINES names. */
extern int chain_engines;
/* The type in which chains that are opened from now on compute; f32 by default. */
extern enum pd_dtype chain_dtype;
/* The pd_device_config.untimed of chains that are opened from now on; false by default. */
extern bool chain_untimed;
/* Returns the name of the device and, if it is not f32, of the type. */
const char *chain_name(const struct pd_device_ops *ops);
/*
 * Types are numbered from 0, which is f32; with some, the CPU has a choice of kernels.  Returns how many
 * of these a device has.
 */
#define CHAIN_TYPES 4
int chain_types(const struct pd_device_ops *ops);
/*
 * Sets chain_dtype to the type of that number, and the environment's PD_CPU_BF16 to the CPU's kernels
 * for it.  Where the device does not compute in it on this machine, prints that and returns false: it is
 * skipped on processors, and a failure where PD_GPU=yes promises a GPU.
 */
bool chain_take(const struct pd_device_ops *ops, int number);
/* Rounds x to a number of that type. */
float chain_round(enum pd_dtype dtype, float x);

/* Opens a chain whose stages begin at layer 0 and at each of the ascending cuts. */
struct chain *chain_open(const struct pd_device_ops *ops, const struct pd_model *model,
			 const int *cuts, int cut_count, int64_t batch, uint64_t seed, int threads);
/* Opens a chain like chain_open(), of nets that can split backward into two parts. */
struct chain *chain_open_split(const struct pd_device_ops *ops, const struct pd_model *model,
			       const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			       int threads);
void chain_close(struct chain *c);
/* Copies, and waits until the copy has ended. */
void chain_copy(struct chain *c, void *dst, const void *src, size_t bytes, enum pd_copy way);
/* Copies to new memory of the device, which the caller frees with the device's memory.free. */
char *chain_put(struct chain *c, const void *host, size_t bytes);
/* Copies the inputs to all stages that read them; x is [batch][elements], y are the labels. */
void chain_load(struct chain *c, const float *x, const int32_t *y);
/* Loads made-up numbers, and labels below 10, which are others in each step. */
void chain_load_step(struct chain *c, int step);
/* Run one pass through all stages; return false if the device reports a failure. */
bool chain_forward(struct chain *c);
bool chain_backward(struct chain *c);
/* Updates all stages in place; `how` gives everything but the arenas, which are the stages' own. */
void chain_step(struct chain *c, const struct pd_update *how);
void chain_update(struct chain *c, float rate, float momentum, float decay);

enum arena { WEIGHTS, GRADIENTS, VELOCITY, STATE, MASTER };
/* Returns all named tensors of that arena (frozen parameters are in STATE), one after the other in the order of the layers. */
float *chain_export(struct chain *c, enum arena arena, int64_t *count_p);
/* Sets the weights that forward reads from the order of chain_export(); a master stays as it is. */
void chain_import_weights(struct chain *c, const float *all);
