/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A door for tables: documents of another program that say in which order ranks do one minibatch.
 * Programs pass a list of such doors, which NULL ends, to what reads; NULL itself is an empty one.
 */
#pragma once

#include "schedule/list.h"

#include <stdio.h>

struct pd_table_door {
	const char *what;               /* "table of PyTorch" */
	/* Tells whether what is to be read begins as such a table does; reads blanks alone. */
	bool (*begins)(FILE *in);
	/*
	 * Reads a table and checks it.  Returns its lists, of one minibatch, which own their plan: that
	 * of `plan`, with the ranks and the order of the table; or without one (NULL) a made-up one,
	 * for which times and bytes mean nothing.
	 */
	struct pd_lists *(*read)(FILE *in, const char *name, const struct pd_plan *plan,
				 struct pd_error *err);
};

/* Returns the door for what is to be read, or NULL. */
static inline const struct pd_table_door *pd_table_door_of(const struct pd_table_door *const *doors,
							   FILE *in)
{
	for (; doors && *doors; doors++)
		if ((*doors)->begins(in))
			return *doors;
	return NULL;
}
