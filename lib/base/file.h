/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are either whole or not there: written without a name, in the same directory,
 * flushed to the disk, then named; so whoever is killed leaves nothing behind.  File systems
 * without such files (NFS) have them written under a temporary name.
 */
#ifndef PD_BASE_FILE_H
#define PD_BASE_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct pd_file {
	FILE *stream;           /* write here */
	char *name, *temporary;
	bool nameless;
};

/*
 * Before the work whose result it will be: can a file of that name be created, as far as that is
 * known without making one?  Errors: input.  "-" or NULL is fine.
 */
int pd_file_check(const char *name, struct pd_error *err);
/*
 * Before the work, too: what has the name and is no regular file, a pipe or a device, is opened, to be
 * written and committed as any.  That shows whether anybody reads the pipe, who then waits, and
 * whether the device takes anything.  Elsewhere file->stream is NULL.  Errors: input.
 */
int pd_file_open_special(struct pd_file *file, const char *name, struct pd_error *err);
/* "-" or NULL is standard output, which is flushed and checked but not renamed. */
int pd_file_create(struct pd_file *file, const char *name, struct pd_error *err);
/* Flush, fsync, name.  On failure nothing is left, and what had the name before stays. */
int pd_file_commit(struct pd_file *file, struct pd_error *err);
/* Gives up: nothing is left.  A no-op after a commit. */
void pd_file_abandon(struct pd_file *file);

/*
 * A file to be written and read back that never has a name, in the directory of `name`: a
 * descriptor, or -1 with errno.  It is gone when the last who has it open is.
 */
int pd_file_nameless(const char *name);

/*
 * All of a regular file of at most so many bytes, and a zero behind it; free() it.  Anything else
 * that has the name, such as a pipe, is refused and not waited for.  Errors: input.
 */
char *pd_file_read(const char *name, int64_t most_bytes, size_t *bytes_p, struct pd_error *err);

/* fsync a directory, so that a rename in it survives a crash. */
int pd_sync_directory(const char *name, struct pd_error *err);
/* Removes a directory and all that is in it; a missing one is fine. */
int pd_remove_tree(const char *name, struct pd_error *err);

#endif
