/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zip archive ends with a record that says where its directory is (APPNOTE.TXT 6.3, 4.3.16).  An entry
 * of the directory names a member and the place of its local header, behind which the data lie.  Where 32
 * bits do not hold a number all of them are set, and 64 bits stand elsewhere.
 */
#include "run/data/zip.h"

#include "base/file_kind.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define MOST_COMMENT 65535
#define MOST_MEMBERS 10000
#define DEFLATE_RATIO 1032              /* the most that deflate can save */
#define ALL16 0xffff
#define ALL32 0xffffffff
#define CHUNK_BYTES (INT64_C(1) << 30)  /* zlib counts in unsigned int */

enum { STORED = 0, DEFLATED = 8 };

static uint64_t number(const uint8_t *bytes, int count)
{
	uint64_t value = 0;

	for (int i = count - 1; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

/* Tells whether `bytes` bytes lie at a place, and what is there begins with a signature. */
static bool has(const struct pd_zip *zip, uint64_t at, uint64_t bytes, const char *signature)
{
	uint64_t count = (uint64_t)zip->map.count;

	return at <= count && bytes <= count - at && memcmp(zip->map.bytes + at, signature, 4) == 0;
}

static int damaged(const char *file, const char *what, struct pd_error *err)
{
	return pd_error_input(err, "%s: damaged or cut off: expected a zip archive, as numpy.savez writes it, "
			      "found no %s", file, what);
}

/* Finds the record at the end; -1: there is none. */
static int64_t find_end(const struct pd_zip *zip)
{
	int64_t last = zip->map.count - END_BYTES;

	for (int64_t at = last; at >= 0 && at >= last - MOST_COMMENT; at--)
		if (has(zip, (uint64_t)at, END_BYTES, "PK\5\6") &&
		    (int64_t)number(zip->map.bytes + at + 20, 2) == last - at)
			return at;
	return -1;
}

struct directory {
	uint64_t at, bytes, count;
};

/* Reads the 64-bit record in front of the one at the end, where that refers to it. */
static int read_end64(const struct pd_zip *zip, const char *file, int64_t end, struct directory *dir,
		      struct pd_error *err)
{
	const uint8_t *bytes = zip->map.bytes;
	uint64_t at;

	if (end < LOCATOR_BYTES || !has(zip, (uint64_t)(end - LOCATOR_BYTES), LOCATOR_BYTES, "PK\6\7"))
		return damaged(file, "locator of its directory", err);
	at = number(bytes + end - LOCATOR_BYTES + 8, 8);
	if (!has(zip, at, END64_BYTES, "PK\6\6"))
		return damaged(file, "place of its directory", err);
	*dir = (struct directory){ .count = number(bytes + at + 32, 8), .bytes = number(bytes + at + 40, 8),
				   .at = number(bytes + at + 48, 8) };
	return 0;
}

static int find_directory(const struct pd_zip *zip, const char *file, struct directory *dir,
			  struct pd_error *err)
{
	int64_t end = find_end(zip);
	const uint8_t *bytes = zip->map.bytes + end;

	if (end < 0)
		return damaged(file, "end of its directory", err);
	*dir = (struct directory){ .count = number(bytes + 10, 2), .bytes = number(bytes + 12, 4),
				   .at = number(bytes + 16, 4) };
	if ((dir->count == ALL16 || dir->bytes == ALL32 || dir->at == ALL32) &&
	    read_end64(zip, file, end, dir, err) < 0)
		return -1;
	if (dir->at > (uint64_t)end || dir->bytes > (uint64_t)end - dir->at ||
	    dir->count > dir->bytes / ENTRY_BYTES)
		return damaged(file, "directory where its end says", err);
	if (dir->count > MOST_MEMBERS)
		return pd_error_input(err, "%s: %" PRIu64 " members: expected at most %d", file, dir->count,
				      MOST_MEMBERS);
	return 0;
}

/* Reads the three numbers of an entry that may take 64 bits: size, packed size, place. */
static int read_numbers(const uint8_t *entry, const uint8_t *extra, uint64_t bytes, uint64_t numbers[3])
{
	static const int at[] = { 24, 20, 42 };

	for (int i = 0; i < 3; i++)
		numbers[i] = number(entry + at[i], 4);
	while (bytes >= 4) {
		uint64_t length = number(extra + 2, 2), used = 4;

		if (length > bytes - 4)
			return -1;
		for (int i = 0; number(extra, 2) == 1 && i < 3; i++)
			if (numbers[i] == ALL32 && used + 8 <= 4 + length) {
				numbers[i] = number(extra + used, 8);
				used += 8;
			}
		extra += 4 + length;
		bytes -= 4 + length;
	}
	return 0;
}

/* Finds the data of a member behind its local header. */
static int find_data(const struct pd_zip *zip, uint64_t local, uint64_t packed, struct pd_zip_member *member)
{
	const uint8_t *header = zip->map.bytes + local;
	uint64_t at, count = (uint64_t)zip->map.count;

	if (!has(zip, local, LOCAL_BYTES, "PK\3\4"))
		return -1;
	at = local + LOCAL_BYTES + number(header + 26, 2) + number(header + 28, 2);
	if (at > count || packed > count - at)
		return -1;
	member->data = zip->map.bytes + at;
	member->packed_bytes = (int64_t)packed;
	return 0;
}

static bool is_text(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 0x7f)
			return false;
	return true;
}

static int check_member(const char *file, const struct pd_zip_member *member, uint64_t flags, uint64_t method,
			struct pd_error *err)
{
	if (flags & 1)
		return pd_error_input(err, "%s: %.80s is encrypted: expected an archive that numpy.savez writes",
				      file, member->name);
	if (method != STORED && method != DEFLATED)
		return pd_error_input(err, "%s: %.80s is compressed by method %" PRIu64 ": expected an archive that "
				      "numpy.savez or numpy.savez_compressed writes", file, member->name, method);
	if (member->deflated ? member->bytes / DEFLATE_RATIO > member->packed_bytes
			     : member->bytes != member->packed_bytes)
		return pd_error_input(err, "%s: %.80s: damaged: %" PRId64 " bytes cannot have been packed into %"
				      PRId64, file, member->name, member->bytes, member->packed_bytes);
	return 0;
}

/* Reads the entry at a place of the directory, and returns its bytes; -1 on error. */
static int64_t read_entry(struct pd_zip *zip, const char *file, const struct directory *dir, uint64_t at,
			  struct pd_error *err)
{
	uint64_t left = dir->bytes - (at - dir->at), names, extra, length, numbers[3];
	const uint8_t *entry = zip->map.bytes + at;
	struct pd_zip_member *member = &zip->members[zip->count];

	if (left < ENTRY_BYTES || !has(zip, at, ENTRY_BYTES, "PK\1\2"))
		return damaged(file, "entry where its directory has one", err);
	names = number(entry + 28, 2);
	extra = number(entry + 30, 2);
	length = ENTRY_BYTES + names + extra + number(entry + 32, 2);
	if (length > left ||
	    read_numbers(entry, entry + ENTRY_BYTES + names, extra, numbers) < 0 ||
	    numbers[0] > INT64_MAX || find_data(zip, numbers[2], numbers[1], member) < 0)
		return damaged(file, "member where its directory says", err);
	member->name = pd_format("%.*s", (int)names, (const char *)entry + ENTRY_BYTES);
	zip->count++;
	if (!is_text(member->name))
		return pd_error_input(err, "%s: a member's name has control characters", file);
	member->crc = (uint32_t)number(entry + 16, 4);
	member->bytes = (int64_t)numbers[0];
	member->deflated = number(entry + 10, 2) == DEFLATED;
	return check_member(file, member, number(entry + 8, 2), number(entry + 10, 2), err) < 0
		? -1 : (int64_t)length;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct pd_zip_member *)a)->name, ((const struct pd_zip_member *)b)->name);
}

int pd_zip_open(struct pd_zip *zip, const char *file, struct pd_error *err)
{
	struct directory dir = { 0 };
	uint64_t at;
	int64_t length;

	*zip = (struct pd_zip){ 0 };
	if (pd_file_map_open(&zip->map, file, "a .npz file", err) < 0)
		return -1;
	if (zip->map.count < 4 || memcmp(zip->map.bytes, "PK", 2) != 0) {
		const struct pd_file_kind *kind = pd_file_kind(zip->map.bytes, (size_t)zip->map.count);
		char found[PD_FILE_KIND_TEXT] = "";

		return pd_error_input(err, "%s: expected a file written by numpy.savez%s", file,
				      kind ? pd_file_kind_say(kind, found) : ", a zip archive");
	}
	if (find_directory(zip, file, &dir, err) < 0)
		return -1;
	zip->members = pd_calloc((size_t)dir.count + 1, sizeof(*zip->members));
	at = dir.at;
	for (uint64_t i = 0; i < dir.count; i++, at += (uint64_t)length) {
		length = read_entry(zip, file, &dir, at, err);
		if (length < 0)
			return -1;
	}
	qsort(zip->members, (size_t)zip->count, sizeof(*zip->members), by_name);
	for (int i = 1; i < zip->count; i++)
		if (strcmp(zip->members[i - 1].name, zip->members[i].name) == 0)
			return pd_error_input(err, "%s: has two members of the name %.80s", file,
					      zip->members[i].name);
	return 0;
}

void pd_zip_close(struct pd_zip *zip)
{
	for (int i = 0; i < zip->count; i++)
		free(zip->members[i].name);
	free(zip->members);
	pd_file_map_close(&zip->map);
	*zip = (struct pd_zip){ 0 };
}

static unsigned int chunk(int64_t bytes)
{
	return (unsigned int)(bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES);
}

/* Unpacks up to `bytes` bytes; returns how many there were.  *whole_p: the data ended there. */
static int64_t inflate_member(const struct pd_zip_member *member, uint8_t *out, int64_t bytes, bool *whole_p)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)member->data, .next_out = out };
	int64_t in = member->packed_bytes, room = bytes;
	int status = inflateInit2(&z, -MAX_WBITS);
	uint8_t spare;

	if (status != Z_OK)
		pd_mem_exhausted(0);
	while (status == Z_OK) {
		unsigned int given = chunk(in), free_bytes = chunk(room);

		z.avail_in = given;
		z.avail_out = free_bytes;
		if (room == 0) {        /* one more byte would be too many */
			z.next_out = &spare;
			z.avail_out = 1;
		}
		status = inflate(&z, Z_NO_FLUSH);
		in -= given - z.avail_in;
		if (room == 0 && z.avail_out == 0)
			break;
		room -= room ? free_bytes - z.avail_out : 0;
	}
	inflateEnd(&z);
	if (status == Z_MEM_ERROR)
		pd_mem_exhausted(0);
	*whole_p = status == Z_STREAM_END && in == 0;
	return bytes - room;
}

int64_t pd_zip_peek(const struct pd_zip_member *member, const char *name, uint8_t *out, int64_t most,
		    struct pd_error *err)
{
	int64_t wanted = member->bytes < most ? member->bytes : most;
	bool whole;

	if (inflate_member(member, out, wanted, &whole) < wanted)
		return pd_error_input(err, "%s: damaged: its compressed data cannot be unpacked", name);
	return wanted;
}

static uint32_t checksum(const uint8_t *bytes, int64_t count)
{
	uint32_t crc = (uint32_t)crc32(0, NULL, 0);

	for (int64_t at = 0; at < count; at += CHUNK_BYTES)
		crc = (uint32_t)crc32(crc, bytes + at, chunk(count - at));
	return crc;
}

int pd_zip_unpack(const struct pd_zip_member *member, const char *name, uint8_t *out, struct pd_error *err)
{
	bool whole = true;

	if (member->deflated && (inflate_member(member, out, member->bytes, &whole) < member->bytes || !whole))
		return pd_error_input(err, "%s: damaged: its compressed data cannot be unpacked", name);
	if (checksum(member->deflated ? out : member->data, member->bytes) != member->crc)
		return pd_error_input(err, "%s: damaged: its checksum is another than the archive's directory has",
				      name);
	return 0;
}
