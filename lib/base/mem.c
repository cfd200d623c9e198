/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *check(void *ptr)
{
	if (!ptr)
		pd_bug("out of memory");
	return ptr;
}

void *pd_calloc(size_t count, size_t bytes)
{
	return check(calloc(count ? count : 1, bytes ? bytes : 1));
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
	grown = check(reallocarray(array, n, bytes));
	memset(grown + *capacity * bytes, 0, (n - *capacity) * bytes);
	*capacity = n;
	return grown;
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
	return check(strdup(text));
}

char *pd_format(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return check(n < 0 ? NULL : text);
}
