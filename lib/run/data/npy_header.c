/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A header is ten or twelve bytes: "\x93NUMPY", the version (1.0, 2.0, 3.0), and the length of the
 * text behind, in two bytes (1.0) or four.  The text is a Python dictionary:
 *
 *    {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
 */
#include "run/data/npy.h"

#include "base/file_kind.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define SHORT_BYTES 10                  /* before the text in version 1.0 */
#define LONG_BYTES 12                   /* in the others */

struct cursor {
	const char *file;
	const uint8_t *bytes;
	int64_t at, end;
};

static int expected(const struct cursor *c, const char *what, struct pd_error *err)
{
	char found[32];

	if (c->at == c->end)
		snprintf(found, sizeof(found), "its end");
	else if (c->bytes[c->at] >= ' ' && c->bytes[c->at] < 127)
		snprintf(found, sizeof(found), "\"%c\"", c->bytes[c->at]);
	else
		snprintf(found, sizeof(found), "byte 0x%02x", c->bytes[c->at]);
	return pd_error_input(err, "%s: header, byte %" PRId64 ": expected %s, found %s", c->file,
			      c->at, what, found);
}

/* Returns the next character that is not a space, or 0. */
static char next_character(struct cursor *c)
{
	while (c->at < c->end && (c->bytes[c->at] == ' ' || c->bytes[c->at] == '\n'))
		c->at++;
	return c->at < c->end ? (char)c->bytes[c->at] : '\0';
}

static bool accept(struct cursor *c, char wanted)
{
	if (next_character(c) != wanted)
		return false;
	c->at++;
	return true;
}

/* Reads text between quotes, without escapes, of fewer than `size` bytes. */
static int read_string(struct cursor *c, const char *what, char *out, size_t size,
		       struct pd_error *err)
{
	char quote = next_character(c);
	size_t used = 0;

	if (quote != '\'' && quote != '"')
		return expected(c, what, err);
	c->at++;
	for (; c->at < c->end && c->bytes[c->at] != (uint8_t)quote; c->at++) {
		if (used + 1 == size || c->bytes[c->at] == '\\')
			return expected(c, what, err);
		out[used++] = (char)c->bytes[c->at];
	}
	out[used] = '\0';
	return accept(c, quote) ? 0 : expected(c, "a quote", err);
}

static int read_bool(struct cursor *c, bool *out_p, struct pd_error *err)
{
	static const char *const words[] = { "False", "True" };

	next_character(c);
	for (int i = 0; i < 2; i++) {
		int64_t length = (int64_t)strlen(words[i]);

		if (c->end - c->at < length ||
		    memcmp(c->bytes + c->at, words[i], (size_t)length) != 0)
			continue;
		*out_p = i;
		c->at += length;
		return 0;
	}
	return expected(c, "True or False", err);
}

static int read_size(struct cursor *c, int64_t *out_p, struct pd_error *err)
{
	int64_t value = 0;

	if (next_character(c) < '0' || next_character(c) > '9')
		return expected(c, "a dimension", err);
	for (; c->at < c->end && c->bytes[c->at] >= '0' && c->bytes[c->at] <= '9'; c->at++)
		if (!pd_mul(value, 10, &value) || !pd_add(value, c->bytes[c->at] - '0', &value))
			return expected(c, "a dimension below 2^63", err);
	*out_p = value;
	return 0;
}

static int read_shape(struct cursor *c, struct pd_npy_header *header, struct pd_error *err)
{
	header->dims = 0;
	if (!accept(c, '('))
		return expected(c, "a shape, \"(\"", err);
	while (!accept(c, ')')) {
		if (header->dims == PD_NPY_DIMS)
			return expected(c, "at most 64 dimensions, \")\"", err);
		if (read_size(c, &header->size[header->dims++], err) < 0)
			return -1;
		if (!accept(c, ',') && next_character(c) != ')')
			return expected(c, "\",\" or \")\"", err);
	}
	return 0;
}

enum key { DESCR, FORTRAN_ORDER, SHAPE, KEYS };

static int read_value(struct cursor *c, enum key key, struct pd_npy_header *header,
		      struct pd_error *err)
{
	switch (key) {
	case DESCR:
		return read_string(c, "a type of numbers, such as '<f4'", header->type,
				   sizeof(header->type), err);
	case FORTRAN_ORDER:
		return read_bool(c, &header->fortran_order, err);
	default:
		return read_shape(c, header, err);
	}
}

static int read_entry(struct cursor *c, bool *seen, struct pd_npy_header *header,
		      struct pd_error *err)
{
	static const char *const keys[KEYS] = { "descr", "fortran_order", "shape" };
	static const char what[] = "each of 'descr', 'fortran_order' and 'shape' once";
	struct cursor before;
	char name[PD_NPY_TYPE_BYTES];

	next_character(c);
	before = *c;
	if (read_string(c, what, name, sizeof(name), err) < 0)
		return -1;
	for (int k = 0; k < KEYS; k++) {
		if (seen[k] || strcmp(keys[k], name) != 0)
			continue;
		seen[k] = true;
		return accept(c, ':') ? read_value(c, (enum key)k, header, err)
				    : expected(c, "\":\"", err);
	}
	return expected(&before, what, err);
}

static int read_text(struct cursor *c, struct pd_npy_header *header, struct pd_error *err)
{
	bool seen[KEYS] = { false };

	if (!accept(c, '{'))
		return expected(c, "\"{\"", err);
	while (!accept(c, '}')) {
		if (read_entry(c, seen, header, err) < 0)
			return -1;
		if (!accept(c, ',') && next_character(c) != '}')
			return expected(c, "\",\" or \"}\"", err);
	}
	if (!seen[DESCR] || !seen[FORTRAN_ORDER] || !seen[SHAPE])
		return pd_error_input(err, "%s: header: expected 'descr', 'fortran_order' and "
				      "'shape', found no '%s'", c->file,
				      !seen[DESCR] ? "descr" :
				      !seen[FORTRAN_ORDER] ? "fortran_order" : "shape");
	next_character(c);
	return c->at < c->end ? expected(c, "nothing behind \"}\"", err) : 0;
}

static int64_t little_endian(const uint8_t *bytes, int count)
{
	int64_t value = 0;

	for (int i = count - 1; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

int pd_npy_header_read(const char *file, const uint8_t *bytes, int64_t count,
		       struct pd_npy_header *header_p, struct pd_error *err)
{
	const struct pd_file_kind *kind = pd_file_kind(bytes, (size_t)count);
	struct cursor c = { .file = file, .bytes = bytes };
	char found[PD_FILE_KIND_TEXT];
	int64_t length;

	if (count < LONG_BYTES)
		return pd_error_input(err, "%s: truncated: expected a .npy header, found %" PRId64
				      " bytes", file, count);
	if (memcmp(bytes, MAGIC, MAGIC_BYTES) != 0 && kind)
		return pd_error_input(err, "%s: expected a file written by numpy.save%s", file,
				      pd_file_kind_say(kind, found));
	if (memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
		return pd_error_input(err, "%s: begins with 0x%02x%02x%02x%02x%02x%02x: expected "
				      "0x934e554d5059, a file written by numpy.save", file,
				      bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]);
	if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
		return pd_error_input(err, "%s: version %d.%d of .npy: expected 1.0, 2.0 or 3.0",
				      file, bytes[6], bytes[7]);
	c.at = bytes[6] == 1 ? SHORT_BYTES : LONG_BYTES;
	length = little_endian(bytes + 8, (int)c.at - 8);
	if (length > count - c.at)
		return pd_error_input(err, "%s: truncated: expected %" PRId64 " bytes of header, "
				      "found %" PRId64, file, length, count - c.at);
	c.end = header_p->data_at = c.at + length;
	return read_text(&c, header_p, err);
}
