/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks by whatever names them: a family or one of its presets, a Hugging Face folder or its
 * config.json, an ONNX file, a model document.  All of pd-model(1) but its command line.
 */
#pragma once

#include "doors/onnx/onnx.h"
#include "model/model.h"
#include "network/network.h"

struct pd_network_ask {
	struct pd_network_size size;    /* what is said of it: pd_network_size_init() */
	const char *preset;             /* of the family that is named; or NULL */
	const char *name;               /* the model's; NULL: its family's, preset's, folder's or file's */
	const char *frozen;             /* names of layers that stay as they are, with commas between; or NULL */
	int loss;                       /* of an ONNX model: enum pd_onnx_loss, or PD_NETWORK_UNSAID */
	bool quiet;                     /* says on standard error nothing of what a file does not say */
};

struct pd_named_network {
	json_t *document;               /* pd-model(5); owned */
	struct pd_model *model;         /* the same, read; owned */
};

void pd_network_ask_init(struct pd_network_ask *ask);
/*
 * Finds the network that is called `what`: a family or preset first, else a folder or a file, "-" being
 * standard input.  NULL is refused with what there is.  Says on standard error what is assumed that a file
 * does not say.  Errors count as input; *out is to be released after a success alone.
 */
int pd_network_named(const char *what, const struct pd_network_ask *ask, struct pd_named_network *out,
		     struct pd_error *err);
/*
 * Tells whether `what` names a network by its looks, as no document of ours does: a family, a preset, a Hugging Face folder, OWNER/NAME
 * of the hub, a config.json or an ONNX file.
 */
bool pd_network_known(const char *what);
void pd_named_network_release(struct pd_named_network *network);
