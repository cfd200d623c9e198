/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the outside calls the parameters and states of a network: the keys "names" of its layers and its
 * own "source" (pd-model(5)).  A tensor of the outside is one of ours, under another name, transposed or
 * with other axes, or several of ours side by side.
 *
 * Whoever reads or writes such files asks this table: doors/tensors/initial.c, which finds in tensors
 * from anywhere (doors/tensors/tensors.h) what the model needs, and doors/tensors/export.c.
 */
#pragma once

#include "base/json.h"
#include "model/model.h"

#define PD_OUTSIDE_DIMS 8

enum pd_source_format { PD_SOURCE_HUGGINGFACE, PD_SOURCE_ONNX };

/* One of ours, as rows of the first axis. */
struct pd_outside_part {
	int layer;                      /* that owns it */
	const struct pd_layer_tensor *tensor;
	int64_t start;                  /* its first row in the outside's, once that is turned as ours are */
};

struct pd_outside {
	char *name;
	bool transposed;                /* two axes, in each other's place */
	bool split;                     /* into parts, that begin at rows of it */
	bool alias;                     /* another name of what other layers own: it may be missing */
	bool exported;                  /* the outside expects it */
	int dims;
	int64_t size[PD_OUTSIDE_DIMS], elements;        /* the outside's */
	int part_count;
	struct pd_outside_part *parts;  /* by start, without gaps */
};

/* Every parameter, and every state that does not belong to lanes, in the order of the layers. */
struct pd_outsides {
	int count;
	struct pd_outside *all;
	json_t *by_name;                /* name -> number */
};

/*
 * Makes the table of a model, which has its document.  `ours`: as if its layers had no names.  Errors count
 * as input, and are without place: parts that overlap or leave gaps, one name for two tensors.
 */
int pd_outsides_make(const struct pd_model *model, bool ours, struct pd_outsides *outsides_p,
		     struct pd_error *err);
void pd_outsides_release(struct pd_outsides *outsides);

/* The key "config" of the document's source, borrowed; NULL: there is none. */
json_t *pd_model_config(const struct pd_model *model);
/* What names in a file may lack at their beginning, such as "transformer."; "": nothing. */
const char *pd_model_prefix(const struct pd_model *model);

/* Reads "names" of a layer whose parameters are known; place is the layer's. */
int pd_names_read(const struct pd_place *place, struct pd_layer *layer, struct pd_error *err);
/* Checks "source" of a model's document; place is the document's. */
int pd_source_check(const struct pd_place *place, struct pd_error *err);
