/* SPDX-License-Identifier: Apache-2.0 */
/* Closed sets of names: finds one, and says which was probably meant where there is none. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

static inline bool pd_name_ends(const char *text, const char *ending)
{
	size_t length = strlen(text), end = strlen(ending);

	return length >= end && strcmp(text + length - end, ending) == 0;
}

/* Takes the first of names with commas between them; returns it, to be freed, or NULL: there is none. */
char *pd_names_next(const char **list_p);
/* Does a pattern stand for a name?  It does for what begins with it and a dot, too, and '*' stands for any text. */
bool pd_name_matches(const char *pattern, const char *name);
/* Does one of such a list (NULL: it is empty)? */
bool pd_names_match(const char *list, const char *name);

/* Of the names that were tried, the one that is most like a word.  Begin with all but the word zero. */
struct pd_likeness {
	const char *word;
	const char *name;               /* NULL: none is like it */
	int distance;                   /* changes of a letter, or exchanges of two, between the two */
};

#define PD_MEANT_TEXT 96

/* Tries a name, which has to live as long as the likeness does. */
void pd_likeness_try(struct pd_likeness *likeness, const char *name);
/* Writes '; did you mean "NAME"?' into text, or nothing where no name is like the word; returns text. */
const char *pd_likeness_say(const struct pd_likeness *likeness, char text[PD_MEANT_TEXT]);
/* Does both for a NULL-terminated list. */
const char *pd_names_say(const char *const *names, const char *word, char text[PD_MEANT_TEXT]);

/* Returns the number of a word in a NULL-terminated list, or -1. */
int pd_names_index(const char *const *names, const char *word);
/* Returns it, or -1 with the error 'expected one of A, B, C, found "WORD"', and what was probably meant. */
int pd_names_find(const char *const *names, const char *word, struct pd_error *err);
