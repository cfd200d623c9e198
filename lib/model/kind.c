/* SPDX-License-Identifier: Apache-2.0 */
#include "model/kind.h"

#include <stdio.h>
#include <string.h>

const char *const pd_layer_kind_name[PD_LAYER_KINDS + 1] = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) #name,
#include "model/layer_kind.def"
#undef LAYER_KIND
	NULL
};

const struct pd_kind pd_kinds[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	{ inputs, attributes, parameters, states, flags },
#include "model/layer_kind.def"
#undef LAYER_KIND
};

int pd_layer_kind_find(const char *name)
{
	for (int kind = 0; kind < PD_LAYER_KINDS; kind++)
		if (strcmp(pd_layer_kind_name[kind], name) == 0)
			return kind;
	return -1;
}

char pd_kind_input(enum pd_layer_kind kind, int input)
{
	const char *letters = pd_kinds[kind].inputs;
	int last = (int)strcspn(letters, "+") - 1;

	return letters[input < last ? input : last];
}

bool pd_kind_takes(enum pd_layer_kind kind, int inputs, int *expected_p, bool *more_p)
{
	const char *letters = pd_kinds[kind].inputs;

	*expected_p = (int)strcspn(letters, "+");
	*more_p = letters[*expected_p] == '+';
	return inputs == *expected_p || (*more_p && inputs > *expected_p);
}

bool pd_word_next(const char **list_p, struct pd_word *word_p)
{
	const char *begin = *list_p + strspn(*list_p, " ");
	size_t length = strcspn(begin, " "), name = strcspn(begin, " !=");

	if (length == 0)
		return false;
	*list_p = begin + length;
	*word_p = (struct pd_word){ .required = begin[name] == '!' };
	snprintf(word_p->name, sizeof(word_p->name), "%.*s", (int)name, begin);
	if (begin[name] == '=')
		snprintf(word_p->value, sizeof(word_p->value), "%.*s", (int)(length - name - 1),
			 begin + name + 1);
	return true;
}

bool pd_word_find(const char *list, const char *name, size_t length, struct pd_word *word_p)
{
	while (pd_word_next(&list, word_p))
		if (strlen(word_p->name) == length && memcmp(word_p->name, name, length) == 0)
			return true;
	return false;
}

bool pd_kinds_have(bool state, const char *name, size_t length)
{
	struct pd_word word;

	for (int kind = 0; kind < PD_LAYER_KINDS; kind++)
		if (pd_word_find(state ? pd_kinds[kind].states : pd_kinds[kind].parameters, name,
				 length, &word))
			return true;
	return false;
}

static int count_words(const char *list)
{
	struct pd_word word;
	int count = 0;

	while (pd_word_next(&list, &word))
		count++;
	return count;
}

int pd_kind_parameters(enum pd_layer_kind kind)
{
	return count_words(pd_kinds[kind].parameters);
}

int pd_kind_states(enum pd_layer_kind kind)
{
	return count_words(pd_kinds[kind].states);
}
