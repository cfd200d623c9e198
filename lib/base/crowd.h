/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the objects in each array of a JSON text while it is read, so that a document with far
 * too many of them is refused before it fills the memory.
 */
#ifndef PD_BASE_CROWD_H
#define PD_BASE_CROWD_H

#include <stdbool.h>
#include <stddef.h>

#define PD_CROWD_DEPTH 32               /* what is deeper is not counted */
#define PD_CROWD_KEY 32

struct pd_crowd {
	size_t most;                    /* objects in one array; 0: any number */
	/* set; zero before */
	bool in_string, escaped;
	char string[PD_CROWD_KEY];      /* the last one: cut short */
	size_t length;                  /* of it */
	int depth;                      /* of brackets */
	struct {
		bool array;
		size_t objects;
		char key[PD_CROWD_KEY]; /* of the array */
	} level[PD_CROWD_DEPTH];
};

/* The next byte.  The key of the array that now has too many objects, or NULL. */
const char *pd_crowd_next(struct pd_crowd *crowd, char c);

#endif
