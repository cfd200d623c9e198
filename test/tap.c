/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count, failed;

static bool verdict_line(bool verdict, const char *what, va_list ap)
{
	printf("%sok %d - ", verdict ? "" : "not ", ++count);
	vprintf(what, ap);
	putchar('\n');
	fflush(stdout);
	failed += !verdict;
	return verdict;
}

bool ok(bool verdict, const char *what, ...)
{
	va_list ap;

	va_start(ap, what);
	verdict_line(verdict, what, ap);
	va_end(ap);
	return verdict;
}

bool is_int(int64_t got, int64_t expected, const char *what, ...)
{
	va_list ap;

	va_start(ap, what);
	verdict_line(got == expected, what, ap);
	va_end(ap);
	if (got != expected)
		diag("got %" PRId64 ", expected %" PRId64, got, expected);
	return got == expected;
}

bool is_str(const char *got, const char *expected, const char *what, ...)
{
	bool same = got && expected ? strcmp(got, expected) == 0 : got == expected;
	va_list ap;

	va_start(ap, what);
	verdict_line(same, what, ap);
	va_end(ap);
	if (!same)
		diag("got \"%s\", expected \"%s\"", got ? got : "(null)",
		     expected ? expected : "(null)");
	return same;
}

void diag(const char *fmt, ...)
{
	va_list ap;

	printf("# ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void skip(const char *why, const char *what)
{
	printf("ok %d - %s # SKIP %s\n", ++count, what, why);
}

void absent(const char *why, const char *what)
{
	const char *gpu = getenv("PD_GPU");

	if (gpu && strcmp(gpu, "yes") == 0)
		ok(false, "%s: %s", what, why);
	else
		skip(why, what);
}

bool test_quick(void)
{
	return getenv("PD_TEST_QUICK") != NULL;
}

int done_testing(void)
{
	printf("1..%d\n", count);
	return failed ? 1 : 0;
}
