/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is mapped into memory and read where it lies. */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct pd_file_map {
	const uint8_t *bytes;           /* NULL: not mapped */
	int64_t count;
};

/*
 * Maps a whole file, which should be `what`, such as "a .npy file".
 * Errors: input where it is no file, or is empty.
 */
int pd_file_map_open(struct pd_file_map *map, const char *file, const char *what, struct pd_error *err);
/* Unmaps the file; does nothing if the map is not open. */
void pd_file_map_close(struct pd_file_map *map);
