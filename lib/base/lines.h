/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of JSON Lines: a header that has been read, then one object per line. */
#ifndef PD_BASE_LINES_H
#define PD_BASE_LINES_H

#include "base/json.h"

/*
 * Shows `each` every object below the header, its place (called "DOCUMENT:LINE") and its
 * line, from 2; blank lines count and are not shown.  Ends at the first that it answers
 * with -1.  Returns 0, or -1 with the error set: also where text follows the header on its
 * line or a line is not JSON.
 */
int pd_lines_read(FILE *in, const char *document,
		  int (*each)(void *of, const struct pd_place *place, int64_t line,
			      struct pd_error *err),
		  void *of, struct pd_error *err);
/* Nothing but white space is left; what: after which that is expected, for the message. */
int pd_document_end(FILE *in, const char *document, const char *what, struct pd_error *err);

#endif
