/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are either whole or not there: written under a temporary name in the
 * same directory, flushed to the disk, then renamed.
 */
#ifndef PD_BASE_FILE_H
#define PD_BASE_FILE_H

#include "base/error.h"

#include <stdio.h>

struct pd_file {
	FILE *stream;           /* write here */
	char *name, *temporary;
};

/* "-" or NULL is standard output, which is flushed and checked but not renamed. */
int pd_file_create(struct pd_file *file, const char *name, struct pd_error *err);
/* Flush, fsync, rename.  On failure the temporary is removed. */
int pd_file_commit(struct pd_file *file, struct pd_error *err);
/* Gives up: removes the temporary.  A no-op after a commit. */
void pd_file_abandon(struct pd_file *file);

/* fsync a directory, so that a rename in it survives a crash. */
int pd_sync_directory(const char *name, struct pd_error *err);
/* Removes a directory and all that is in it; a missing one is fine. */
int pd_remove_tree(const char *name, struct pd_error *err);

#endif
