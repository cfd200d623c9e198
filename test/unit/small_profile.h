/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile that is written as "a<x b<a c<ab": each layer is a letter, and its inputs are
 * behind '<'.  Layer number l (from 0) has forward 10 (l + 1) ns, backward twice that,
 * activation 100 (l + 1), parameters 1000 (l + 1), stash 200 (l + 1) and workspace
 * l + 1 bytes.
 */
#pragma once

#include "base/json.h"
#include "profile/profile.h"

static inline struct pd_profile *small_profile(const char *graph)
{
	json_t *layers = json_array(), *document;
	struct pd_profile *profile;
	struct pd_place root;
	int number = 1;

	for (const char *c = graph; *c; number++) {
		json_t *inputs = json_array();
		char name = *c;

		for (c += 2; *c && *c != ' '; c++)
			if (*c != 'x')
				json_array_append_new(inputs, json_stringn(c, 1));
		json_array_append_new(layers, json_pack("{ss# so si si si si si si}", "name", &name,
							1,
				"inputs", inputs, "forward_ns", 10 * number, "backward_ns",
				20 * number,
				"activation_bytes", 100 * number, "parameter_bytes", 1000 * number,
				"stash_bytes", 200 * number, "workspace_bytes", number));
		c += *c == ' ';
	}
	document = json_pack("{ss si ss si s{ss} so}", "format", "pd-profile", "version", 1,
			     "name", "small", "batch_size", 8, "device", "kind", "cpu",
			     "layers", layers);
	root = pd_place_root("small", document);
	profile = pd_profile_parse_at(&root, NULL);
	json_decref(document);
	return profile;
}
