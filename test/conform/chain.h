/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on a device, cut into stages that run one after the other with the tensors
 * copied between them: what a pipeline computes, without the pipeline.
 */
#pragma once

#include "device/device.h"

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
	bool parts;                     /* backward in two parts: all weight parts at the end, in
					   scratch and gradients of activations that are spoilt */
	bool twice;                     /* each stage's forward and backward run again at once */
	int stage_count;
	struct stage *stages;
	struct pd_loss loss;            /* of the one loss layer that there is at most */
};

/*
 * A model from the elements of its "layers"; input x of that shape, and y, the labels.
 * In both, ' stands for ".
 */
struct pd_model *model_of(const char *shape, const char *layers);
/* The same with several labels for each sample, of that shape. */
struct pd_model *model_with(const char *shape, const char *labels, const char *layers);
/* One with everything that makes partitions hard: 3 x 8 x 8, 10 classes. */
struct pd_model *branching_model(void);
/* Blocks of a residual network, of several kinds: 3 x 6 x 6, 10 classes. */
struct pd_model *residual_model(void);
/* Attention, to itself and not, with heads that share keys, lengths and dropout. */
struct pd_model *sequence_model(void);
/* LSTMs in a row, of all sorts: sequences of 9 x 5, 10 classes. */
struct pd_model *recurrent_model(void);
/* A block of a transformer, and other layers for sequences: 6 x 8, 10 classes at each position. */
struct pd_model *transformer_model(void);

/* May the tests use this device?  It is here, and PD_TEST_DEVICE, where set, names it. */
bool chain_usable(const struct pd_device_ops *ops);

/* Layers opened that took an engine of those that PD_TEST_ENGINES names. */
extern int chain_engines;
/* What chains that are opened from now on compute in: f32, unless a test says otherwise. */
extern enum pd_dtype chain_dtype;
/* Their devices need not tell times (pd_device_config.untimed): false, unless a test says so. */
extern bool chain_untimed;
/* The name of the device and, where that is not f32, of the type. */
const char *chain_name(const struct pd_device_ops *ops);
/*
 * Sets chain_dtype to the type of that number, and which kernels the CPU has for it (the
 * environment's PD_CPU_BF16).  False where the device does not compute in it on this machine, or
 * has no such choice.  0 is f32, which all have.
 */
#define CHAIN_TYPES 4
bool chain_take(const struct pd_device_ops *ops, int number);
/* To the numbers of that type. */
float chain_round(enum pd_dtype dtype, float x);

/* Stages begin at layer 0 and at each of cuts, ascending. */
struct chain *chain_open(const struct pd_device_ops *ops, const struct pd_model *model,
			 const int *cuts, int cut_count, int64_t batch, uint64_t seed, int threads);
/* The same, of nets that can split backward. */
struct chain *chain_open_split(const struct pd_device_ops *ops, const struct pd_model *model,
			       const int *cuts, int cut_count, int64_t batch, uint64_t seed,
			       int threads);
void chain_close(struct chain *c);
/* Copies, and waits until that is done. */
void chain_copy(struct chain *c, void *dst, const void *src, size_t bytes, enum pd_copy way);
/* Copies to new memory of the device, for its memory.free. */
char *chain_put(struct chain *c, const void *host, size_t bytes);
/* x: [batch][elements]; y: labels. */
void chain_load(struct chain *c, const float *x, const int32_t *y);
/* Both return false when the device says that it failed. */
bool chain_forward(struct chain *c);
bool chain_backward(struct chain *c);
/* An update in place, of the whole; the arenas are the stages' own. */
void chain_step(struct chain *c, const struct pd_update *how);
void chain_update(struct chain *c, float rate, float momentum, float decay);

enum arena { WEIGHTS, GRADIENTS, VELOCITY, STATE, MASTER };
/* All named tensors of that arena, one after the other in the order of the layers. */
float *chain_export(struct chain *c, enum arena arena, int64_t *count_p);
/* The other way, of what forward reads; a master stays as it is. */
void chain_import_weights(struct chain *c, const float *all);
