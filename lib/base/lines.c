/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lines.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(const char *text, ssize_t length)
{
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	return length == 0;
}

int pd_lines_read(FILE *in, const char *document,
		  int (*each)(void *of, const struct pd_place *place, int64_t line,
			      struct pd_error *err),
		  void *of, struct pd_error *err)
{
	char *text = NULL, where[300];
	int64_t line = 1;
	size_t size = 0;
	ssize_t length;
	int result = 0;

	for (; result == 0 && (length = getline(&text, &size, in)) > 0; line++) {
		struct pd_place place;
		json_error_t why;

		if (is_blank(text, length))
			continue;
		snprintf(where, sizeof(where), "%.250s:%" PRId64, document, line);
		if (line == 1) {        /* what follows the header on its line */
			result = pd_error_input(err, "%s: text after the header: expected one "
						"object per line", where);
			break;
		}
		if (memchr(text, 0, (size_t)length)) {  /* which the parser may overlook */
			result = pd_error_input(err, "%s: not JSON: a zero byte", where);
			break;
		}
		place = pd_place_root(where, json_loadb(text, (size_t)length,
							JSON_REJECT_DUPLICATES, &why));
		result = place.value ? each(of, &place, line, err)
				     : pd_error_input(err, "%s:%d: not JSON: %s", where,
						      why.column, why.text);
		json_decref(place.value);
	}
	if (result == 0 && ferror(in))
		result = pd_error_input(err, "%s: cannot read: %m", document);
	free(text);
	return result;
}

int pd_document_end(FILE *in, const char *document, const char *what, struct pd_error *err)
{
	int c;

	while ((c = getc(in)) != EOF)
		if (!isspace(c))
			return pd_error_input(err, "%s: text after %s: expected its end", document,
					      what);
	return 0;
}
