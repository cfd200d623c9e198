/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passes through a network that a trace has, a forward with its backward each, and the layers that most have.
 */
#pragma once

#include "doors/kineto/walk.h"

struct pd_kineto_times {
	int64_t forward_ns, input_ns, weight_ns;        /* the last two add up to backward */
};

struct pd_kineto_pass {
	bool whole;                     /* it has the layers that most have */
	int64_t updates;                /* how many there were before it */
	struct pd_kineto_span load, forward, backward;
};

struct pd_kineto_layer {
	char *name;
	int64_t call;                   /* equal for calls of one module */
	bool apart;                     /* input_ns and weight_ns could be told */
	bool learns;                    /* it has parameters with gradients */
	int64_t bytes, parameters;      /* of its output; how many it has; 0: not recorded */
};

struct pd_kineto_passes {
	int layer_count;
	struct pd_kineto_layer *layers;
	size_t pass_count, pass_capacity, whole_count, update_count, update_capacity;
	struct pd_kineto_pass *passes;
	struct pd_kineto_span *updates; /* steps of optimizers between two passes are one */
	struct pd_kineto_times *times;  /* of the whole passes, in order: whole_count x layer_count */
	size_t left_out;                /* passes with a backward that have other layers */
	bool gpu;
	enum pd_dtype dtype;            /* of most bytes that forward made, f32 where no sizes were recorded */
};

/* Tells whether anything in a trace says what a layer is. */
bool pd_kineto_has_labels(const struct pd_kineto_walk *walk);
/* Finds them.  Returns 0, or -1 with the reason why there are none; messages begin with the file's name. */
int pd_kineto_passes(const struct pd_kineto_walk *walk, struct pd_kineto_passes *out_p, struct pd_error *err);
void pd_kineto_passes_release(struct pd_kineto_passes *passes);
