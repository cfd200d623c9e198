/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lines.h"

#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MOST ((size_t)1 << 20)       /* A line for one operation has some two hundred
						   bytes. */

struct line {
	char *text;
	size_t length, capacity;
};

/*
 * Reads the next line with its end.  Returns its length, which exceeds LINE_BYTES_MOST if the line
 * is too long, or 0 at the end.
 */
static size_t next_line(FILE *in, struct line *line)
{
	int c = 0;

	line->length = 0;
	while (line->length <= LINE_BYTES_MOST && c != '\n' && (c = getc_unlocked(in)) != EOF) {
		line->text = pd_grow(line->text, &line->capacity, line->length + 1, 1);
		line->text[line->length++] = (char)c;
	}
	return line->length;
}

static bool is_blank(const char *text, size_t length)
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
	struct line text = { .text = NULL };
	int64_t line = 1;
	char *where = NULL;
	int result = 0;

	for (; result == 0 && next_line(in, &text) > 0; line++) {
		struct pd_place place;

		if (is_blank(text.text, text.length))
			continue;
		free(where);
		where = pd_format("%s:%" PRId64, document, line);
		if (line == 1) {        /* only white space may follow the header */
			result = pd_error_input(err, "%s: text after the header: expected one "
						"object per line", where);
			break;
		}
		if (text.length > LINE_BYTES_MOST) {
			result = pd_error_input(err, "%s: longer than %zu bytes: expected one object "
						"per line", where, LINE_BYTES_MOST);
			break;
		}
		if (memchr(text.text, 0, text.length)) {  /* the parser overlooks a zero byte */
			result = pd_error_input(err, "%s: not JSON: a zero byte", where);
			break;
		}
		place = pd_place_root(where, pd_json_load_text(text.text, text.length, where,
								 err));
		result = place.value ? each(of, &place, line, err) : -1;
		json_decref(place.value);
	}
	if (result == 0 && ferror(in))
		result = pd_error_input(err, "%s: cannot read: %m", document);
	free(where);
	free(text.text);
	return result;
}

int pd_document_end(FILE *in, const char *document, const char *what, struct pd_error *err)
{
	int c;

	while ((c = getc(in)) != EOF)
		if (!isspace(c))
			return pd_error_input(err, "%s: text after %s: expected its end", document,
					      what);
	if (ferror(in))
		return pd_error_input(err, "%s: cannot read: %m", document);
	return 0;
}
