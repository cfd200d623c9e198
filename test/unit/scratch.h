/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of a test's own, removed when the program ends. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_model;

const char *scratch(void);
/* SCRATCH/NAME, formatted; one of eight buffers, used in turn. */
const char *scratch_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void scratch_write(const char *path, const void *bytes, size_t count);
/* The whole file; free() it. */
uint8_t *scratch_read(const char *path, size_t *count_p);
/* How many entries a directory has, hidden ones too; -1 when there is none. */
int scratch_entries(const char *path);

/* One sentence, on one line, that names `name` and says `what`. */
bool one_sentence(const struct pd_error *err, enum pd_exit status, const char *name,
		  const char *what);
/* The data reader refuses SCRATCH/FOLDER for that model, with such a sentence. */
bool refuses(const char *folder, const struct pd_model *model, const char *name, const char *what);
