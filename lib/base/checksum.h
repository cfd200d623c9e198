/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of 64 bits: XXH64, which is fast and well known, so that other programs can make it,
 * too.  It finds damage, not forgery.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY         /* declares the struct of XXH64's state */
#include <xxhash.h>

#define PD_CHECKSUM_DIGITS 16

struct pd_checksum { XXH64_state_t state; };

/* These make the checksum of data that is added in pieces of any size. */
void pd_checksum_begin(struct pd_checksum *sum, uint64_t seed);
void pd_checksum_add(struct pd_checksum *sum, const void *data, size_t bytes);
uint64_t pd_checksum_end(const struct pd_checksum *sum);

/* Returns the checksum of one piece. */
uint64_t pd_checksum(uint64_t seed, const void *data, size_t bytes);

/*
 * Writes PD_CHECKSUM_DIGITS hexadecimal digits and a zero, as documents have them, and returns
 * text.
 */
const char *pd_checksum_text(uint64_t checksum, char *text);
/* Returns false if text is anything else; it may be NULL. */
bool pd_checksum_parse(const char *text, uint64_t *checksum_p);
