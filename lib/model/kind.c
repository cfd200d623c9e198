/* SPDX-License-Identifier: Apache-2.0 */
#include "model/kind.h"

#include "base/names.h"

#include <limits.h>
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
	return pd_names_index(pd_layer_kind_name, name);
}

char pd_kind_input(enum pd_layer_kind kind, int input)
{
	char letter = 'f';

	for (const char *at = pd_kinds[kind].inputs; *at && input >= 0; at++)
		if (*at != '?' && *at != '+') {
			letter = *at;
			input--;
		}
	return letter;
}

void pd_kind_inputs(enum pd_layer_kind kind, int *fewest_p, int *most_p)
{
	const char *optional = strchr(pd_kinds[kind].inputs, '?');
	int letters = 0;

	*fewest_p = -1;
	for (const char *at = pd_kinds[kind].inputs; *at; at++) {
		if (at == optional)
			*fewest_p = letters - 1;
		letters += *at != '?' && *at != '+';
	}
	*most_p = strchr(pd_kinds[kind].inputs, '+') ? INT_MAX : letters;
	if (*fewest_p < 0)
		*fewest_p = letters;
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
