/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"

#include "base/mem.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 63              /* longer names are like no other */

/* Capitals are small letters, and hyphens are underscores. */
static int folded(char c)
{
	return c == '-' ? '_' : tolower((unsigned char)c);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/*
 * Returns in how many steps one becomes the other: a letter more, less or another, or two neighbours
 * exchanged (optimal string alignment).
 */
static int distance(const char *a, const char *b)
{
	int rows[3][LONGEST + 1], m = (int)strlen(a), n = (int)strlen(b);

	for (int j = 0; j <= n; j++)
		rows[0][j] = j;
	for (int i = 1; i <= m; i++) {
		int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two = rows[(i + 1) % 3];

		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int x = folded(a[i - 1]), y = folded(b[j - 1]);

			row[j] = least(above[j - 1] + (x != y), least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && x == folded(b[j - 2]) && y == folded(a[i - 2]))
				row[j] = least(row[j], two[j - 2] + 1);
		}
	}
	return rows[m % 3][n];
}

/* Tells whether a name is the word less some letters between its first and last: f32 is float32. */
static bool abbreviates(const char *name, const char *word)
{
	size_t length = strlen(name);

	if (length < 3 || folded(*name) != folded(*word) ||
	    folded(name[length - 1]) != folded(word[strlen(word) - 1]))
		return false;
	for (; *name && *word; word++)
		name += folded(*name) == folded(*word);
	return !*name;
}

static int common(const char *a, const char *b)
{
	int n = 0;

	while (a[n] && folded(a[n]) == folded(b[n]))
		n++;
	return n;
}

/* Tells whether they begin alike: vocab-size is vocabulary, stashing is stash, num-layers is layers. */
static bool begins_alike(const char *name, const char *word)
{
	int part = (int)strcspn(word, "-_"), same = common(word, name);

	if ((part == 1 || part == 3) && word[part] && strncmp(word, "num", (size_t)part) == 0)
		return begins_alike(name, word + part + 1);
	return (same >= 3 && same == part) || (same >= 4 && same == (int)strlen(name));
}

void pd_likeness_try(struct pd_likeness *l, const char *name)
{
	size_t length = strlen(l->word), other = strlen(name);
	int steps, most = length < 6 ? 1 : (int)(length / 3);

	if (length < 2 || length > LONGEST || other > LONGEST)
		return;
	steps = abs((int)length - (int)other);          /* at least so many */
	if (steps <= most)
		steps = distance(l->word, name);
	if (steps > most && (abbreviates(name, l->word) || begins_alike(name, l->word)))
		steps = most;
	if (steps > most)
		return;
	if (!l->name || steps < l->distance ||
	    (steps == l->distance && common(l->word, name) > common(l->word, l->name))) {
		l->name = name;
		l->distance = steps;
	}
}

const char *pd_likeness_say(const struct pd_likeness *l, char text[PD_MEANT_TEXT])
{
	*text = '\0';
	if (l->name)
		snprintf(text, PD_MEANT_TEXT, "; did you mean \"%s\"?", l->name);
	return text;
}

const char *pd_names_say(const char *const *names, const char *word, char text[PD_MEANT_TEXT])
{
	struct pd_likeness likeness = { .word = word };

	for (int i = 0; names[i]; i++)
		pd_likeness_try(&likeness, names[i]);
	return pd_likeness_say(&likeness, text);
}

int pd_names_index(const char *const *names, const char *word)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(names[i], word) == 0)
			return i;
	return -1;
}

int pd_names_find(const char *const *names, const char *word, struct pd_error *err)
{
	char known[256] = "", meant[PD_MEANT_TEXT];
	int found = pd_names_index(names, word);

	if (found >= 0)
		return found;
	for (int i = 0; names[i]; i++)
		pd_list_name(known, sizeof(known), names[i], "");
	return pd_error_input(err, "expected one of %s, found \"%.60s\"%s", known, word,
			      pd_names_say(names, word, meant));
}

char *pd_names_next(const char **list_p)
{
	size_t length = *list_p ? strcspn(*list_p, ",") : 0;
	char *name;

	if (length == 0)
		return NULL;
	name = pd_format("%.*s", (int)length, *list_p);
	*list_p += length + ((*list_p)[length] == ',');
	return name;
}

bool pd_name_matches(const char *pattern, const char *name)
{
	char *inside = pd_format("%s.*", pattern);
	bool found = fnmatch(pattern, name, 0) == 0 || fnmatch(inside, name, 0) == 0;

	free(inside);
	return found;
}

bool pd_names_match(const char *list, const char *name)
{
	bool found = false;
	char *pattern;

	while (!found && (pattern = pd_names_next(&list))) {
		found = pd_name_matches(pattern, name);
		free(pattern);
	}
	return found;
}
