/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of an engine of cuDNN's graph API with its settings.  A profile records it ("engines"),
 * and a run makes just that engine.  For each way that has an engine it gives the engine's number
 * among those for such operations, and its knobs as type=value, in cuDNN's numbers (values may be
 * negative):
 *
 *    forward 29 2=5 14=-1; weights 12
 */
#pragma once

#include "run/device/cuda/choice.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PD_ENGINE_KNOBS 48      /* more than the library has types */
#define PD_ENGINE_TEXT 2048     /* the most bytes of one way's text */

struct pd_engine_name {
	int64_t index;
	int knob_count;
	struct {
		int type;
		int64_t value;
	} knobs[PD_ENGINE_KNOBS];
};

static inline const char *pd_engine_way(int way)
{
	return way == PD_FORWARD ? "forward" : way == PD_BACKWARD_DATA ? "data" : "weights";
}

/* Prints one way's text, without a separator behind it. */
static inline void pd_engine_print(char text[PD_ENGINE_TEXT], int way,
				   const struct pd_engine_name *name)
{
	int n = snprintf(text, PD_ENGINE_TEXT, "%s %lld", pd_engine_way(way),
			 (long long)name->index);

	for (int k = 0; k < name->knob_count; k++)
		n += snprintf(text + n, PD_ENGINE_TEXT - (size_t)n, " %d=%lld",
			      name->knobs[k].type, (long long)name->knobs[k].value);
}

/*
 * Reads a number at *p, digits and perhaps a minus sign, and moves *p behind it; false: there is
 * none, or it is too large.
 */
static inline bool pd_engine_number(const char **p, int64_t *value_p)
{
	bool negative = **p == '-';
	int64_t value = -1;

	for (*p += negative; **p >= '0' && **p <= '9'; ++*p) {
		if (value > INT64_MAX / 100)
			return false;
		value = (value < 0 ? 0 : value) * 10 + (**p - '0');
	}
	*value_p = negative ? -value : value;
	return value >= 0;
}

/* Parses the text behind the way's name. */
static inline bool pd_engine_parse(const char *p, struct pd_engine_name *name)
{
	name->knob_count = 0;
	if (!pd_engine_number(&p, &name->index) || name->index < 0)
		return false;
	while (*p == ' ' && name->knob_count < PD_ENGINE_KNOBS) {
		int64_t type, value;

		p++;
		if (!pd_engine_number(&p, &type) || type < 0 || type > INT32_MAX || *p++ != '=' ||
		    !pd_engine_number(&p, &value))
			return false;
		name->knobs[name->knob_count].type = (int)type;
		name->knobs[name->knob_count++].value = value;
	}
	return *p == '\0' || *p == ';';
}

/*
 * Finds the engine that a layer's text (may be NULL) names for a way; false: none, or not readable.
 */
static inline bool pd_engine_find(const char *text, int way, struct pd_engine_name *name)
{
	const char *word = pd_engine_way(way);
	size_t length = strlen(word);

	while (text) {
		if (strncmp(text, word, length) == 0 && text[length] == ' ')
			return pd_engine_parse(text + length + 1, name);
		text = strchr(text, ';');
		if (text)
			text += strspn(text, "; ");
	}
	return false;
}
