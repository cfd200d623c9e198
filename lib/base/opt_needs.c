/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt_needs.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* One of the options that a column names. */
struct named {
	const struct pd_opt *option;
	const char *value;      /* behind '='; NULL: any */
	size_t length;          /* of the value */
};

/* Takes the next of a column's names; returns false at their end. */
static bool take_named(const struct pd_command *command, const char **names_p,
		       struct named *named_p)
{
	const char *name = *names_p + strspn(*names_p, " ");
	size_t length = strcspn(name, " "), word = strcspn(name, " =");
	const struct pd_opt *o = command->options;

	*names_p = name + length;
	*named_p = (struct named){ 0 };
	if (length == 0)
		return false;
	while (o->name && (strncmp(o->name, name, word) != 0 || o->name[word] != '\0'))
		o++;
	if (!o->name)
		pd_bug("%s: no option is called --%.*s", command->name, (int)word, name);
	named_p->option = o;
	if (word < length) {
		named_p->value = name + word + 1;
		named_p->length = length - word - 1;
	}
	return true;
}

/* Returns the value of an option that is one of a few, or text; NULL: it has none. */
static const char *value_of(const struct pd_opt *o)
{
	int n = o->kind == PD_OPT_CHOICE ? *(const int *)o->value : -1;

	return n >= 0 ? o->choices[n] : o->kind == PD_OPT_STRING ? *(const char **)o->value : NULL;
}

static bool is_there(const struct pd_command *command, const bool *given, const struct pd_opt *o)
{
	return given[o - command->options] && (!o->counts || o->counts());
}

/* A value counts where it is the default, too. */
static bool is_named_there(const struct pd_command *command, const bool *given,
			   const struct named *named)
{
	const char *value = value_of(named->option);

	if (!named->value)
		return is_there(command, given, named->option);
	return value && strncmp(value, named->value, named->length) == 0 && value[named->length] == '\0';
}

/* Returns "--lr-schedule=step" or "--tensor or --sharded"; free() it. */
static char *list_names(const struct pd_command *command, const char *names, const char *last,
			bool argument)
{
	const struct pd_opt *before = NULL;
	char *text = pd_strdup("");
	struct named named;

	while (take_named(command, &names, &named)) {
		const struct pd_opt *o = named.option;
		const char *between = !before ? "" : names[strspn(names, " ")] ? ", " : last;
		bool same = o == before && named.value;
		const char *value = named.value ? named.value : argument && o->argument ? o->argument : "";
		int length = named.value ? (int)named.length : (int)strlen(value);
		char *longer = pd_format("%s%s%s%s%s%.*s", text, between, same ? "" : "--", same ? "" : o->name,
					 same || length == 0 ? "" : "=", length, value);

		free(text);
		text = longer;
		before = o;
	}
	return text;
}

/* Returns "--name", with its value where only some count; free() it. */
static char *show_option(const struct pd_opt *o)
{
	const char *value = o->counts ? value_of(o) : NULL;

	return pd_format("--%s%s%.60s", o->name, value ? "=" : "", value ? value : "");
}

/* Each returns what is wrong with an option that is there, or NULL; free() it. */
static char *find_needed(const struct pd_command *command, const bool *given,
			 const struct pd_opt *o)
{
	const char *names = o->needs;
	char *list, *shown, *wrong;
	struct named named;

	while (take_named(command, &names, &named))
		if (is_named_there(command, given, &named))
			return NULL;
	list = list_names(command, o->needs, " or ", true);
	shown = show_option(o);
	wrong = pd_format("%s needs %s", shown, list);
	free(shown);
	free(list);
	return wrong;
}

static char *find_excluded(const struct pd_command *command, const bool *given,
			   const struct pd_opt *o)
{
	const char *names = o->excludes;
	char *shown, *wrong;
	struct named named;

	while (take_named(command, &names, &named))
		if (is_named_there(command, given, &named))
			break;
	if (!named.option)
		return NULL;
	shown = show_option(o);
	wrong = pd_format("%s and --%s%s%.*s exclude each other", shown, named.option->name,
			  named.value ? "=" : "", (int)named.length,
			  named.value ? named.value : "");
	free(shown);
	return wrong;
}

static bool is_in(const struct pd_command *command, const char *names, const struct pd_opt *o)
{
	struct named named;

	while (take_named(command, &names, &named))
		if (named.option == o)
			return true;
	return false;
}

static char *find_idle(const struct pd_command *command, const bool *given, const struct pd_opt *o)
{
	for (const struct pd_opt *other = command->options; other->name; other++)
		if (given[other - command->options] && other != o && !is_in(command, o->alone, other)) {
			char *shown = show_option(o);
			char *wrong = pd_format("--%s does nothing with %s", other->name, shown);

			free(shown);
			return wrong;
		}
	return NULL;
}

int pd_opt_check_needs(const struct pd_command *command, const bool *given, struct pd_error *err)
{
	for (const struct pd_opt *o = command->options; o->name; o++) {
		char *wrong = NULL;

		if (!is_there(command, given, o))
			continue;
		if (o->alone)
			wrong = find_idle(command, given, o);
		if (!wrong && o->excludes)
			wrong = find_excluded(command, given, o);
		if (!wrong && o->needs)
			wrong = find_needed(command, given, o);
		if (wrong) {
			pd_error_input(err, "%s%s%s", wrong, o->why ? ": " : "", o->why ? o->why : "");
			free(wrong);
			return -1;
		}
	}
	return 0;
}

/* Adds what a column asks, in words; frees text. */
static char *add_column(const struct pd_command *command, char *text, const char *words,
			const char *names, const char *last)
{
	char *list, *longer;

	if (!names)
		return text;
	list = list_names(command, names, last, false);
	longer = pd_format("%s; %s %s", text, words, list);
	free(list);
	free(text);
	return longer;
}

char *pd_opt_needs_text(const struct pd_command *command, const struct pd_opt *o)
{
	char *text = pd_strdup(""), *of_which;

	text = add_column(command, text, "needs", o->needs, " or ");
	text = add_column(command, text, "not with", o->excludes, " or ");
	text = add_column(command, text, "only with", o->alone, " and ");
	if (!o->which)
		return text;
	of_which = pd_format("; %s:%s", o->which, text + 1);
	free(text);
	return of_which;
}
