/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: a model document that grows layer by layer, and the families' files. */
#pragma once

#include "network/network.h"

struct pd_network {
	json_t *inputs, *layers;
	json_t *names;                  /* those of pd_network_name() */
};

/* A name, which lives as long as the network. */
const char *pd_network_name(struct pd_network *network, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Shapes have at most four axes; those are given as int64_t. */
const char *pd_network_input(struct pd_network *network, const char *name, const char *dtype,
			     int dims, ...);
/*
 * Adds a layer and returns its name.  `inputs` are names with spaces between them.  Attributes are an
 * object as json_pack() makes it, such as "{s:I}"; NULL: there are none.
 */
const char *pd_network_layer(struct pd_network *network, const char *kind, const char *name,
			     const char *inputs, const char *attributes, ...);
/* Layers that most families have; dropout with p = 0 adds none and returns `in`. */
const char *pd_network_linear(struct pd_network *network, const char *name, const char *in,
			      int64_t features);
const char *pd_network_dropout(struct pd_network *network, const char *name, const char *in,
			       double p);

extern const struct pd_family pd_family_mlp, pd_family_cnn, pd_family_lenet, pd_family_alexnet,
	pd_family_vgg, pd_family_resnet, pd_family_resnext, pd_family_gpt, pd_family_llama,
	pd_family_bert, pd_family_vit, pd_family_gnmt, pd_family_awd, pd_family_s2vt;
