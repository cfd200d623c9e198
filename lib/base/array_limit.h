/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the objects in each array of a JSON text while it is read, so that a document with far
 * too many of them is refused before it fills the memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PD_ARRAY_LIMIT_DEPTH 32		/* Arrays deeper than this are not counted. */
#define PD_ARRAY_LIMIT_KEY 32

struct pd_array_limit {
	size_t most;                    /* objects in one array; 0: any number */
	/* The parser sets these; they are zero at first. */
	bool in_string, escaped;
	char string[PD_ARRAY_LIMIT_KEY]; /* the last string, cut short */
	size_t length;                  /* length of that string */
	int depth;                      /* depth of brackets */
	struct {
		bool array;
		size_t objects;
		char key[PD_ARRAY_LIMIT_KEY]; /* the array's key */
	} level[PD_ARRAY_LIMIT_DEPTH];
};

/* Takes the next byte.  Returns the key of an array that now has too many objects, or NULL. */
const char *pd_array_limit_next(struct pd_array_limit *limit, char c);
