/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are either complete or absent.  A file is written without a name in its directory,
 * flushed to the disk, and then named, so that a killed process leaves nothing behind.  On file
 * systems without unnamed files (NFS) it is written under a temporary name.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct pd_file {
	FILE *stream;           /* write here */
	char *name, *temporary;
	bool unnamed;
};

/*
 * Checks before the work whether a file of that name can be created, as far as this is known
 * without creating it.  Errors count as input.  The name may be "-" or NULL.
 */
int pd_file_check(const char *name, struct pd_error *err);
/*
 * Opens a pipe or a device before the work; it is then written and committed as any file.  This
 * shows whether somebody reads the pipe, who then waits, and whether the device takes anything.  For
 * other names file->stream is NULL.  Errors count as input.
 */
int pd_file_open_special(struct pd_file *file, const char *name, struct pd_error *err);
/* The name "-" or NULL means standard output, which is flushed and checked but not renamed. */
int pd_file_create(struct pd_file *file, const char *name, struct pd_error *err);
/*
 * Flushes, syncs and names the file.  On failure an older file of that name stays, and nothing
 * else.
 */
int pd_file_commit(struct pd_file *file, struct pd_error *err);
/* Discards the file; does nothing after a commit. */
void pd_file_abandon(struct pd_file *file);

/*
 * Opens a file without a name, for writing and reading, in the directory of `name`.  Returns a
 * descriptor, or -1 with errno.  The file is gone when the last process closes it.
 */
int pd_file_unnamed(const char *name);

/*
 * Reads a regular file of at most most_bytes and appends a zero byte; the caller frees it.  Any
 * other file, such as a pipe, is refused at once.  Errors count as input.
 */
char *pd_file_read(const char *name, int64_t most_bytes, size_t *bytes_p, struct pd_error *err);

/* Syncs a directory, so that a rename in it survives a crash. */
int pd_sync_directory(const char *name, struct pd_error *err);
/* Removes a directory with its contents; it may be missing. */
int pd_remove_tree(const char *name, struct pd_error *err);
