/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a directory has.  It is read as a whole: an error in its middle is not taken for its end, behind
 * which nothing would be.
 */
#pragma once

#include <stddef.h>

struct pd_directory {
	char **names;                   /* but "." and "..", in no order */
	size_t count;
};

/* Returns 0, or -1 with errno and nothing to release. */
int pd_directory_read(const char *path, struct pd_directory *out_p);
void pd_directory_release(struct pd_directory *directory);
