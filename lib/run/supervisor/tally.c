/* SPDX-License-Identifier: Apache-2.0 */
#include "run/supervisor/tally.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 64

void pd_tally_begin(struct pd_tally *tally, int losses, int64_t first)
{
	*tally = (struct pd_tally){ .losses = losses, .next = first };
}

void pd_tally_release(struct pd_tally *tally)
{
	free(tally->arrived);
	free(tally->values);
	*tally = (struct pd_tally){ 0 };
}

static struct pd_loss *values_of(const struct pd_tally *tally, int64_t microbatch)
{
	return &tally->values[((size_t)microbatch & (tally->capacity - 1)) * (size_t)tally->losses];
}

/* Grows so that `ahead` microbatches from the next one on have an entry each. */
static void grow(struct pd_tally *tally, size_t ahead)
{
	struct pd_tally larger = *tally;

	if (ahead <= tally->capacity)
		return;
	larger.capacity = tally->capacity ? tally->capacity : LEAST_ROOM;
	while (larger.capacity < ahead)
		larger.capacity *= 2;
	larger.arrived = pd_calloc(larger.capacity, sizeof(*larger.arrived));
	larger.values = pd_calloc(larger.capacity * (size_t)tally->losses, sizeof(*larger.values));
	for (size_t i = 0; i < tally->capacity; i++) {
		int64_t b = tally->next + (int64_t)i;

		larger.arrived[(size_t)b & (larger.capacity - 1)] =
			tally->arrived[(size_t)b & (tally->capacity - 1)];
		memcpy(values_of(&larger, b), values_of(tally, b),
		       (size_t)tally->losses * sizeof(*tally->values));
	}
	free(tally->arrived);
	free(tally->values);
	*tally = larger;
}

void pd_tally_add(struct pd_tally *tally, int64_t microbatch, int loss,
		  const struct pd_loss *value)
{
	if (microbatch < tally->next || loss < 0 || loss >= tally->losses)
		pd_bug("tally: loss %d of microbatch %lld", loss, (long long)microbatch);
	grow(tally, (size_t)(microbatch - tally->next) + 1);
	values_of(tally, microbatch)[loss] = *value;
	tally->arrived[(size_t)microbatch & (tally->capacity - 1)]++;
}

const struct pd_loss *pd_tally_take(struct pd_tally *tally)
{
	size_t place = (size_t)tally->next & (tally->capacity - 1);

	if (tally->capacity == 0 || tally->arrived[place] < tally->losses)
		return NULL;
	tally->arrived[place] = 0;
	return values_of(tally, tally->next++);
}
