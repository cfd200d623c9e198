/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pd_checksum_begin(struct pd_checksum *sum, uint64_t seed)
{
	XXH64_reset(&sum->state, seed);
}

void pd_checksum_add(struct pd_checksum *sum, const void *data, size_t bytes)
{
	if (bytes > 0)
		XXH64_update(&sum->state, data, bytes);
}

uint64_t pd_checksum_end(const struct pd_checksum *sum)
{
	return XXH64_digest(&sum->state);
}

uint64_t pd_checksum(uint64_t seed, const void *data, size_t bytes)
{
	return XXH64(data, bytes, seed);
}

const char *pd_checksum_text(uint64_t checksum, char *text)
{
	snprintf(text, PD_CHECKSUM_DIGITS + 1, "%016" PRIx64, checksum);
	return text;
}

bool pd_checksum_parse(const char *text, uint64_t *checksum_p)
{
	if (!text || strlen(text) != PD_CHECKSUM_DIGITS ||
	    strspn(text, "0123456789abcdef") != PD_CHECKSUM_DIGITS)
		return false;
	*checksum_p = strtoull(text, NULL, 16);
	return true;
}
