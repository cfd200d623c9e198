/* SPDX-License-Identifier: Apache-2.0 */
/* bash completion of a program's options, from the table that parses them. */
#include "base/opt.h"

#include <stdio.h>
#include <string.h>

/* Returns the options of compgen that complete the argument of an option; "" if nothing does. */
static const char *candidates(const struct pd_opt *o)
{
	if (strcmp(o->argument, "DIR") == 0)
		return "-d";
	return strstr(o->argument, "FILE") || strcmp(o->argument, "OTHER") == 0 ? "-f" : "";
}

static void print_case(const struct pd_opt *o)
{
	printf("\t--%s", o->name);
	if (o->letter)
		printf(" | -%c", o->letter);
	fputs(") ", stdout);
	if (o->kind == PD_OPT_CHOICE) {
		fputs("set -- -W \"", stdout);
		for (int i = 0; o->choices[i]; i++)
			printf("%s%s", i ? " " : "", o->choices[i]);
		fputs("\" ;;\n", stdout);
	} else {
		printf("set -- %s ;;\n", *candidates(o) ? candidates(o) : "none");
	}
}

void pd_command_completion(const struct pd_command *command)
{
	/* A function's name has no hyphen. */
	char function[32];
	size_t n = 0;

	for (const char *c = command->name; *c && n + 1 < sizeof(function); c++)
		function[n++] = *c == '-' ? '_' : *c;
	function[n] = '\0';
	/* bash splits --name=value into three words. */
	printf("# bash completion of %s, made by the program itself\n_%s()\n{\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	       "\tif [[ $cur == = ]]; then\n\t\tcur=\n\telif [[ $prev == = ]]; then\n"
	       "\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
	       "\tset -- -f\n\tcase $prev in\n", command->name, function);
	for (const struct pd_opt *o = command->options; o->name; o++)
		if (o->kind != PD_OPT_FLAG && o->kind != PD_OPT_TITLE && !o->otherwise)
			print_case(o);
	fputs("\t*) [[ $cur != -* ]] || set -- -W \"", stdout);
	for (const struct pd_opt *o = command->options; o->name; o++)
		if (o->kind != PD_OPT_TITLE)
			printf("--%s%s ", o->name, o->kind == PD_OPT_FLAG || o->otherwise ? "" : "=");
	printf("--help --version\" ;;\n\tesac\n"
	       "\tCOMPREPLY=()\n\t[[ $1 != none ]] || return 0\n"
	       "\tmapfile -t COMPREPLY < <(compgen \"$@\" -- \"$cur\")\n"
	       "\t[[ $1 == -W ]] || compopt -o filenames 2>/dev/null\n"
	       "\t[[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || "
	       "compopt -o nospace 2>/dev/null\n\treturn 0\n}\n"
	       "complete -F _%s %s\n", function, command->name);
}
