/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array_limit.h"

#include <string.h>

static void in_string(struct pd_array_limit *limit, char c)
{
	if (!limit->escaped && c == '"') {
		limit->in_string = false;
		return;
	}
	limit->escaped = !limit->escaped && c == '\\';
	if (limit->length + 1 < sizeof(limit->string)) {
		limit->string[limit->length++] = c;
		limit->string[limit->length] = '\0';
	}
}

static const char *open_bracket(struct pd_array_limit *limit, bool array)
{
	int up = limit->depth++ - 1;
	const char *full = NULL;

	if (up >= 0 && up < PD_ARRAY_LIMIT_DEPTH && limit->level[up].array && !array &&
	    ++limit->level[up].objects > limit->most)
		full = limit->level[up].key;
	if (up + 1 < PD_ARRAY_LIMIT_DEPTH) {
		limit->level[up + 1].array = array;
		limit->level[up + 1].objects = 0;
		strcpy(limit->level[up + 1].key, limit->string);
	}
	return full;
}

const char *pd_array_limit_next(struct pd_array_limit *limit, char c)
{
	if (limit->in_string) {
		in_string(limit, c);
		return NULL;
	}
	switch (c) {
	case '"':
		limit->in_string = true;
		limit->length = 0;
		limit->string[0] = '\0';
		return NULL;
	case '[':
	case '{':
		return open_bracket(limit, c == '[');
	case ']':
	case '}':
		limit->depth -= limit->depth > 0;
		return NULL;
	default:
		return NULL;
	}
}
