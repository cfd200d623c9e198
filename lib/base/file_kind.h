/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is, by its first bytes, for messages about one that is not what was expected. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PD_FILE_KIND_BYTES 96           /* as many of the first ones say what a file is */
#define PD_FILE_KIND_TEXT 240

enum pd_file_maker { PD_FILE_OTHERS, PD_FILE_PYTORCH, PD_FILE_ONNX };

struct pd_file_kind {
	const char *what;               /* such as "a gzip file" */
	const char *advice;             /* what to do with it, or NULL */
	bool text;                      /* a text may begin so */
	bool sure;                      /* numbers hardly begin so */
	enum pd_file_maker maker;       /* whose networks it has */
};

/* Returns what begins with these bytes, or NULL if that is not known. */
const struct pd_file_kind *pd_file_kind(const void *bytes, size_t count);
/* Reads them from a file; NULL also where it is not a regular one that can be read. */
const struct pd_file_kind *pd_file_kind_of(const char *file);
/* Tells whether a document, which is a regular file, says early that it is of that format, such as pd-profile. */
bool pd_file_says_format(const char *file, const char *format);
/* Writes ", found WHAT; ADVICE" of the kind into text, and returns it. */
const char *pd_file_kind_say(const struct pd_file_kind *kind, char text[PD_FILE_KIND_TEXT]);
