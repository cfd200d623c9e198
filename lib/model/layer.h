/* SPDX-License-Identifier: Apache-2.0 */
/* One layer: its attributes, the shape of its output and of its parameters. */
#pragma once

#include "base/json.h"
#include "model/model.h"

/* Sizes in elements stay below this, so that bytes, and sums over layers, fit 64 bits. */
#define PD_MAX_ELEMENTS (INT64_C(1) << 40)

/*
 * Reads the kind's attributes from the layer's object; kind is set.  Keys that are
 * neither common to all layers nor the kind's are errors.
 */
int pd_layer_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err);

/*
 * Returns the name of the first attribute from *from_p on, a place in the kind's list, that two
 * layers of one kind have different values of, which it writes; *from_p: the place behind it.
 * NULL: no other.
 */
#define PD_ATTRIBUTE_TEXT 100
const char *pd_layer_difference(const struct pd_layer *a, const struct pd_layer *b,
				const char **from_p, char a_text[PD_ATTRIBUTE_TEXT],
				char b_text[PD_ATTRIBUTE_TEXT]);

/* In shape.c: "3 x 224 x 224" or "a scalar" into buf (of PD_SHAPE_TEXT bytes), returned. */
#define PD_SHAPE_TEXT (PD_MAX_DIMS * 24)
const char *pd_shape_text(const struct pd_shape *shape, char *buf);

/*
 * In begin.c.  Reads how a tensor begins from a word of layer_kind.def or of a document: a number;
 * "normal(S)", "uniform(B)" with a number that is not negative; or "fan_in", uniform as He et al.
 * (2015) have it, within sqrt(6 / inputs), where inputs are the elements of all axes but the first.
 * False: it is none of these.
 */
bool pd_beginning_read(const char *text, struct pd_layer_tensor *tensor);
/*
 * Those that the layer's "init" names begin as that says.  The parameters are known.  place: the
 * layer's.
 */
int pd_beginnings_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err);

/*
 * In shape.c.  Checks the inputs, whose tensors' shapes are known, and works out the shapes of the
 * output and the parameters.  place is the layer's, for messages.
 */
int pd_layer_infer(const struct pd_place *place, const struct pd_model *model,
		   struct pd_layer *layer, struct pd_error *err);
