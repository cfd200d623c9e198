/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the serial program (serial.c) share: what was asked for, the network on its
 * device, and every tensor with all its past.
 */
#pragma once

#include "data/loader.h"
#include "device/device.h"
#include "plan/plan.h"

/* How --mutate breaks the rule. */
enum mutation {
	NONE, VERSION, LATEST, SUM, CLIP, SKIP, SCALE, UNSCALE, UNTIED, MEAN, ROUND, CORRECTION, SET, TWICE
};

/* The options. */
struct asked {
	const char *data, *output, *other_plan, *loss_scale_text;
	int64_t minibatches, seed, switch_at;
	int optimizer;                  /* sgd, adam, adamw, lars */
	int decay;                      /* all, matrices */
	int lr_schedule;                /* constant, step, polynomial, cosine */
	int mutation;
	double rate, momentum, weight_decay, trust, beta1, beta2, epsilon, lr_gamma, lr_power;
	int64_t lr_step, lr_warmup, loss_scale_interval, lr_reschedule;
	double clip_norm, loss_scale, discrepancy, residual;
};

extern struct asked asked;

/* One named tensor of the network, with its past. */
struct tensor {
	const struct pd_named *named;
	size_t elements;
	float **versions;               /* parameters: since the epoch began, ascending */
	double *scales;                 /* of the loss, per version */
	size_t scales_capacity;
	size_t count, capacity;
	size_t origin;                  /* index of version 0 of the rule */
	size_t floor;                   /* index of the oldest that may be seen */
	float *gradient, *sum, *velocity, *second;
	float *delta, *seen;            /* PipeMare's; seen: by backward */
	float **parts;                  /* of the sum, by replica */
	float *mask;                    /* of a stage with sparse sums: 1 for what is updated, or 0 */
	int64_t updates;                /* made so far */
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
	struct pd_dataset train;
	struct pd_loader *loader;
	int *inputs;                    /* of the model, that the network reads */
	int64_t epoch;                  /* minibatches in one */
	int64_t first;                  /* microbatch since which the pipeline was not empty */
	struct tensor *tensors;
	int count;
	int most_replicas;
	int64_t good;                   /* groups since the scale changed or one was skipped */
};

/* Ends the program where something is not good. */
void serial_check(bool good, const struct pd_error *err);

/* serial_rule.c: which version is seen, and how late a gradient is */
const struct pd_stage *serial_stage_of(const struct pd_plan *plan, const struct tensor *v);
/* Microbatches per update. */
int64_t serial_group(const struct pd_plan *plan, const struct pd_stage *stage);
/* The index of the version that a tensor's stage sees of microbatch b. */
size_t serial_version(const struct trainer *t, const struct tensor *v, int64_t b, bool backward);
/* The updates between a stage's forward and backward. */
int64_t serial_lateness(const struct pd_plan *plan, const struct pd_stage *stage);
bool serial_corrects(const struct trainer *t, const struct tensor *v);
/* Has each layer that shares parameters its own, with gradients that are summed? */
bool serial_has_tied_weights(const struct trainer *t);

/* serial_tensor.c: the tensors of the network, and their past */
void serial_tensors_open(struct trainer *t);
void serial_tensors_close(struct trainer *t);
void serial_tensors_write(struct trainer *t);
/* Takes over the values. */
void serial_add_version(struct tensor *v, float *values, double scale);
/* The pipeline is empty and all begins again from the newest version. */
void serial_forget(struct tensor *v);
/* The first parameter stands for all: they have the same scales. */
struct tensor *serial_parameter(const struct trainer *t);

/* serial_sparse.c: the sum of a stage's gradients, where only chunks of them are summed */
void serial_sparse_open(struct trainer *t);
void serial_sparse_close(void);
bool serial_is_sparse(const struct pd_plan *plan, int s);
/* Returns the norms of a stage's chunks. */
const float *serial_sparse_norms(int s, size_t *count_p);
/* Returns what a replica keeps of a tensor's gradients, a copy: free() it. */
float *serial_sparse_residual(struct trainer *t, int number, int replica);
/* Makes the sums and masks of the group of microbatch b of replicas' parts. */
void serial_sparse_sum(struct trainer *t, int s, int64_t b);

/* serial_update.c: how gradients travel, and what a group of microbatches makes of the weights */
/* Rounds what a replica of a stage with others sends to gradient_dtype, and what comes back. */
void serial_round(const struct pd_plan *plan, float *x, size_t elements);
void serial_round_sum(const struct pd_plan *plan, float *x, size_t elements);
/*
 * Adds up what was made of microbatch b, of those up to last that go through before the pipeline
 * is empty, and updates what has its group.
 */
void serial_learn(struct trainer *t, int64_t b, int64_t last);
