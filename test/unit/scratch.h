/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of a test's own, which is removed when the program ends. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_model;

const char *scratch(void);
/* Returns the path of a formatted name in the scratch directory, in one of eight buffers, used in turn. */
const char *scratch_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void scratch_write(const char *path, const void *bytes, size_t count);
/* Returns the whole file, to be freed. */
uint8_t *scratch_read(const char *path, size_t *count_p);
/* Returns how many entries a directory has, hidden ones included, or -1 if there is no directory. */
int scratch_entries(const char *path);

/* Tells whether the error is one sentence, on one line, that has `name` and `what`. */
bool one_sentence(const struct pd_error *err, enum pd_exit status, const char *name,
		  const char *what);
/* Tells whether the data reader refuses a scratch folder for the model, as one_sentence() checks. */
bool refuses(const char *folder, const struct pd_model *model, const char *name, const char *what);
