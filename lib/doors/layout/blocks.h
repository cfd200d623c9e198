/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modules of a network that other systems keep whole.  Layers whose names begin alike up to a number, as
 * "model.layers.3.mlp.up_proj", are a block of that name, "model.layers.3".  Any other layer with parameters
 * is a module by itself, which takes the layers without parameters behind it along.
 */
#pragma once

#include "profile/profile.h"

struct pd_blocks {
	int count;
	int *first;                     /* per module and one more: its first layer */
	char **names;                   /* what the outside calls each ("names" in pd-model(5)), or its layers */
	char **own;                     /* what its layers are called */
	/* The blocks of the list with most of them, such as those of "model.layers"; count 0: there is none. */
	int decoder_first, decoder_count;
};

/* Tells whether a module is a block. */
bool pd_blocks_is_block(const struct pd_blocks *blocks, int module);
void pd_blocks_init(struct pd_blocks *blocks, const struct pd_profile *profile);
void pd_blocks_release(struct pd_blocks *blocks);
/* Checks that the decoder is there, all in one piece, and that there is no other list of blocks. */
int pd_blocks_check_decoder(const struct pd_blocks *blocks, const char *name, const char *who,
			    struct pd_error *err);
/* Returns the module that begins with a layer, or blocks->count if none does. */
int pd_blocks_at(const struct pd_blocks *blocks, int layer);
