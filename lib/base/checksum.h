/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of 64 bits: XXH64, which is fast and well known, so that other programs can make it,
 * too.  It finds damage, not forgery.
 */
#ifndef PD_BASE_CHECKSUM_H
#define PD_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define XXH_STATIC_LINKING_ONLY         /* for the size of its state */
#include <xxhash.h>

#define PD_CHECKSUM_DIGITS 16

struct pd_checksum { XXH64_state_t state; };

/* Makes the checksum of what is added, in pieces of any size. */
void pd_checksum_begin(struct pd_checksum *sum, uint64_t seed);
void pd_checksum_add(struct pd_checksum *sum, const void *data, size_t bytes);
uint64_t pd_checksum_end(const struct pd_checksum *sum);

/* Makes the checksum of one piece. */
uint64_t pd_checksum(uint64_t seed, const void *data, size_t bytes);

/* As documents have it: PD_CHECKSUM_DIGITS hexadecimal digits and a zero; text is returned. */
const char *pd_checksum_text(uint64_t checksum, char *text);
/* False where text is anything else; NULL is fine. */
bool pd_checksum_parse(const char *text, uint64_t *checksum_p);

#endif
