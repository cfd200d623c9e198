/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/worker/weights.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

#define FREE (-1)

int pd_weights_init(struct pd_weights *weights, struct pd_device *device, size_t bytes, int count,
		    int64_t number, struct pd_error *err)
{
	*weights = (struct pd_weights){ .device = device, .bytes = bytes, .count = count,
					.keep = number };
	weights->versions = pd_calloc((size_t)count, sizeof(*weights->versions));
	for (int i = 0; i < count; i++) {
		weights->versions[i].number = i == 0 ? number : FREE;
		weights->versions[i].buffer = device->ops->memory.alloc(device, bytes, err);
		if (!weights->versions[i].buffer) {
			pd_weights_release(weights);
			return -1;
		}
	}
	return 0;
}

void pd_weights_release(struct pd_weights *weights)
{
	for (int i = 0; i < weights->count && weights->versions; i++)
		if (weights->versions[i].buffer)
			weights->device->ops->memory.free(weights->device,
							  weights->versions[i].buffer);
	free(weights->versions);
	*weights = (struct pd_weights){ 0 };
}

static struct pd_version *find_version(const struct pd_weights *weights, int64_t number)
{
	for (int i = 0; i < weights->count; i++)
		if (weights->versions[i].number == number)
			return &weights->versions[i];
	pd_bug("weights: version %" PRId64 " is gone", number);
}

static struct pd_version *find_free(const struct pd_weights *weights)
{
	for (int i = 0; i < weights->count; i++)
		if (weights->versions[i].number == FREE)
			return &weights->versions[i];
	pd_bug("weights: more than %d versions live", weights->count);
}

/* Frees versions that nobody reads and nobody will read. */
static void sweep(struct pd_weights *weights)
{
	for (int i = 0; i < weights->count; i++) {
		struct pd_version *v = &weights->versions[i];

		if (i != weights->newest && !v->readers && v->number < weights->keep)
			v->number = FREE;
	}
}

void *pd_weights_newest(const struct pd_weights *weights, int64_t *number_p)
{
	if (number_p)
		*number_p = weights->versions[weights->newest].number;
	return weights->versions[weights->newest].buffer;
}

void pd_weights_renumber(struct pd_weights *weights, int64_t number)
{
	for (int i = 0; i < weights->count; i++) {
		if (weights->versions[i].readers)
			pd_bug("weights: version %" PRId64 " is being read",
			       weights->versions[i].number);
		weights->versions[i].number = i == weights->newest ? number : FREE;
	}
	weights->keep = number;
}

void *pd_weights_restore(struct pd_weights *weights, int64_t number)
{
	struct pd_version *v = find_free(weights);

	v->number = number;
	if (number < weights->keep)
		weights->keep = number;
	return v->buffer;
}

const void *pd_weights_read(struct pd_weights *weights, int64_t number)
{
	struct pd_version *v = find_version(weights, number);

	v->readers++;
	return v->buffer;
}

const void *pd_weights_find(const struct pd_weights *weights, int64_t number)
{
	return find_version(weights, number)->buffer;
}

void pd_weights_done(struct pd_weights *weights, int64_t number)
{
	find_version(weights, number)->readers--;
	sweep(weights);
}

void pd_weights_step(struct pd_weights *weights, int64_t number, int64_t keep,
		     const void **from_p, void **to_p)
{
	struct pd_version *from = &weights->versions[weights->newest], *to = from;

	weights->keep = keep;
	sweep(weights);
	if (from->readers || from->number >= keep)
		to = find_free(weights);
	to->number = number;
	weights->newest = (int)(to - weights->versions);
	*from_p = from->buffer;
	*to_p = to->buffer;
}
