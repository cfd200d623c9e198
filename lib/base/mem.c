/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include "base/error.h"
#include "base/opt.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pd_mem_end *on_end;
static const char *_Atomic purpose = "this program";

void pd_mem_on_end(pd_mem_end *end)
{
	on_end = end;
}

void pd_mem_exhausted(size_t bytes)
{
	char text[PD_MEM_TEXT];

	if (on_end)
		on_end(bytes);
	pd_bug("%s", pd_mem_sentence(bytes, text));
}

const char *pd_mem_for(const char *what)
{
	return atomic_exchange(&purpose, what);
}

const char *pd_mem_sentence(size_t bytes, char text[PD_MEM_TEXT])
{
	char amount[32] = "more";

	if (bytes > 0)
		pd_show_bytes(bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX, amount);
	snprintf(text, PD_MEM_TEXT, "out of memory: %s%s for %s could not be had", amount,
		 bytes > 0 ? " more" : "", purpose);
	return text;
}

void pd_mem_expect(size_t bytes)
{
	void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		pd_mem_exhausted(bytes);
	munmap(room, bytes);
}

FILE *pd_mem_stream(char **text_p, size_t *size_p)
{
	FILE *stream = open_memstream(text_p, size_p);

	if (!stream)
		pd_mem_exhausted(0);
	return stream;
}

void pd_mem_stream_close(FILE *stream)
{
	bool bad = ferror(stream);

	if (fclose(stream) != 0 || bad)
		pd_mem_exhausted(0);
}

static void *check(void *ptr, size_t count, size_t bytes)
{
	size_t all;

	if (!ptr)
		pd_mem_exhausted(__builtin_mul_overflow(count, bytes, &all) ? SIZE_MAX : all);
	return ptr;
}

void *pd_calloc(size_t count, size_t bytes)
{
	return check(calloc(count ? count : 1, bytes ? bytes : 1), count, bytes);
}

void *pd_zalloc(size_t bytes)
{
	return pd_calloc(1, bytes);
}

void *pd_grow(void *array, size_t *capacity, size_t need, size_t bytes)
{
	size_t n = *capacity ? *capacity : 8;
	char *grown;

	if (need <= *capacity)
		return array;
	while (n < need)
		n *= 2;
	grown = check(reallocarray(array, n, bytes), n, bytes);
	memset(grown + *capacity * bytes, 0, (n - *capacity) * bytes);
	*capacity = n;
	return grown;
}

void *pd_regrow(void *array, size_t count, size_t bytes)
{
	return check(reallocarray(array, count ? count : 1, bytes), count, bytes);
}

void *pd_memdup(const void *from, size_t bytes)
{
	void *copy = pd_zalloc(bytes);

	if (bytes > 0)
		memcpy(copy, from, bytes);
	return copy;
}

char *pd_strdup(const char *text)
{
	return check(strdup(text), strlen(text) + 1, 1);
}

char *pd_format(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return check(n < 0 ? NULL : text, 0, 0);
}
