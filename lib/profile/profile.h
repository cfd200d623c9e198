/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile (pd-profile(5)) gives the cost of each layer on one device.  Layers are in topological
 * order, the model's if there is a model; layer l here is layer l of the model.
 */
#pragma once

#include "base/rows.h"
#include "model/model.h"


/*
 * Between which parts of a time it lay in eight of ten rounds: its tenth and its ninetieth percentile, over
 * the time.  0 and 0 where that was not measured.
 */
struct pd_spread {
	double low, high;               /* at most and at least 1 */
};

#define PD_PAIRS_LEAST 0.5              /* two as long as each other, which do not disturb each other */
#define PD_PROFILE_PARTS 3              /* PD_TIMEDS (profile/spread.h) */

struct pd_profile_layer {
	char *name;
	int input_count;
	int *inputs;                    /* layer indices; model inputs are left out */
	bool shared;                    /* another layer uses the same parameters */
	int owner;                      /* if shared: the layer that has them, perhaps this one */
	int64_t forward_ns, backward_ns;
	int64_t backward_input_ns, backward_weight_ns;  /* -1: not split */
	int64_t update_ns;              /* the optimizer's step on its parameters; 0 where absent */
	int64_t update_apart_ns;        /* into another buffer; -1: not measured */
	int64_t activation_bytes, parameter_bytes, stash_bytes, workspace_bytes;
	/* sizes that the device lays memory out by, see lib/memory/memory.h; -1: unknown */
	int64_t forward_workspace_bytes, backward_workspace_bytes;
	int64_t state_bytes;            /* running statistics */
	int64_t algorithms;             /* the device's number for its choice; 0: the defaults */
	char *engines;                  /* the device's words for its choice; NULL: none */
	char *slow_kernel;              /* the slow kernel that it has to run on; NULL: none */
	bool in_place;                  /* its input's gradient may overwrite its output's */
	bool passes_gradient;           /* its inputs' gradients are its output's */
	bool joined;                    /* pd-plan does not cut between it and the layer before; no
					   document says so */
	bool needs_gradient;            /* a gradient of its output: it or a layer before has
					   parameters */
	double spread;                  /* interquartile range / median of forward_ns + backward_ns;
					   0 where absent */
	struct pd_spread spreads[PD_PROFILE_PARTS];     /* of its share of the whole step's */
};

/* Times were taken in rounds, with all layers in each. */
struct pd_rounds {
	int64_t count;                  /* 0: nothing is known */
	int64_t elapsed_ns;             /* from the first round's beginning to the last one's end */
	struct pd_spread step;          /* of a step's mean time in a round */
};

/* Workers that take steps at once, as replicas of a stage do, slow each other down this much. */
struct pd_in_step {
	double forward, backward, update;       /* times as long as in the layers; 0: not measured */
	int64_t slowest_ns;	/* how long one waits in the mean for the slowest of `workers`, which
				   have taken a whole step */
	int64_t sum_bytes_per_s;        /* speed of sums in each other's memory, in bytes of one worker's
					   gradients; 0: not measured */
};

/* Whose memory a plan predicts (memory_model.def). */
enum pd_memory_model {
#define MEMORY_MODEL(symbol, ...) PD_MEMORY_##symbol,
#include "profile/memory_model.def"
	PD_MEMORY_MODELS
};
extern const char *const pd_memory_model_name[PD_MEMORY_MODELS + 1];    /* NULL-terminated */

struct pd_memory_rule {
	enum pd_memory_model model;
	bool sharded;                   /* replicas share out what the optimizer keeps */
	double margin;                  /* what the allocator keeps, over what is used; 0 with PD_MEMORY_OWN */
};

#define PD_MOST_GROUP 65536             /* devices that share anything out */
#define PD_MEMORY_MARGIN 0.1            /* what caching allocators keep, commonly */

struct pd_group_link {
	int64_t bandwidth_bytes_per_s, latency_ns;
};

/*
 * Devices that act as one rank: `tensor` share the layers out, and `sharded` of such the samples and what is kept of
 * the parameters.  Times are those of one device, with what they exchange; bytes are those of all together.
 */
struct pd_degrees {
	int64_t tensor, sharded;        /* 0 or 1: they do not */
	bool sequence;                  /* what `tensor` devices would do each as a whole is shared out by rows */
	/* what times were made with: a device's link to those that share layers with it, and
	 * samples */
	struct pd_group_link tensor_link, sharded_link;
};

static inline int64_t pd_degrees_devices(const struct pd_degrees *group)
{
	return (group->tensor > 1 ? group->tensor : 1) * (group->sharded > 1 ? group->sharded : 1);
}

/* Returns what each device of the group has of so many bytes. */
static inline int64_t pd_degrees_each(const struct pd_degrees *group, int64_t bytes)
{
	return (bytes - 1) / pd_degrees_devices(group) + 1;
}

/*
 * Reads what --tensor says, such as "8" or "1,2,4,8,sequence", into `most` numbers at most; returns how many there
 * are, or -1.
 */
int pd_degrees_parse_tensor(const char *text, int most, int64_t *numbers, bool *sequence_p, struct pd_error *err);
json_t *pd_degrees_json(const struct pd_degrees *group);            /* a new reference */

struct pd_profile {
	char *name;
	struct pd_model *model;         /* NULL where absent; owned */
	int64_t batch_size;
	enum pd_dtype dtype;            /* type in which forward and backward compute */
	char *device_kind, *device_name;
	char *estimated_from;           /* the data sheet that times are from; NULL: they were measured */
	double estimated_spread;        /* how far these may be off, as a part of them */
	struct pd_rounds rounds;
	json_t *sheet;                  /* that document (pd-device(5)); NULL: unknown; owned */
	bool tf32;                      /* and f32 products were taken to be rounded */
	struct pd_degrees group;
	int64_t device_threads, device_memory_bytes;    /* 0: unknown */
	/* Speeds, in bytes of gradients in f32; 0: not measured. */
	int64_t sum_bytes_per_s;        /* of adding them to others */
	int64_t round_bytes_per_s;      /* of rounding them to 16 bits */
	int64_t mixed_sum_bytes_per_s;  /* of adding those of 16 bits to others */
	int64_t operation_ns;           /* cost besides computing; 0: not measured */
	int64_t launch_ns;              /* from when all that it waits for is there to when an operation
					   begins on a stream that was idle; 0: not measured */
	int64_t clock_ns;               /* of a chain of operations (base/pulse.h); 0: not measured */
	double beside_transfers;        /* times as long as computing takes while bytes come or leave; 0: not
					   measured */
	double pairs;                   /* what a forward and a backward take that run together, over what they take one
					   after the other; 0: they do not */
	int64_t workers;                /* timed side by side; 0: unknown */
	struct pd_in_step in_step;      /* of these workers */
	double in_turns;                /* processor time of a worker that takes turns with another on
					   a processor, over that of one alone; 0: not measured */
	int64_t link_bandwidth_bytes_per_s, link_latency_ns;    /* bandwidth 0: not measured */
	struct pd_spread link_spread;   /* of the time of a transfer; 0 and 0: not measured */
	int64_t step_ns;                /* one whole training step measured; 0 where absent */
	struct pd_memory_rule memory;   /* of the program that will train */
	int layer_count;
	struct pd_profile_layer *layers;
	int shared_count;               /* layers with parameters that another uses, too */
	int *numbers;                   /* per layer, its original number; or NULL */
	json_t *json;                   /* the document; owned */
	json_t *names;                  /* name -> layer, -1: input; NULL if made by hand */
	/* The same network on other kinds of devices, in the same order; all owned. */
	int other_count;
	struct pd_profile **others;
};

extern const struct pd_key_row pd_profile_rows[];
struct pd_profile *pd_profile_parse_at(const struct pd_place *place, struct pd_error *err);
/*
 * Reads a profile; a file with more than most_layers layers (0: PD_MAX_LAYERS) is refused at once.
 */
struct pd_profile *pd_profile_read(const char *file, int most_layers, struct pd_error *err);
/*
 * Reads profiles that are one behind the other in a file, into those behind the first *count_p of a list that has
 * room for `most`; *count_p of them are there even if it fails.
 */
int pd_profile_read_all(const char *file, int most_layers, struct pd_profile **profiles, int most, int *count_p,
			struct pd_error *err);
void pd_profile_free(struct pd_profile *profile);
/*
 * Puts the layers, and the model's, into another topological order: order[n] is the layer
 * that becomes layer n.  Documents keep the old one.
 */
void pd_profile_reorder(struct pd_profile *profile, const int *order);
/* Returns a copy in another order, without its document and its table of names. */
struct pd_profile *pd_profile_in_order(const struct pd_profile *profile, const int *order);
/* Returns the profile of a kind of device (pd_topology.kind): of the first, or of one of the others. */
static inline const struct pd_profile *pd_profile_of_kind(const struct pd_profile *profile, int kind)
{
	return kind > 0 ? profile->others[kind - 1] : profile;
}
/* Sets what pairs take on devices of all kinds. */
void pd_profile_set_pairs(struct pd_profile *profile, double pairs);
/* Takes over the profile of one more kind of device. */
void pd_profile_add_kind(struct pd_profile *profile, struct pd_profile *other);
/*
 * Returns a profile with the least time of each layer, and the greatest speed of all sums, on any kind of
 * device; memory is that of the first.
 */
struct pd_profile *pd_profile_fastest(const struct pd_profile *profile);
/* Returns the layer's number before pd_profile_reorder. */
static inline int pd_profile_number(const struct pd_profile *profile, int layer)
{
	return profile->numbers ? profile->numbers[layer] : layer;
}
/*
 * Makes a document from the fields, not from ->json; a new reference.  Without a model it leaves
 * out inputs that are not layers, as the fields do.
 */
json_t *pd_profile_json(const struct pd_profile *profile);
/* Lists the users of each layer's output; pd_uses_release() frees the list. */
void pd_profile_uses(const struct pd_profile *profile, struct pd_uses *uses);
/*
 * These return the times of the parts of a layer's backward.  If the device could not split it,
 * they return half (rounded up) and the rest.
 */
int64_t pd_profile_input_ns(const struct pd_profile_layer *layer);
int64_t pd_profile_weight_ns(const struct pd_profile_layer *layer);
/* Returns the layer whose parameters a layer uses: itself, unless it shares another's. */
static inline int pd_profile_owner(const struct pd_profile *profile, int layer)
{
	return profile->layers[layer].shared ? profile->layers[layer].owner : layer;
}
/* Returns the time of a layer's forward, backward and update. */
static inline int64_t pd_profile_step_ns(const struct pd_profile_layer *layer)
{
	return layer->forward_ns + layer->backward_ns + layer->update_ns;
}

/* Returns the time of an update that keeps the version it reads; at least update_ns. */
int64_t pd_profile_apart_ns(const struct pd_profile_layer *layer);
/* Returns the time of a layer's update among replicas, which may share it out. */
int64_t pd_profile_shared_ns(const struct pd_profile *profile, int64_t update_ns, int64_t replicas);
/*
 * Returns what a sum of so many bytes of gradients, f32, is alike in what it sends: where replicas share the optimizer
 * out each gets the sum of its part alone, and then the others' weights.
 */
int64_t pd_profile_summed_bytes(const struct pd_profile *profile, enum pd_dtype gradient_dtype, int64_t bytes);
/*
 * Checks that both are of one model; returns 0, or -1 (usage) with a message that begins with a
 * file's name.
 */
int pd_profile_same_model(const struct pd_profile *a, const char *a_file,
			  const struct pd_profile *b, const char *b_file, struct pd_error *err);
/*
 * Does the same for two kinds of devices that exchange what stages send: batch sizes and tensors are the same.
 * The names are those that messages use.
 */
int pd_profile_same_tensors(const struct pd_profile *a, const char *a_name,
			    const struct pd_profile *b, const char *b_name, struct pd_error *err);
/* Returns the layer called name, or -1. */
int pd_profile_find(const struct pd_profile *profile, const char *name);
/* Writes which layer's name is like a word, for a message (base/names.h). */
const char *pd_profile_say(const struct pd_profile *profile, const char *word, char text[PD_MEANT_TEXT]);
/*
 * Returns how many microbatches have every lane once: replicas of a stage that carries state divide
 * them.  0: no layer carries state.
 */
int64_t pd_profile_lane_round(const struct pd_profile *profile);
