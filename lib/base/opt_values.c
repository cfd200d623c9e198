/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/names.h"
#include "base/opt_needs.h"

#include <stdlib.h>
#include <string.h>

struct pd_opt_values {
	const struct pd_command *command;
	int count;
	union pd_opt_value {
		bool flag;
		const char *text;
		int64_t number;
		double real;
		int choice;
	} *values;
	bool *given;
};

static size_t value_size(const struct pd_opt *o)
{
	static const size_t sizes[] = {
		[PD_OPT_FLAG] = sizeof(bool), [PD_OPT_STRING] = sizeof(const char *),
		[PD_OPT_COUNT] = sizeof(int64_t), [PD_OPT_BYTES] = sizeof(int64_t),
		[PD_OPT_REAL] = sizeof(double), [PD_OPT_CHOICE] = sizeof(int), [PD_OPT_TITLE] = 0
	};

	return sizes[o->kind];
}

struct pd_opt_values *pd_opt_values_new(const struct pd_command *command)
{
	struct pd_opt_values *values = pd_zalloc(sizeof(*values));

	values->command = command;
	while (command->options[values->count].name)
		values->count++;
	values->values = pd_calloc((size_t)values->count, sizeof(*values->values));
	values->given = pd_calloc((size_t)values->count, sizeof(*values->given));
	for (int i = 0; i < values->count; i++) {
		const struct pd_opt *o = &command->options[i];

		if (value_size(o) > 0)
			memcpy(&values->values[i], o->value, value_size(o));
	}
	return values;
}

void pd_opt_values_restore(struct pd_opt_values *values)
{
	for (int i = 0; i < values->count; i++) {
		const struct pd_opt *o = &values->command->options[i];

		if (value_size(o) > 0)
			memcpy(o->value, &values->values[i], value_size(o));
		values->given[i] = false;
	}
}

int pd_opt_values_set(struct pd_opt_values *values, const char *name, const char *text,
		      struct pd_error *err)
{
	struct pd_likeness likeness = { .word = name };
	char meant[PD_MEANT_TEXT];

	for (int i = 0; i < values->count; i++) {
		const struct pd_opt *o = &values->command->options[i];

		if (o->kind == PD_OPT_TITLE)
			continue;
		pd_likeness_try(&likeness, o->name);
		if (strcmp(o->name, name) != 0)
			continue;
		if (!text && o->kind != PD_OPT_FLAG && !o->otherwise)
			return pd_error_input(err, "\"%s\": expected a value", name);
		if (text && o->kind == PD_OPT_FLAG)
			return pd_error_input(err, "\"%s\": expected true or false", name);
		values->given[i] = true;
		return pd_opt_store(o, text, err) < 0 ? pd_error_prefix(err, "\"%s\"", name) : 0;
	}
	return pd_error_input(err, "unknown key \"%.60s\"%s", name, pd_likeness_say(&likeness, meant));
}

int pd_opt_values_check(const struct pd_opt_values *values, struct pd_error *err)
{
	return pd_opt_check_needs(values->command, values->given, err);
}

void pd_opt_values_free(struct pd_opt_values *values)
{
	free(values->values);
	free(values->given);
	free(values);
}
