/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each layer costs on one device.  pd-profile(5).  Layers are in topological
 * order, the model's where there is one; layer l here is layer l of the model.
 */
#ifndef PD_PROFILE_PROFILE_H
#define PD_PROFILE_PROFILE_H

#include "base/error.h"
#include "model/model.h"

#include <jansson.h>
#include <stdint.h>

struct pd_profile_layer {
	char *name;
	int input_count;
	int *inputs;                    /* layer indices; model inputs are left out */
	int64_t forward_ns, backward_ns;
	int64_t backward_input_ns, backward_weight_ns;  /* -1: not split */
	int64_t update_ns;              /* the optimizer's step on its parameters; 0 where absent */
	int64_t update_apart_ns;        /* the same into another buffer; -1: not measured */
	int64_t activation_bytes, parameter_bytes, stash_bytes, workspace_bytes;
	/* what the device lays out by, see lib/plan/memory.h; -1: it does not say */
	int64_t forward_workspace_bytes, backward_workspace_bytes;
	int64_t state_bytes;            /* running statistics */
	int64_t algorithms;             /* which the device took: its own number; 0: as ever */
	char *engines;                  /* the same in the device's own words; NULL: none */
	char *slow_kernel;              /* one that it runs on although it is many times slower than
					   others; NULL: none */
	bool in_place;                  /* its input's gradient may be made over its output's */
	bool passes_gradient;           /* its inputs' gradients are its output's */
	bool needs_gradient;            /* its output: it or a layer before it has parameters */
	double spread;                  /* of forward_ns + backward_ns over the runs: interquartile
					   range / median; 0 where absent */
};

struct pd_profile {
	char *name;
	struct pd_model *model;         /* NULL where absent; owned */
	int64_t batch_size;
	enum pd_dtype dtype;            /* that forward and backward compute in */
	char *device_kind, *device_name;
	int64_t device_threads, device_memory_bytes;    /* 0: unknown */
	int64_t sum_bytes_per_s;        /* gradients added to others; 0: not measured */
	int64_t operation_ns;           /* of a worker, besides computing; 0: not measured */
	int64_t workers;                /* that were timed side by side; 0: unknown */
	int64_t link_bandwidth_bytes_per_s, link_latency_ns;    /* bandwidth 0: not measured */
	int64_t step_ns;                /* one whole training step measured; 0 where absent */
	int layer_count;
	struct pd_profile_layer *layers;
	int *numbers;                   /* per layer, its place before pd_profile_reorder; or NULL */
	json_t *json;                   /* the document; owned */
	json_t *names;                  /* name -> layer, -1: input; NULL in one made by hand */
};

struct pd_place;
struct pd_profile *pd_profile_parse_at(const struct pd_place *place, struct pd_error *err);
/* most_layers 0: PD_MAX_LAYERS; with more the file is not read to its end. */
struct pd_profile *pd_profile_read(const char *file, int most_layers, struct pd_error *err);
void pd_profile_free(struct pd_profile *profile);
/*
 * Puts the layers, and the model's, into another topological order: order[n] is the layer
 * that becomes layer n.  Documents keep the old one.
 */
void pd_profile_reorder(struct pd_profile *profile, const int *order);
/* A copy in another order, without document and names to find layers by. */
struct pd_profile *pd_profile_in_order(const struct pd_profile *profile, const int *order);
/* A layer's place before pd_profile_reorder. */
static inline int pd_profile_number(const struct pd_profile *profile, int layer)
{
	return profile->numbers ? profile->numbers[layer] : layer;
}
/*
 * Makes the document from the fields (not from ->json): a new reference.  Without a
 * model the inputs that are not layers are left out, as in the fields.
 */
json_t *pd_profile_json(const struct pd_profile *profile);
/* Who uses each layer's output, by layer; pd_uses_release() ends it. */
void pd_profile_uses(const struct pd_profile *profile, struct pd_uses *uses);
/* The parts of a layer's backward; where the device could not split it, half (rounded up)
 * and the rest. */
int64_t pd_profile_input_ns(const struct pd_profile_layer *layer);
int64_t pd_profile_weight_ns(const struct pd_profile_layer *layer);
/* An update that leaves the version it reads where it is; update_ns at least. */
int64_t pd_profile_apart_ns(const struct pd_profile_layer *layer);
/* The layer called name, or -1. */
int pd_profile_find(const struct pd_profile *profile, const char *name);

#endif
