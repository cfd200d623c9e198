/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of the serial program (serial.c) share: the options, the network on its
 * device, and every tensor with all its past versions.
 */
#pragma once

#include "engine/data/loader.h"
#include "engine/device/device.h"
#include "plan/plan.h"

/* The ways in which --mutate breaks the rule. */
enum mutation {
	NONE, VERSION, LATEST, SUM, CLIP, SKIP, SCALE, UNSCALE, UNTIED, MEAN, ROUND, CORRECTION, SET, TWICE
};

/* The values of the options. */
struct asked {
	const char *data, *normalize, *augment, *output, *other_plan, *loss_scale_text;
	int64_t minibatches, seed, switch_at;
	enum { SGD, ADAM, ADAMW, LARS, NESTEROV, LION } optimizer;
	int decay;                      /* all, matrices */
	int lr_schedule;                /* constant, step, polynomial, cosine */
	int mutation;
	double rate, momentum, weight_decay, trust, beta1, beta2, epsilon, lr_gamma, lr_power;
	int64_t lr_step, lr_warmup, loss_scale_interval, lr_reschedule;
	double clip_norm, loss_scale, discrepancy, residual;
};

extern struct asked asked;

/* One named tensor of the network, with its past versions. */
struct tensor {
	const struct pd_named *named;
	size_t elements;
	float **versions;               /* a parameter's since the epoch began, oldest first */
	double *scales;                 /* the loss scale of each version */
	size_t scales_capacity;
	size_t count, capacity;
	size_t origin;                  /* index of version 0 of the rule */
	size_t floor;                   /* index of the oldest version that may be seen */
	float *gradient, *sum, *velocity, *second;
	float *delta, *seen;            /* PipeMare's; seen: the weights that backward sees */
	float **parts;                  /* the parts of the sum, by replica */
	float *mask;                    /* with sparse sums: 1 for elements that are updated, else 0 */
	int64_t updates;                /* updates made so far */
	float *state;                   /* running statistics */
};

struct trainer {
	const struct pd_plan *plan;
	const struct pd_model *model;
	const struct pd_device_ops *ops;
	struct pd_device *device;
	struct pd_stream *stream;
	struct pd_gate gate;
	struct pd_net *net;
	const struct pd_net_sizes *sizes;
	char *weights, *master, *gradients, *state, *inbox, *slot, *scratch, *spare, *in, *out, *scale;
	char *vector;                   /* sums of squares of a group, per layer */
	struct pd_dataset train;
	struct pd_loader *loader;
	int *inputs;                    /* the model's inputs that the network reads */
	int64_t epoch;                  /* minibatches per epoch */
	int64_t first;                  /* the first microbatch since the pipeline was empty */
	struct tensor *tensors;
	int count;
	int most_replicas;
	int64_t good;                   /* groups since the scale changed or one was skipped */
	int64_t skipped;                /* groups that were not finite */
};

/* Ends the program with the error unless `good`. */
void serial_check(bool good, const struct pd_error *err);

/* --- serial_rule.c: the version that is seen, and the lateness of a gradient */
const struct pd_stage *serial_stage_of(const struct pd_plan *plan, const struct tensor *v);
/* Returns the stage's microbatches per update. */
int64_t serial_group(const struct pd_plan *plan, const struct pd_stage *stage);
/* Returns the index of the version of a tensor that its stage sees in microbatch b. */
size_t serial_version(const struct trainer *t, const struct tensor *v, int64_t b, bool backward);
/* Returns the number of updates between a stage's forward and backward. */
int64_t serial_lateness(const struct pd_plan *plan, const struct pd_stage *stage);
bool serial_corrects(const struct trainer *t, const struct tensor *v);
/* Tells whether layers that share parameters have a copy each, whose gradients are summed. */
bool serial_has_tied_weights(const struct trainer *t);

/* --- serial_tensor.c: the tensors of the network, and their past versions */
void serial_tensors_open(struct trainer *t);
void serial_tensors_close(struct trainer *t);
void serial_tensors_write(struct trainer *t);
/* Adds a version to a tensor, which owns the values from then on. */
void serial_add_version(struct tensor *v, float *values, double scale);
/* Forgets all versions but the newest, from which an empty pipeline begins again. */
void serial_forget(struct tensor *v);
/* Returns the first parameter, for the loss scales that all parameters have in common. */
struct tensor *serial_parameter(const struct trainer *t);

/* --- serial_sparse.c: sparse sums, of which only the important chunks are summed */
void serial_sparse_open(struct trainer *t);
void serial_sparse_close(void);
bool serial_is_sparse(const struct pd_plan *plan, int s);
/* Returns the norms of a stage's chunks. */
const float *serial_sparse_norms(int s, size_t *count_p);
/* Returns a copy of the residual that a replica keeps of a tensor's gradients; the caller frees it. */
float *serial_sparse_residual(struct trainer *t, int number, int replica);
/* Computes the sums and masks of the group of microbatch b from the replicas' parts. */
void serial_sparse_sum(struct trainer *t, int s, int64_t b);

/* --- serial_update.c: rounding of gradients, and updates after a group of microbatches */
/* Round gradients that a replica of several sends, and the sum that it gets back, to gradient_dtype. */
void serial_round(const struct pd_plan *plan, float *x, size_t elements);
void serial_round_sum(const struct pd_plan *plan, float *x, size_t elements);
/*
 * Adds the gradients of microbatch b, and updates the parameters whose group is complete, or all if
 * b is `last`, the last microbatch before the pipeline is empty.
 */
void serial_learn(struct trainer *t, int64_t b, int64_t last);
