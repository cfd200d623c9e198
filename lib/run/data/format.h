/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of this folder share the list of formats, and a file that is read from front to back. */
#pragma once

#include "engine/data/dataset.h"

#include <zlib.h>

struct pd_source {
	char *name;
	gzFile in;                      /* reads plain and gzip files alike */
	int64_t most_bytes;             /* the most that a file of this size can hold */
};

/* Returns whether DIRECTORY/NAME or DIRECTORY/NAME.gz exists. */
bool pd_source_exists(const char *directory, const char *name);
/* Opens DIRECTORY/NAME or, where that is missing, DIRECTORY/NAME.gz. */
int pd_source_open(struct pd_source *source, const char *directory, const char *name,
		   struct pd_error *err);
void pd_source_close(struct pd_source *source);
/* Reads up to `bytes` and returns how many; fewer only at the end of the file; -1 on error. */
int64_t pd_source_read(struct pd_source *source, void *buf, int64_t bytes, struct pd_error *err);
/* Reads exactly `bytes`; the message of an error says that they hold `what`. */
int pd_source_fill(struct pd_source *source, void *buf, int64_t bytes, const char *what,
		   struct pd_error *err);
/* Checks that the file ends here. */
int pd_source_end(struct pd_source *source, struct pd_error *err);

extern const struct pd_data_format pd_data_idx, pd_data_cifar, pd_data_npy, pd_data_npz, pd_data_tokens,
	pd_data_text, pd_data_book;
