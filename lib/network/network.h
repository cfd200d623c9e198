/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families of networks: a family writes model documents (pd-model(5)) of any size; its presets are
 * the sizes that papers have.  All of pd-model(1) but its command line.
 */
#pragma once

#include "base/json.h"

/* The choices; their names are NULL-terminated. */
enum pd_network_bias { PD_BIAS_NONE, PD_BIAS_QKV, PD_BIAS_ATTENTION, PD_BIAS_MLP, PD_BIAS_ALL };
enum pd_network_activation { PD_ACTIVATION_RELU, PD_ACTIVATION_GELU, PD_ACTIVATION_GELU_TANH,
			     PD_ACTIVATION_SILU, PD_ACTIVATION_TANH, PD_ACTIVATION_SIGMOID,
			     PD_ACTIVATION_RELU6, PD_ACTIVATION_LEAKY_RELU, PD_ACTIVATION_HARDSWISH };
enum pd_network_norm { PD_NORM_PRE, PD_NORM_POST };
enum pd_network_head { PD_HEAD_PRETRAINING, PD_HEAD_MASKED };
extern const char *const pd_network_bias_name[], *const pd_network_activation_name[],
	*const pd_network_norm_name[], *const pd_network_head_name[];

/* A size that was not given is PD_NETWORK_UNSAID, a flag false. */
#define PD_NETWORK_UNSAID (-1)
#define PD_NETWORK_MOST (INT64_C(1) << 30)      /* the largest count */
#define PD_NETWORK_TYPE_COUNT int64_t
#define PD_NETWORK_TYPE_REAL double
#define PD_NETWORK_TYPE_FLAG bool
struct pd_network_size {
#define NETWORK_OPTION(field, name, kind, argument, least, most, help) PD_NETWORK_TYPE_##kind field;
#define NETWORK_CHOICE(field, name, choices, argument, help) int field;
#include "network/option.def"
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
