/* SPDX-License-Identifier: Apache-2.0 */
/* Documents written in C strings: 'single quotes' stand for double ones. */
#pragma once

#include "base/error.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static inline char *quoted(const char *text)
{
	char *copy = pd_strdup(text);

	for (char *c = copy; *c; c++)
		if (*c == '\'')
			*c = '"';
	return copy;
}

/* Returns the parsed value, or NULL with the error set, as pd_json_load() does. */
static inline json_t *document_parse(const char *text, struct pd_error *err)
{
	char *json = quoted(text);
	json_error_t why;
	json_t *value = json_loads(json, JSON_REJECT_DUPLICATES, &why);

	if (!value)
		pd_error_input(err, "doc:%d: not JSON: %s", why.line, why.text);
	free(json);
	return value;
}

/* Returns the path of a model under share/models of the source tree, to be freed. */
static inline char *model_file(const char *name)
{
	const char *source = getenv("PD_SOURCE");

	return pd_format("%s/share/models/%s.json", source ? source : ".", name);
}
