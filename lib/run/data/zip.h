/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: a zip archive, as numpy.savez writes it, also of more than 4 GB.  Members are
 * stored or deflated.  Nothing that it says of sizes and places is believed before the file has it.
 */
#pragma once

#include "base/map.h"

#include <stdbool.h>

struct pd_zip_member {
	char *name;
	const uint8_t *data;            /* in the archive: as many bytes as packed_bytes */
	int64_t packed_bytes, bytes;    /* bytes: of the content */
	uint32_t crc;
	bool deflated;
};

struct pd_zip {
	struct pd_file_map map;
	int count;
	struct pd_zip_member *members;
};

/*
 * Opens an archive.  Members that are encrypted, or compressed otherwise, are errors, as are two of one name.
 * Errors: input; afterwards the archive is to be closed, too.
 */
int pd_zip_open(struct pd_zip *zip, const char *file, struct pd_error *err);
void pd_zip_close(struct pd_zip *zip);
/* Unpacks the beginning of a deflated member, and returns how many bytes it had, at most `most`; -1 on error. */
int64_t pd_zip_peek(const struct pd_zip_member *member, const char *name, uint8_t *out, int64_t most,
		    struct pd_error *err);
/*
 * Unpacks a deflated member into out, as many as its bytes; where it is stored, out is NULL.  Checks that
 * the content is all there and has the right checksum.
 */
int pd_zip_unpack(const struct pd_zip_member *member, const char *name, uint8_t *out, struct pd_error *err);
