/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crowd.h"

#include <string.h>

static void in_string(struct pd_crowd *crowd, char c)
{
	if (!crowd->escaped && c == '"') {
		crowd->in_string = false;
		return;
	}
	crowd->escaped = !crowd->escaped && c == '\\';
	if (crowd->length + 1 < sizeof(crowd->string)) {
		crowd->string[crowd->length++] = c;
		crowd->string[crowd->length] = '\0';
	}
}

static const char *open_bracket(struct pd_crowd *crowd, bool array)
{
	int up = crowd->depth++ - 1;
	const char *full = NULL;

	if (up >= 0 && up < PD_CROWD_DEPTH && crowd->level[up].array && !array &&
	    ++crowd->level[up].objects > crowd->most)
		full = crowd->level[up].key;
	if (up + 1 < PD_CROWD_DEPTH) {
		crowd->level[up + 1].array = array;
		crowd->level[up + 1].objects = 0;
		strcpy(crowd->level[up + 1].key, crowd->string);
	}
	return full;
}

const char *pd_crowd_next(struct pd_crowd *crowd, char c)
{
	if (crowd->in_string) {
		in_string(crowd, c);
		return NULL;
	}
	switch (c) {
	case '"':
		crowd->in_string = true;
		crowd->length = 0;
		crowd->string[0] = '\0';
		return NULL;
	case '[':
	case '{':
		return open_bracket(crowd, c == '[');
	case ']':
	case '}':
		crowd->depth -= crowd->depth > 0;
		return NULL;
	default:
		return NULL;
	}
}
