/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what is known of networks with a config.json, and rules for its keys. */
#pragma once

#include "model/dtype.h"
#include "network/network.h"

/* A class of transformers that a network of a type is, and the words of its size that this says. */
struct pd_config_architecture {
	const char *type, *name, *words;
};

struct pd_config_type {
	const char *name, *prefix;      /* what names begin with, but for those of heads */
	const struct pd_family *family;
	const char *size;
	int64_t length, window;         /* positions, and how many of them sliding windows see */
	bool windows;                   /* unless use_sliding_window says otherwise */
};

/* A config.json that is being read. */
struct pd_config_reader {
	const struct pd_config_type *type;
	const struct pd_place *root;
	struct pd_network_size *size;
	int64_t length, window;         /* as in struct pd_config_type */
	bool windows;
	bool scaled;                            /* positions, as Llama 3 does */
	bool dynamic;                           /* or beyond the length */
	bool pads;                              /* a token is padding, as pad_token_id says */
	int64_t padding;                        /* < 0: counted from the end of the vocabulary */
	enum pd_dtype dtype;                    /* PD_DTYPES: none that is known is said */
};

/* A rule takes what a key says, or refuses it. */
typedef int pd_config_rule(const struct pd_place *at, struct pd_config_reader *r, const char *text,
			   struct pd_error *err);

/* The key of a rule, its networks and its rule (config.def); it ends with one that has no key. */
struct pd_config_row {
	const char *types, *key;
	pd_config_rule *rule;
	const char *text;
};
extern const struct pd_config_row pd_config_rows[];
/* The row of a key in networks of a type; NULL: it is not known. */
const struct pd_config_row *pd_config_find(const struct pd_config_type *type, const char *key);
