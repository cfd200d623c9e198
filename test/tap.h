/* SPDX-License-Identifier: Apache-2.0 */
/* The Test Anything Protocol for unit tests: one line per check. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Prints "ok N - what" or "not ok N - what"; returns the verdict. */
bool ok(bool verdict, const char *what, ...) __attribute__((format(printf, 2, 3)));
/* Print a line as ok() does, and both values if they differ; return whether they are equal. */
bool is_int(int64_t got, int64_t expected, const char *what, ...)
	__attribute__((format(printf, 3, 4)));
bool is_str(const char *got, const char *expected, const char *what, ...)
	__attribute__((format(printf, 3, 4)));
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void skip(const char *why, const char *what);
/* Skips what needs a GPU; with PD_GPU=yes, which promises one, fails. */
void absent(const char *why, const char *what);
/* Tells whether PD_TEST_QUICK is set: a part of the cases that differ in numbers alone is enough. */
bool test_quick(void);
/* Prints the plan at the end of main(); returns 0 if everything was ok. */
int done_testing(void);
