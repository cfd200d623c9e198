/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_limit.h"

#include "base/mem.h"

#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static _Thread_local struct {
	bool counts, exceeded;
	int64_t bytes;                  /* bytes left */
} ration;

static void *allocate(size_t bytes)
{
	void *ptr;

	if (ration.counts && (int64_t)bytes > ration.bytes) {
		ration.exceeded = true;
		return NULL;
	}
	/* jansson would report a failure as a mistake in the document */
	ptr = malloc(bytes);
	if (!ptr)
		pd_mem_exhausted(bytes);
	if (ration.counts)
		ration.bytes -= (int64_t)malloc_usable_size(ptr);
	return ptr;
}

static void release(void *ptr)
{
	if (ration.counts)
		ration.bytes += (int64_t)malloc_usable_size(ptr);
	free(ptr);
}

static void install(void)
{
	json_set_alloc_funcs(allocate, release);
}

void pd_json_limit_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install);
}

void pd_json_limit_begin(void)
{
	pd_json_limit_install();
	ration.counts = true;
	ration.exceeded = false;
	ration.bytes = PD_JSON_LIMIT_BYTES;
}

bool pd_json_limit_end(void)
{
	ration.counts = false;
	return ration.exceeded;
}
