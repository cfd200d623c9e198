/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Writes a field, in quotes if it must be. */
static void put_field(const char *text, FILE *out)
{
	if (!strpbrk(text, ",\"\r\n")) {
		fputs(text, out);
		return;
	}
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			putc('"', out);
		putc(*text, out);
	}
	putc('"', out);
}

/* Writes a value without quotes. */
static void put_value(const json_t *value, FILE *out)
{
	const json_t *one;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_STRING:
		fputs(json_string_value(value), out);
		break;
	case JSON_INTEGER:
		fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		break;
	case JSON_REAL:
		fprintf(out, "%.*g", pd_json_digits(value), json_real_value(value));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		fputs(json_is_true(value) ? "true" : "false", out);
		break;
	case JSON_ARRAY:
		json_array_foreach(value, i, one) {
			fputs(i ? " " : "", out);
			put_value(one, out);
		}
		break;
	default:
		break;
	}
}

void pd_csv_put(const json_t *value, FILE *out)
{
	char *text;
	size_t size;
	FILE *field = pd_mem_stream(&text, &size);

	put_value(value, field);
	pd_mem_stream_close(field);
	put_field(text, out);
	free(text);
}
