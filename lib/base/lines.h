/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of JSON Lines: a header that has been read, then one object per line. */
#pragma once

#include "base/json.h"

/*
 * Calls `each` for every object below the header, with its place (called "DOCUMENT:LINE") and its
 * line, from 2.  Blank lines are counted and skipped.  Stops at the first call that returns -1. 
 * Returns 0, or -1 with the error set; text behind the header, or a line that is not JSON, is an
 * error too.
 */
int pd_lines_read(FILE *in, const char *document,
		  int (*each)(void *of, const struct pd_place *place, int64_t line,
			      struct pd_error *err),
		  void *of, struct pd_error *err);
/* Checks that only white space is left.  `what` is what it follows, for the message. */
int pd_document_end(FILE *in, const char *document, const char *what, struct pd_error *err);
