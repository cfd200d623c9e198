/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of a Hugging Face folder: a size of a family that somebody else has written down, by
 * transformers' names, of version 4 or 5.  All of its keys are known to change nothing, or are
 * computed, or are refused.
 */
#pragma once

#include "model/dtype.h"
#include "network/network.h"

struct pd_config_type;
struct pd_config {
	const struct pd_config_type *type;
	const struct pd_family *family;
	struct pd_network_size size;
	int64_t positions;              /* the most tokens that a sample may have; 0: any */
	enum pd_dtype dtype;            /* of its parameters' files; PD_DTYPES: none that is known */
};

/* Is it such a document? */
bool pd_config_is(const json_t *document);
/*
 * Keys that are missing are what transformers takes for them.  The samples have as many tokens
 * as there are positions, those before these were scaled where they are, but at most 8192.
 */
int pd_config_read(const struct pd_place *root, struct pd_config *config_p, struct pd_error *err);
/*
 * Adds to the document of such a network what the folder's files call its parameters (pd-model(5)).  place
 * is what messages call the document.  Errors: sizes that do not fit each other.
 */
int pd_config_name(const struct pd_config *config, const char *place, json_t *document, struct pd_error *err);
/*
 * Adds its dtype, and its source: the config.json itself, unless `given` makes another network of it,
 * whereupon *changed_p is the option that does; else NULL.
 */
void pd_config_keep(const struct pd_config *config, json_t *json, const struct pd_network_size *given,
		    json_t *document, const char **changed_p);
