/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Andrej Karpathy's two programs write them: nanoGPT bare numbers, llm.c 256 i32 before them, of
 * which the first three are a magic number, a version and how many there are.
 */
#include "run/data/token_file.h"

#include "base/directory.h"
#include "base/file_kind.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 1024
/* Bytes, or tokens, of a file without a header that are looked at, and how many of them say something. */
#define MOST_LOOKED_AT (1 << 20)
#define LEAST_LOOKED_AT 128

static const struct {
	int32_t magic, version;
	const char *type;
} headers[] = {
	{ 20240520, 1, "<u2" },
	{ 20240801, 7, "<u4" },
};

/* ---- which files ---- */

static bool is_part(const char *name, const char *part, const char *suffix)
{
	size_t length = strlen(name), end = strlen(suffix), own = strlen(part);
	const char *at = name;

	if (length < end || strcmp(name + length - end, suffix) != 0)
		return false;
	if (length == own + end && strncmp(name, part, own) == 0)
		return true;
	for (; (at = strchr(at, '_')); at++)
		if (strncmp(at + 1, part, own) == 0 &&
		    (at[1 + own] == '_' || at + 1 + own == name + length - end))
			return true;
	return false;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int pd_token_files_list(const char *directory, const char *part, const char *suffix,
			char ***names_p, struct pd_error *err)
{
	struct pd_directory all;
	char **names;
	int count = 0;

	if (pd_directory_read(directory, &all) < 0)
		return pd_error_input(err, "%s: cannot read: %s", directory, strerror(errno));
	names = pd_calloc(all.count, sizeof(*names));
	for (size_t i = 0; i < all.count; i++)
		if (is_part(all.names[i], part, suffix))
			names[count++] = pd_format("%s/%s", directory, all.names[i]);
	pd_directory_release(&all);
	if (count)
		qsort(names, (size_t)count, sizeof(*names), by_name);
	*names_p = names;
	return count;
}

/* ---- one file ---- */

static int32_t header_number(const struct pd_token_file *text, int n)
{
	int32_t number;

	memcpy(&number, text->map.bytes + 4 * n, sizeof(number));
	return number;
}

/* The row of the header that the file begins with; PD_COUNT(headers): none. */
static size_t find_header(const struct pd_token_file *text)
{
	size_t n = 0;

	if (text->map.count < HEADER_BYTES)
		return PD_COUNT(headers);
	while (n < PD_COUNT(headers) && header_number(text, 0) != headers[n].magic)
		n++;
	return n;
}

static int read_header(struct pd_token_file *text, size_t row, struct pd_error *err)
{
	int32_t version = header_number(text, 1), count = header_number(text, 2);
	int64_t bytes = text->map.count - HEADER_BYTES;

	text->type = pd_npy_type_find(headers[row].type);
	if (version != headers[row].version)
		return pd_error_input(err, "%s: version %" PRId32 " behind the magic number %" PRId32
				      ": expected %" PRId32, text->name, version,
				      headers[row].magic, headers[row].version);
	if (count < 0 || (int64_t)count * text->type->bytes != bytes)
		return pd_error_input(err, "%s: the header counts %" PRId32 " tokens of %d bytes: "
				      "expected as many behind it, found %" PRId64 " bytes",
				      text->name, count, text->type->bytes, bytes);
	text->data = text->map.bytes + HEADER_BYTES;
	text->count = count;
	return 0;
}

static int check_tokens(const struct pd_token_file *text, int64_t vocabulary, struct pd_error *err)
{
	int64_t types = INT64_C(1) << (8 * text->type->bytes), at;
	struct pd_dataset_range range = { 0, vocabulary };

	if (vocabulary >= types)
		return 0;
	at = text->type->find_outside(text->data, text->count, &range);
	if (at == text->count)
		return 0;
	return pd_error_input(err, "%s: token %" PRIu64 " at place %" PRId64 ": expected one from 0 to %"
			      PRId64 ", the model's vocabulary%s", text->name,
			      text->type->value(text->data + at * text->type->bytes), at,
			      vocabulary - 1, text->data > text->map.bytes || text->type->bytes == 1 ? ""
			      : text->type->bytes == 2 ? "; without a header they are taken to have 16 bits"
			      : "; without a header they are taken to have 32 bits, since the vocabulary "
				"has more than 65,536");
}

/* Whether every other of the first tokens is 0, as the upper halves of wider ones are. */
static bool are_halves(const struct pd_token_file *text)
{
	int64_t most = text->count < MOST_LOOKED_AT ? text->count : MOST_LOOKED_AT;
	bool lower = false, upper = false;

	for (int64_t i = 0; i < most && !upper; i++) {
		uint64_t token = text->type->value(text->data + i * text->type->bytes);

		*(i % 2 ? &upper : &lower) |= token != 0;
	}
	return lower && !upper;
}

/* Whether the first bytes are those of a text in ASCII, which tokens hardly have. */
static bool are_letters(const struct pd_token_file *text)
{
	int64_t most = text->map.count < MOST_LOOKED_AT ? text->map.count : MOST_LOOKED_AT, i = 0;

	while (i < most && (isprint(text->map.bytes[i]) || isspace(text->map.bytes[i])))
		i++;
	return i == most;
}

/* Bare numbers do not say of which type they are; some cannot be of the one that they are taken for. */
static int read_bare(struct pd_token_file *text, bool bytes, int64_t vocabulary, struct pd_error *err)
{
	bool looks = !bytes && text->map.count >= LEAST_LOOKED_AT;

	text->type = pd_npy_type_find(bytes ? "|u1" : vocabulary <= 65536 ? "<u2" : "<u4");
	if (looks && are_letters(text))
		return pd_error_input(err, "%s: expected the numbers of a tokenizer, found a text: it is taken "
				      "as bytes where its name ends in .txt", text->name);
	if (text->map.count % text->type->bytes != 0)
		return pd_error_input(err, "%s: %" PRId64 " bytes: expected whole tokens of %d bytes",
				      text->name, text->map.count, text->type->bytes);
	text->data = text->map.bytes;
	text->count = text->map.count / text->type->bytes;
	if (looks && text->type->bytes == 2 && are_halves(text))
		return pd_error_input(err, "%s: every other token is 0: these have 32 bits or more; expected "
				      "16 (uint16), since the vocabulary has at most 65,536, or llm.c's header",
				      text->name);
	return 0;
}

/* Checks that it is not a file of another kind, which would be taken for numbers or for a text. */
static int check_kind(const struct pd_token_file *text, bool bytes, struct pd_error *err)
{
	const struct pd_file_kind *kind = pd_file_kind(text->map.bytes, (size_t)text->map.count);
	char found[PD_FILE_KIND_TEXT];

	if (!kind || (bytes ? kind->text : !kind->sure))
		return 0;
	return pd_error_input(err, "%s: expected %s%s", text->name, bytes ? "a text" : "tokens",
			      pd_file_kind_say(kind, found));
}

int pd_token_file_open(struct pd_token_file *text, char *name, bool bytes, int64_t vocabulary,
		       struct pd_error *err)
{
	size_t header;
	int status;

	*text = (struct pd_token_file){ .name = name };
	if (pd_file_map_open(&text->map, name, bytes ? "a text" : "tokens", err) < 0)
		return -1;
	if (check_kind(text, bytes, err) < 0)
		return -1;
	header = bytes ? PD_COUNT(headers) : find_header(text);
	if (header < PD_COUNT(headers))
		status = read_header(text, header, err);
	else
		status = read_bare(text, bytes, vocabulary, err);
	return status < 0 ? -1 : check_tokens(text, vocabulary, err);
}

void pd_token_file_release(struct pd_token_file *text)
{
	pd_file_map_close(&text->map);
	free(text->name);
}
