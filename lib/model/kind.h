/* SPDX-License-Identifier: Apache-2.0 */
/* The table of layer kinds is layer_kind.def. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum pd_layer_kind {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	PD_LAYER_##name,
#include "model/layer_kind.def"
#undef LAYER_KIND
	PD_LAYER_KINDS
};

enum pd_kind_flag {
	PD_KIND_LOSS = 1,               /* training makes its output small */
	PD_KIND_RANDOM = 2,             /* forward draws random numbers, but in an evaluation */
	PD_KIND_SPLITS = 4,             /* the weight part of backward reads the gradient of the
					   output; without, the gradients of the parameters are made
					   in the input part and kept */
	PD_KIND_CLASSIFIES = 8,         /* a loss that says how many of its rows are right */
	PD_KIND_REDRAWS = 16,           /* backward draws the random numbers again */
	PD_KIND_KEEPS_GATES = 32,       /* the input part keeps the gradients of four gates, four times
					   the output, for the weight part */
	PD_KIND_OVER_BATCH = 64,        /* training normalises each channel over the batch */
};

#define PD_RELATIVE_BUCKETS 256         /* of an attention, at most */

struct pd_kind {
	/* the columns of layer_kind.def */
	const char *inputs, *attributes, *parameters, *states;
	unsigned flags;
};

extern const struct pd_kind pd_kinds[PD_LAYER_KINDS];
extern const char *const pd_layer_kind_name[PD_LAYER_KINDS + 1];   /* NULL-terminated */

/* Returns the kind called name, or -1. */
int pd_layer_kind_find(const char *name);

/* Returns the letter of an input, counted from 0: 'f', 'i' or 'a'. */
char pd_kind_input(enum pd_layer_kind kind, int input);
/* Gives the least and the greatest number of inputs of the kind; INT_MAX: there is no limit. */
void pd_kind_inputs(enum pd_layer_kind kind, int *fewest_p, int *most_p);

/* These return how many parameters and states a layer of the kind can have. */
int pd_kind_parameters(enum pd_layer_kind kind);
int pd_kind_states(enum pd_layer_kind kind);
/* Is there a kind with a state, or a parameter, of that name? */
bool pd_kinds_have(bool state, const char *name, size_t length);

/* One word of a column: "stride=kernel", "kernel!", "weight=normal(1)". */
struct pd_word {
	char name[32];
	bool required;
	char value[32];                 /* behind the '='; "" where there is none */
};

/* Takes the first word off the list; returns false where there is none. */
bool pd_word_next(const char **list_p, struct pd_word *word_p);
/* Finds the word of that name; returns false where there is none. */
bool pd_word_find(const char *list, const char *name, size_t length, struct pd_word *word_p);
