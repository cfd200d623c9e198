/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families of networks: a family writes model documents (pd-model(5)) of any size; its presets are
 * the sizes that papers have.  All of pd-model(1) but its command line.
 */
#pragma once

#include "base/json.h"

/* The choices; their names are NULL-terminated. */
enum pd_network_bias { PD_BIAS_NONE, PD_BIAS_QKV, PD_BIAS_OUTPUT, PD_BIAS_ATTENTION,
		      PD_BIAS_MLP };  /* a set */
enum pd_network_activation { PD_ACTIVATION_RELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU_TANH,
			     PD_ACTIVATION_SILU, PD_ACTIVATION_TANH, PD_ACTIVATION_SIGMOID,
			     PD_ACTIVATION_RELU6, PD_ACTIVATION_LEAKY_RELU, PD_ACTIVATION_HARDSWISH,
			     PD_ACTIVATION_RELU2, PD_ACTIVATION_QUICK_GELU, PD_ACTIVATION_GELU_10,
			     PD_ACTIVATION_MISH, PD_ACTIVATION_LAPLACE, PD_ACTIVATION_SQRT_SOFTPLUS,
			     PD_ACTIVATION_LINEAR };
enum pd_network_norm { PD_NORM_PRE, PD_NORM_POST };
enum pd_network_head { PD_HEAD_PRETRAINING, PD_HEAD_MASKED, PD_HEAD_SEQUENCE, PD_HEAD_TOKEN };
/*
 * Where a block normalises: the input of each part; its output, before the sum; both; the input of
 * both parts, whose outputs are summed, once or each with a normalisation of its own; or behind
 * each sum.
 */
enum pd_network_block { PD_BLOCK_PRE, PD_BLOCK_OUTPUT, PD_BLOCK_BOTH, PD_BLOCK_PARALLEL,
		       PD_BLOCK_PARALLEL_TWO,
			PD_BLOCK_POST };
/* RMS_1: the weight is what the factor has more than 1; SCALE: without bias; PLAIN: nor weight. */
enum pd_network_norm_kind { PD_NORM_RMS, PD_NORM_RMS_1, PD_NORM_LAYER, PD_NORM_LAYER_SCALE,
			   PD_NORM_LAYER_PLAIN };
/*
 * Of queries and keys: each head, with one weight or a row of it for each; or all features of a
 * position.
 */
enum pd_network_qk_norm { PD_QK_NORM_HEAD, PD_QK_NORM_HEADS, PD_QK_NORM_ROW };
extern const char *const pd_network_bias_name[], *const pd_network_activation_name[],
	*const pd_network_norm_name[], *const pd_network_head_name[], *const pd_network_block_name[],
	*const pd_network_norm_kind_name[], *const pd_network_qk_norm_name[];

/* Layers of a network, such as those with a window. */
#define PD_LAYER_SET 1024
struct pd_layer_set {
	bool is_said;
	uint64_t bits[PD_LAYER_SET / 64];
};
void pd_layer_set_add(struct pd_layer_set *set, int64_t layer);
bool pd_layer_set_has(const struct pd_layer_set *set, int64_t layer);

/* A size that was not given is PD_NETWORK_UNSAID, a flag false. */
#define PD_NETWORK_UNSAID (-1)
#define PD_NETWORK_MOST (INT64_C(1) << 30)      /* the largest count */
#define PD_NETWORK_TYPE_COUNT int64_t
#define PD_NETWORK_TYPE_REAL double
#define PD_NETWORK_TYPE_FLAG bool
struct pd_network_size {
#define NETWORK_OPTION(field, name, kind, argument, least, most, help) PD_NETWORK_TYPE_##kind field;
#define NETWORK_CHOICE(field, name, choices, argument, help) int field;
#define NETWORK_TRAIT(field, name, kind, usual, least, most) PD_NETWORK_TYPE_##kind field;
#define NETWORK_TRAIT_CHOICE(field, name, choices, usual) int field;
#include "network/option.def"
	/*
	 * Layers with a window, and without rotary positions, if they are said; else others say
	 * which.
	 */
	struct pd_layer_set windows, unrotated;
};

struct pd_preset {
	const char *name;
	/*
	 * Words such as "layers=16".  The first preset of a family has all that the family takes,
	 * the others what they have otherwise.
	 */
	const char *size;
};

struct pd_network;
/* What a network is made of: the preset's sizes, what is given, and both, in which the latter comes first. */
struct pd_network_sizes {
	struct pd_network_size preset, given, size;
};

struct pd_family {
	const char *name;
	const char *what;               /* one line */
	const struct pd_preset *presets;        /* ends with one that has no name */
	/* Adds inputs and layers.  Errors: a size that it does not have. */
	int (*build)(struct pd_network *network, const struct pd_network_size *size,
		     struct pd_error *err);
	/* Changes sizes that are not given so that they fit those that are; or NULL. */
	void (*follow)(struct pd_network_sizes *sizes);
};

/* Ends with one that has no name. */
extern const struct pd_family *const pd_families[];

/*
 * Finds a family by its name or by that of one of its presets, which is then in *preset_p; else that
 * is the first.  False: there is none.
 */
bool pd_family_find(const char *name, const struct pd_family **family_p,
		    const struct pd_preset **preset_p);
const struct pd_preset *pd_preset_find(const struct pd_family *family, const char *name);
/* All is unsaid. */
void pd_network_size_init(struct pd_network_size *size_p);
/* Returns the name of an option that is said, or NULL. */
const char *pd_network_said(const struct pd_network_size *size);
/*
 * Returns the name of an option that is said otherwise than in `of`, and changes what is computed in an
 * evaluation of the same samples; or NULL.
 */
const char *pd_network_changed(const struct pd_network_size *of, const struct pd_network_size *said);
/* Sets what words such as "layers=16 tied=true" say. */
void pd_network_size_words(const char *words, struct pd_network_size *size);
/*
 * Sets what an option says from a value of a document, with the option's limits; but counts are 1 or
 * more there.
 */
int pd_network_size_read(const struct pd_place *place, const char *option, struct pd_network_size *size,
			 struct pd_error *err);
/*
 * Writes the document, called `name`, of a family's network that has the size `preset` but for what
 * `given` says otherwise.  Returns a new reference.  Errors: what is said and the family does not
 * take, or does not have.
 */
json_t *pd_network_sized(const struct pd_family *family, const struct pd_network_size *preset,
			 const struct pd_network_size *given, const char *name, struct pd_error *err);
/*
 * Writes the document of a preset but for what `given` says otherwise.  It is called `name`; where
 * that is NULL, like the preset if nothing is said, else like the family.  Returns a new reference.
 * Errors: what is said and the family does not take, or does not have.
 */
json_t *pd_network_document(const struct pd_family *family, const struct pd_preset *preset,
			    const struct pd_network_size *given, const char *name,
			    struct pd_error *err);
/* Writes such a document, an input and a layer to a line. */
int pd_network_write(const json_t *document, FILE *out, struct pd_error *err);
