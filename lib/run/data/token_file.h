/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this folder: a text in a file, its tokens one after the other: the numbers that a
 * tokenizer has made of it, or its bytes.  It is mapped into memory and read where it lies.
 */
#pragma once

#include "base/map.h"
#include "run/data/npy.h"

struct pd_token_file {
	char *name;
	struct pd_file_map map;
	const struct pd_npy_type *type; /* of a token */
	const uint8_t *data;            /* in map */
	int64_t count;                  /* tokens */
};

/*
 * The names of the files of one part ("train", "val") of a directory's texts, sorted by their bytes:
 * PART.SUFFIX, and those that end in _PART.SUFFIX or have _PART_ within.  Returns how many, -1 if the
 * directory cannot be read; free() each and the array.
 */
int pd_token_files_list(const char *directory, const char *part, const char *suffix,
			char ***names_p, struct pd_error *err);

/*
 * Opens a text as bytes; or as the numbers of a tokenizer, u16 or u32, little-endian.  The latter may
 * have llm.c's header, which says how many there are and of which type.  Without one they are u16 if
 * the vocabulary has at most 65,536, else u32.  Every token must be below `vocabulary`.  The name is
 * taken.  After an error there is as much to release as was opened.
 */
int pd_token_file_open(struct pd_token_file *text, char *name, bool bytes, int64_t vocabulary,
		       struct pd_error *err);
void pd_token_file_release(struct pd_token_file *text);
