/* SPDX-License-Identifier: Apache-2.0 */
/* What torchtitan calls the modules of a decoder. */
#pragma once

#include "doors/layout/blocks.h"

#define PD_TORCHTITAN_NAME 32

/*
 * Writes tok_embeddings, layers.0 and so on, norm or lm_head into text (of PD_TORCHTITAN_NAME bytes), returned; NULL:
 * the network is not one embedding, blocks, a norm and a head, and torchtitan has no names for its modules.
 */
const char *pd_torchtitan_name(const struct pd_blocks *blocks, int module, char *text);
