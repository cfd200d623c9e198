/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/array_limit.h"
#include "base/file_kind.h"
#include "base/names.h"
#include "base/mem.h"
#include "base/json_limit.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *pd_document_name(const char *file)
{
	return file && strcmp(file, "-") != 0 ? file : "standard input";
}

FILE *pd_document_open(const char *file, struct pd_error *err)
{
	FILE *in = !file || strcmp(file, "-") == 0 ? stdin : fopen(file, "re");

	if (!in)
		pd_error_input(err, "%s: cannot open: %s", *file ? file : "\"\"",
			       strerror(errno));
	return in;
}

void pd_document_close(FILE *in)
{
	if (in != stdin)
		fclose(in);
}

void pd_json_pass(struct pd_json_at *at, int c)
{
	if (c == '\n')
		*at = (struct pd_json_at){ .lines = at->lines + 1 };
	else if (c != EOF && (c & 0xc0) != 0x80)
		at->columns++;
}

struct text {
	FILE *in;
	struct pd_json_at *at;          /* counts what is read; NULL: nobody asks */
	struct pd_array_limit limit;
	const char *overfull;		/* the key of an array that has too many objects */
	char head[PD_FILE_KIND_BYTES];  /* what it begins with */
	size_t head_count;
};

/*
 * Reads one byte at a time, so that nothing behind the document is consumed.  The parser overlooks
 * a zero byte behind a number, so such a byte is replaced by one that it reports.
 */
static size_t next_byte(void *buffer, size_t size, void *data)
{
	struct text *text = data;
	int c = size > 0 && !text->overfull ? getc(text->in) : EOF;

	if (c == EOF)
		return 0;
	if (text->at)
		pd_json_pass(text->at, c);
	if (text->head_count < sizeof(text->head))
		text->head[text->head_count++] = (char)c;
	if (text->limit.most > 0)
		text->overfull = pd_array_limit_next(&text->limit, (char)c);
	*(char *)buffer = (char)(c ? c : '\1');
	return 1;
}

static int too_large(const char *name, struct pd_error *err)
{
	return pd_error_input(err, "%s: too large: its values take more than %d MiB of memory", name,
			      PD_JSON_LIMIT_BYTES >> 20);
}

json_t *pd_json_load_text(const char *text, size_t bytes, const char *name, struct pd_error *err)
{
	json_error_t why;
	json_t *value;

	pd_json_limit_begin();
	value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
	if (pd_json_limit_end()) {
		json_decref(value);
		too_large(name, err);
		return NULL;
	}
	if (!value)
		pd_error_input(err, "%s:%d: not JSON: %s", name, why.column, why.text);
	return value;
}

/* Says what is no JSON, by name where it is known. */
static void not_json(struct text *text, const char *name, const struct pd_json_at *begin,
		     const json_error_t *why, struct pd_error *err)
{
	const struct pd_file_kind *kind;
	char found[PD_FILE_KIND_TEXT];

	while (text->head_count < sizeof(text->head) && next_byte(found, 1, text) > 0)
		;
	kind = pd_file_kind(text->head, text->head_count);
	if (kind && pd_file_kind("{", 1) != kind)
		pd_error_input(err, "%s: expected a JSON document%s", name, pd_file_kind_say(kind, found));
	else
		pd_error_input(err, "%s:%d:%d: not JSON: %s", name, begin->lines + why->line,
			       (why->line == 1 ? begin->columns : 0) + why->column, why->text);
}

static json_t *load(FILE *in, const char *name, bool more, size_t most, struct pd_json_at *at,
		    struct pd_error *err)
{
	const struct pd_json_at begin = at ? *at : (struct pd_json_at){ 0 };
	struct text text = { .in = in, .at = at, .limit.most = most };
	json_error_t why;
	json_t *value;

	errno = 0;
	pd_json_limit_begin();
	value = json_load_callback(next_byte, &text, JSON_REJECT_DUPLICATES |
				   (more ? JSON_DISABLE_EOF_CHECK : 0), &why);
	if (pd_json_limit_end()) {
		json_decref(value);
		too_large(name, err);
		return NULL;
	}
	if (text.overfull) {
		json_decref(value);
		pd_error_input(err, "%s: %s: expected at most %zu of them, found more", name,
			       text.overfull, most);
		return NULL;
	}
	if (!value && ferror(in) && errno == EISDIR)
		pd_error_input(err, "%s: is a folder, expected a document: pd-model %s writes the network of a "
			       "Hugging Face folder", name, name);
	else if (!value && ferror(in))
		pd_error_input(err, "%s: cannot read: %s", name, strerror(errno ? errno : EIO));
	else if (!value && why.position == 0 &&
		 json_error_code(&why) == json_error_premature_end_of_input)
		pd_error_input(err, "%s: empty: expected a JSON object", name);
	else if (!value)
		not_json(&text, name, &begin, &why, err);
	return value;
}

json_t *pd_json_load_stream(FILE *in, const char *name, bool more, struct pd_error *err)
{
	return load(in, name, more, 0, NULL, err);
}

json_t *pd_json_load_most(const char *file, size_t objects, struct pd_error *err)
{
	const char *name = pd_document_name(file);
	FILE *in = pd_document_open(file, err);
	json_t *value;

	if (!in)
		return NULL;
	value = load(in, name, false, objects, NULL, err);
	pd_document_close(in);
	return value;
}

json_t *pd_json_load_next(FILE *in, const char *name, size_t objects, struct pd_json_at *at,
			  bool *last_p, struct pd_error *err)
{
	json_t *value = load(in, name, true, objects, at, err);
	int c = value ? getc(in) : EOF;

	while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
		pd_json_pass(at, c);
		c = getc(in);
	}
	*last_p = c == EOF;
	if (c != EOF)
		ungetc(c, in);
	return value;
}

json_t *pd_json_load(const char *file, struct pd_error *err)
{
	return pd_json_load_most(file, 0, err);
}

struct pd_place pd_place_root(const char *document, json_t *value)
{
	return (struct pd_place){ .document = document, .value = value };
}

struct pd_place pd_place_key(const struct pd_place *up, const char *key)
{
	return (struct pd_place){ .document = up->document, .up = up, .key = key,
				  .value = json_object_get(up->value, key) };
}

struct pd_place pd_place_index(const struct pd_place *up, size_t index)
{
	return (struct pd_place){ .document = up->document, .up = up, .index = index,
				  .value = json_array_get(up->value, index) };
}

/* Writes a path such as "layers[3].kernel[0]" into buf. */
static void path(const struct pd_place *place, char *buf, size_t size)
{
	size_t used;

	if (!place->up) {
		buf[0] = 0;
		return;
	}
	path(place->up, buf, size);
	used = strlen(buf);
	if (place->key)
		snprintf(buf + used, size - used, "%s%.60s", used ? "." : "", place->key);
	else
		snprintf(buf + used, size - used, "[%zu]", place->index);
}

/*
 * Writes 'in "fc1", ' if the place is in a part of the document that has the name fc1, which is easier
 * to find than its number; writes nothing if there is no name, or the text says it already.
 */
static void named(const struct pd_place *place, const char *text, char *buf, size_t size)
{
	const char *name;

	buf[0] = 0;
	while (place->up && (place->key || !json_is_object(place->value)))
		place = place->up;
	name = place->up ? json_string_value(json_object_get(place->value, "name")) : NULL;
	if (!name || !*name || (size_t)snprintf(buf, size, "\"%s\"", name) >= size || strstr(text, buf))
		buf[0] = 0;
	else
		snprintf(buf, size, "in \"%s\", ", name);
}

static int place_error(const struct pd_place *place, struct pd_error *err, const char *text)
{
	char where[256], name[72];

	path(place, where, sizeof(where));
	named(place, text, name, sizeof(name));
	return pd_error_input(err, "%s: %s%s%s%s", place->document, name, where, *where ? ": " : "", text);
}

int pd_place_error(const struct pd_place *place, struct pd_error *err, const char *fmt, ...)
{
	char text[480];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return place_error(place, err, text);
}

/* Describes the value, short enough for one line. */
static void describe_value(const json_t *value, char *buf, size_t size)
{
	char *text;

	switch (value ? (int)json_typeof(value) : -1) {
	case -1:
		snprintf(buf, size, "nothing");
		return;
	case JSON_OBJECT:
		snprintf(buf, size, "an object");
		return;
	case JSON_ARRAY:
		snprintf(buf, size, "an array of %zu", json_array_size(value));
		return;
	default:
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
		snprintf(buf, size, "%.60s%s", text ? text : "?", text && strlen(text) > 60 ? "..." : "");
		free(text);
	}
}

int pd_place_expected(const struct pd_place *place, struct pd_error *err, const char *fmt, ...)
{
	char expected[256], found[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(expected, sizeof(expected), fmt, ap);
	va_end(ap);
	describe_value(place->value, found, sizeof(found));
	return pd_place_error(place, err, "expected %s, found %s", expected, found);
}

/* Returns the program that goes on from a document of that format, or NULL. */
static const char *reader_of(const char *format)
{
	static const char *const readers[][2] = {
		{ "pd-model", "pd-profile" }, { "pd-profile", "pd-plan" },
		{ "pd-topology", "pd-plan --topology" }, { "pd-plan", "pd-run, pd-replay or pd-schedule" },
		{ "pd-schedule", "pd-run, pd-replay or pd-schedule" }, { "pd-trace", "pd-replay" },
		{ "pd-checkpoint", "pd-run --resume" },
	};

	for (size_t i = 0; format && i < sizeof(readers) / sizeof(*readers); i++)
		if (strcmp(format, readers[i][0]) == 0)
			return readers[i][1];
	return NULL;
}

int pd_json_other_format(const struct pd_place *name, const char *expected, struct pd_error *err)
{
	const char *found = json_string_value(name->value), *reader = reader_of(found);

	if (!reader)
		return pd_place_expected(name, err, "%s", expected);
	return pd_place_error(name, err, "expected %s, found \"%s\", which is for %s", expected, found,
			      reader);
}

int pd_json_header(const struct pd_place *root, const char *format, struct pd_error *err)
{
	int64_t version;

	return pd_json_header_of(root, format, 1, &version, err);
}

int pd_json_header_of(const struct pd_place *root, const char *format, int64_t newest,
		      int64_t *version_p, struct pd_error *err)
{
	struct pd_place name = pd_place_key(root, "format");

	if (!json_is_object(root->value))
		return pd_place_expected(root, err, "a %s document, which is a JSON object", format);
	if (!json_is_string(name.value) || strcmp(json_string_value(name.value), format) != 0) {
		char quoted[64];

		snprintf(quoted, sizeof(quoted), "\"%s\"", format);
		return pd_json_other_format(&name, quoted, err);
	}
	return pd_json_get_int(root, "version", 1, newest, version_p, err);
}

int pd_json_keys(const struct pd_place *object, const char *const *known, struct pd_error *err)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object->value))
		return pd_place_expected(object, err, "an object");
	json_object_foreach(object->value, key, value) {
		char list[384] = "", meant[PD_MEANT_TEXT];

		if (pd_names_index(known, key) >= 0)
			continue;
		for (int i = 0; known[i]; i++)
			pd_list_name(list, sizeof(list), known[i], "");
		return pd_place_error(object, err, "unknown key \"%.60s\"; expected one of %s%s", key, list,
				      pd_names_say(known, key, meant));
	}
	return 0;
}

const char *pd_json_keys_say(const json_t *object, const char *word, char text[PD_MEANT_TEXT])
{
	struct pd_likeness likeness = { .word = word };
	json_t *any = (json_t *)(uintptr_t)object, *value;
	const char *key;

	json_object_foreach(any, key, value)
		pd_likeness_try(&likeness, key);
	return pd_likeness_say(&likeness, text);
}

int pd_json_array(const struct pd_place *place, size_t *count_p, struct pd_error *err)
{
	if (!json_is_array(place->value))
		return pd_place_expected(place, err, "an array");
	*count_p = json_array_size(place->value);
	return 0;
}

int pd_json_some(const struct pd_place *place, int most, const char *things, size_t *count_p,
		 struct pd_error *err)
{
	if (pd_json_array(place, count_p, err) < 0)
		return -1;
	if (*count_p < 1 || *count_p > (size_t)most)
		return pd_place_expected(place, err, "1 to %d %s", most, things);
	return 0;
}

/* Takes a whole number, also one that a program wrote as a real one, such as 2e11 or 4.0. */
static bool read_whole(const json_t *value, int64_t *out_p)
{
	double real = json_real_value(value);

	*out_p = json_is_integer(value) ? json_integer_value(value) : 0;
	if (!json_is_real(value) || fabs(real) > (double)(INT64_C(1) << DBL_MANT_DIG) ||
	    real != floor(real))
		return json_is_integer(value);
	*out_p = (int64_t)real;
	return true;
}

int pd_json_int(const struct pd_place *place, int64_t min, int64_t max, int64_t *out_p,
		struct pd_error *err)
{
	int64_t value;

	if (!read_whole(place->value, &value) || value < min || value > max) {
		if (max == INT64_MAX)
			return pd_place_expected(place, err, "a whole number, at least %" PRId64, min);
		if (min == max)
			return pd_place_expected(place, err, "%" PRId64, min);
		return pd_place_expected(place, err, "a whole number from %" PRId64 " to %" PRId64,
					 min, max);
	}
	*out_p = value;
	return 0;
}

int pd_json_real(const struct pd_place *place, double min, double max, double *out_p,
		 struct pd_error *err)
{
	double value = json_is_number(place->value) ? json_number_value(place->value) : NAN;

	if (!(value >= min && value <= max))
		return pd_place_expected(place, err, "a number from %g to %g", min, max);
	*out_p = value;
	return 0;
}

int pd_json_bool(const struct pd_place *place, bool *out_p, struct pd_error *err)
{
	if (!json_is_boolean(place->value))
		return pd_place_expected(place, err, "true or false");
	*out_p = json_is_true(place->value);
	return 0;
}

int pd_json_string(const struct pd_place *place, const char **out_p, struct pd_error *err)
{
	const char *text = json_string_value(place->value);

	if (!text || !*text || strlen(text) != json_string_length(place->value))
		return pd_place_expected(place, err, "a non-empty string");
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ' || *c == 127)
			return pd_place_expected(place, err, "a string without control characters");
	*out_p = text;
	return 0;
}

int pd_json_get_int(const struct pd_place *object, const char *key, int64_t min, int64_t max,
		    int64_t *out_p, struct pd_error *err)
{
	struct pd_place place = pd_place_key(object, key);

	return pd_json_int(&place, min, max, out_p, err);
}

int pd_json_opt_int(const struct pd_place *object, const char *key, int64_t min, int64_t max,
		    int64_t *out_p, struct pd_error *err)
{
	return json_object_get(object->value, key)
		? pd_json_get_int(object, key, min, max, out_p, err) : 0;
}

int pd_json_opt_real(const struct pd_place *object, const char *key, double min, double max,
		     double *out_p, struct pd_error *err)
{
	struct pd_place place = pd_place_key(object, key);

	return place.value ? pd_json_real(&place, min, max, out_p, err) : 0;
}

int pd_json_opt_bool(const struct pd_place *object, const char *key, bool *out_p,
		     struct pd_error *err)
{
	struct pd_place place = pd_place_key(object, key);

	return place.value ? pd_json_bool(&place, out_p, err) : 0;
}

int pd_json_get_string(const struct pd_place *object, const char *key, const char **out_p,
		       struct pd_error *err)
{
	struct pd_place place = pd_place_key(object, key);

	return pd_json_string(&place, out_p, err);
}

int pd_json_opt_string(const struct pd_place *object, const char *key, const char **out_p,
		       struct pd_error *err)
{
	return json_object_get(object->value, key) ? pd_json_get_string(object, key, out_p, err) : 0;
}

int pd_json_get_choice(const struct pd_place *object, const char *key, const char *const *names,
		       int *out_p, struct pd_error *err)
{
	struct pd_place at = pd_place_key(object, key);
	const char *text = json_string_value(at.value);
	char list[160] = "", meant[PD_MEANT_TEXT];
	int found = text ? pd_names_index(names, text) : -1;

	if (found >= 0) {
		*out_p = found;
		return 0;
	}
	for (int i = 0; names[i]; i++)
		pd_list_name(list, sizeof(list), names[i], "\"");
	if (!text)
		return pd_place_expected(&at, err, "one of %s", list);
	return pd_place_error(&at, err, "expected one of %s, found \"%.60s\"%s", list, text,
			      pd_names_say(names, text, meant));
}

void pd_json_set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) != 0)
		pd_bug("JSON: member \"%s\" cannot be made", key);
}

void pd_json_add(json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) != 0)
		pd_bug("JSON: an element of an array cannot be made");
}

json_t *pd_json_bytes(const char *bytes)
{
	return json_string_nocheck(bytes);
}

/* Returns how many bytes at the front are a character; 0: none. */
static size_t character(const char *bytes)
{
	for (size_t n = 1; n <= 4 && bytes[n - 1]; n++) {
		json_t *one = json_stringn(bytes, n);

		json_decref(one);
		if (one)
			return n;
	}
	return 0;
}

json_t *pd_json_shown(const char *bytes)
{
	json_t *value = json_string(bytes);
	size_t used = 0;
	char *text;

	if (value)
		return value;
	text = pd_zalloc(3 * strlen(bytes) + 1);
	while (*bytes) {
		size_t n = character(bytes);

		memcpy(text + used, n ? bytes : "\xef\xbf\xbd", n ? n : 3);
		used += n ? n : 3;
		bytes += n ? n : 1;
	}
	value = json_string(text);
	free(text);
	return value;
}

#define LINE_WIDTH 120
#define DIGITS_MIN 15   /* of 0.1, which would be 0.10000000000000001 with more */
#define DIGITS_MAX 17   /* of any number */

int pd_json_digits(const json_t *value)
{
	int digits = DIGITS_MIN, more;
	const json_t *member;
	const char *key;
	char text[40];
	size_t i;

	if (json_is_real(value)) {
		do
			snprintf(text, sizeof(text), "%.*g", digits, json_real_value(value));
		while (strtod(text, NULL) != json_real_value(value) && ++digits < DIGITS_MAX);
		return digits;
	}
	json_array_foreach(value, i, member) {
		more = pd_json_digits(member);
		digits = more > digits ? more : digits;
	}
	json_object_foreach((json_t *)value, key, member) {
		more = pd_json_digits(member);
		digits = more > digits ? more : digits;
	}
	return digits;
}

static char *one_line(const json_t *value)
{
	return json_dumps(value, JSON_ENCODE_ANY |
			  JSON_REAL_PRECISION((size_t)pd_json_digits(value)));
}

static void write_value(json_t *value, FILE *out, int indent)
{
	bool object = json_is_object(value);
	char *flat = one_line(value);
	const char *key;
	json_t *member;
	size_t i, n = 0;

	if (!flat)
		pd_bug("a document that cannot be written");
	if (!(object || json_is_array(value)) || strlen(flat) + (size_t)indent <= LINE_WIDTH) {
		fputs(flat, out);
		free(flat);
		return;
	}
	free(flat);
	fputc(object ? '{' : '[', out);
	if (object) {
		json_object_foreach(value, key, member) {
			json_t *word = json_string(key);
			char *name = one_line(word);

			fprintf(out, "%s\n%*s%s: ", n++ ? "," : "", indent + 2, "", name);
			free(name);
			json_decref(word);
			write_value(member, out, indent + 2);
		}
	} else {
		json_array_foreach(value, i, member) {
			fprintf(out, "%s\n%*s", i ? "," : "", indent + 2, "");
			write_value(member, out, indent + 2);
		}
	}
	fprintf(out, "\n%*s%c", indent, "", object ? '}' : ']');
}

int pd_json_write(json_t *value, FILE *out, struct pd_error *err)
{
	write_value(value, out, 0);
	fputc('\n', out);
	if (ferror(out))
		return pd_error_failed(err, "cannot write the document: %s", strerror(errno));
	return 0;
}
