/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include "base/mem.h"
#include "base/names.h"
#include "base/opt_needs.h"
#include "base/program.h"
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPT_HELP = 0x1000, OPT_VERSION, OPT_FIRST };

/* Returns no_argument, required_argument or optional_argument. */
static int has_argument(const struct pd_opt *o)
{
	return o->kind == PD_OPT_FLAG ? no_argument : o->otherwise ? optional_argument
								     : required_argument;
}

#define HELP_COLUMN 34
#define HELP_BYTES 32768
#define HELP_END 80

/* Prints words from the column of help on, in as many lines as they take; `at` columns are taken. */
static void print_words(const char *text, size_t at)
{
	if (at + 2 > HELP_COLUMN)
		printf("\n%*s", HELP_COLUMN, "");
	at = HELP_COLUMN;
	while (*text) {
		size_t length = strcspn(text, " ");

		if (at > HELP_COLUMN && at + 1 + length > HELP_END) {
			printf("\n%*s", HELP_COLUMN, "");
			at = HELP_COLUMN;
		}
		at += (size_t)printf("%s%.*s", at > HELP_COLUMN ? " " : "", (int)length, text);
		text += length + strspn(text + length, " ");
	}
	putchar('\n');
}

static void help(const struct pd_command *command)
{
	static const char *const before[] = { "", "=", "[=" }, *const after[] = { "", "", "]" };
	static char page[HELP_BYTES];

	/* All is written at the end, whose failure says why. */
	setvbuf(stdout, page, _IOFBF, sizeof(page));
	printf("Usage: %s %s\n%s\n\n", command->name, command->synopsis, command->summary);
	for (const struct pd_opt *o = command->options; o->name; o++) {
		char left[80], *needs, *text;
		int has = has_argument(o);

		if (o->kind == PD_OPT_TITLE) {
			printf("%s%s:\n", o == command->options ? "" : "\n", o->help);
			continue;
		}
		snprintf(left, sizeof(left), "  %s%c%s --%s%s%s%s", o->letter ? "-" : " ",
			 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
			 before[has], has == no_argument ? "" : o->argument, after[has]);
		printf("%-*s", HELP_COLUMN, left);
		needs = pd_opt_needs_text(command, o);
		text = pd_format("%s%s", o->help, needs);
		print_words(text, strlen(left));
		free(needs);
		free(text);
	}
	if (command->options[0].kind == PD_OPT_TITLE)
		puts("\nHelp:");
	printf("  -h, --help                      show this help and exit\n"
	       "      --version                   show the version and exit\n\n"
	       "Exit status: 0 yes; 1 the answer is no; 2 usage or bad input; 3 the run failed.\n"
	       "Full documentation: man %s\n", command->name);
}

int pd_opt_store(const struct pd_opt *o, const char *text, struct pd_error *err)
{
	double max = o->max == 0 && o->min == 0 ? 1e15 : o->max;
	int64_t most = o->max == 0 && o->min == 0 ? INT64_MAX : (int64_t)o->max;

	if (!text)
		text = o->otherwise;
	switch (o->kind) {
	case PD_OPT_FLAG:
		*(bool *)o->value = true;
		return 0;
	case PD_OPT_STRING:
		*(const char **)o->value = text;
		return 0;
	case PD_OPT_COUNT:
		return pd_parse_count(text, (int64_t)o->min, most, o->value, err);
	case PD_OPT_BYTES:
		if (pd_parse_bytes(text, o->value, err) < 0)
			return -1;
		return *(int64_t *)o->value >= (int64_t)o->min ? 0 :
			pd_error_input(err, "expected at least %lld bytes, found \"%.60s\"",
				       (long long)o->min, text);
	case PD_OPT_REAL:
		return pd_parse_real(text, o->min, max, o->value, err);
	case PD_OPT_CHOICE:
		for (int a = 0; o->aliases && o->aliases[a][0]; a++) {
			const char *ours = o->aliases[a][1];

			if (strcmp(text, o->aliases[a][0]) != 0)
				continue;
			if (*ours == '!')
				return pd_error_input(err, "\"%s\": %s", text, ours + 1);
			text = ours;
			break;
		}
		*(int *)o->value = pd_names_find(o->choices, text, err);
		return *(int *)o->value < 0 ? -1 : 0;
	case PD_OPT_TITLE:
		break;
	}
	pd_bug("option --%s: kind %d", o->name, (int)o->kind);
}

static __attribute__((format(printf, 2, 3), noreturn))
void usage_error(const struct pd_command *command, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", command->name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, " (try --help)\n");
	exit(PD_EXIT_USAGE);
}

#define BARE 64         /* longer than any option's name */

/* Writes the beginning of the name in -name, --name or --name=value; returns it. */
static const char *bare(const char *word, char name[BARE])
{
	word += strspn(word, "-");
	snprintf(name, BARE, "%.*s", (int)strcspn(word, "="), word);
	return name;
}

/* Refuses an option that is one of another program, or has another name here. */
static void check_elsewhere(const struct pd_command *command, const char *word)
{
	char room[BARE];
	const char *name = bare(word, room);

	for (const char *const (*other)[2] = command->elsewhere; other && (*other)[0]; other++)
		if (strcmp(name, (*other)[0]) == 0)
			usage_error(command, (*other)[1][0] == '-' ? "unknown option %s; did you mean %s?" :
				    "unknown option %s: it is one of %s", word, (*other)[1]);
}

/* Refuses an option that is in no table, or whose beginning is that of several. */
static __attribute__((noreturn))
void unknown_option(const struct pd_command *command, const struct option *table, const char *word)
{
	char room[BARE], several[256] = "", meant[PD_MEANT_TEXT] = "";
	const char *name = bare(word, room);
	struct pd_likeness likeness = { .word = name };

	check_elsewhere(command, word);
	for (; table->name; table++) {
		pd_likeness_try(&likeness, table->name);
		if (strncmp(word, "--", 2) == 0 && strncmp(table->name, name, strlen(name)) == 0)
			snprintf(several + strlen(several), sizeof(several) - strlen(several), "%s--%s",
				 *several ? ", " : "", table->name);
	}
	if (*several)
		usage_error(command, "ambiguous option %s: expected one of %s", word, several);
	if (strcmp(name, "o") == 0 || strncmp(name, "out", 3) == 0)
		usage_error(command, "unknown option %s: the result goes to standard output, as in \"%s ... "
			    ">FILE\"", word, command->name);
	if (likeness.name)
		snprintf(meant, sizeof(meant), "; did you mean --%s?", likeness.name);
	usage_error(command, "unknown option %s%s", word, meant);
}

/* Refuses -name or -name=value where --name was meant: they would be taken for a row of letters. */
static void check_hyphens(const struct pd_command *command, const struct option *table, int argc,
			  char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		char room[BARE];
		const char *name = bare(argv[i], room);

		if (strncmp(argv[i], "--", 2) == 0)     /* it may be the beginning of one that is here */
			check_elsewhere(command, argv[i]);
		for (const struct option *o = table; o->name && argv[i][0] == '-' && argv[i][1] != '-' &&
		     strlen(name) > 1; o++)
			if (strcmp(o->name, name) == 0)
				usage_error(command, "unknown option %s; did you mean -%s?", argv[i],
					    argv[i]);
	}
}

/* What getopt_long() is asked with. */
struct getopt_table {
	struct option *names;   /* of option i: .val = OPT_FIRST + i */
	char *letters;
	bool *given;            /* for each of the options */
};

static struct getopt_table getopt_table_new(const struct pd_command *command)
{
	size_t n = 0, used = 0, names = 0;
	struct getopt_table table;

	while (command->options[n].name)
		n++;
	table.names = pd_calloc(n + 3, sizeof(*table.names));
	table.letters = pd_zalloc(n * 2 + 3);
	table.given = pd_calloc(n + 1, sizeof(*table.given));
	table.letters[used++] = ':';
	table.letters[used++] = 'h';
	for (size_t i = 0; i < n; i++) {
		const struct pd_opt *o = &command->options[i];

		if (o->kind == PD_OPT_TITLE)
			continue;
		table.names[names++] = (struct option){ o->name, has_argument(o), NULL, OPT_FIRST + (int)i };
		if (o->letter) {
			table.letters[used++] = o->letter;
			if (has_argument(o) == required_argument)
				table.letters[used++] = ':';
		}
	}
	table.names[names++] = (struct option){ "help", no_argument, NULL, OPT_HELP };
	table.names[names] = (struct option){ "version", no_argument, NULL, OPT_VERSION };
	return table;
}

/* Takes one option that getopt_long() found; returns its number in the table.  Those that only
 * print end here. */
static int take_option(const struct pd_command *command, const struct getopt_table *table, int c,
		       char **argv)
{
	struct pd_error err;
	int i = c - OPT_FIRST;

	if (c == OPT_HELP || c == 'h') {
		help(command);
		exit(pd_command_end(PD_EXIT_YES));
	}
	if (c == OPT_VERSION) {
		printf("%s (%s) %s\n", command->name, PACKAGE_NAME, PACKAGE_VERSION);
		exit(pd_command_end(PD_EXIT_YES));
	}
	if (c == ':')
		usage_error(command, "option %s needs an argument", argv[optind - 1]);
	if (c == '?' && optopt >= OPT_HELP)
		usage_error(command, "option %s takes no value", argv[optind - 1]);
	if (c == '?')
		unknown_option(command, table->names, argv[optind - 1]);
	if (c < OPT_FIRST)
		for (i = 0; command->options[i].letter != c; i++)
			;
	if (pd_opt_store(&command->options[i], optarg, &err) < 0) {
		fprintf(stderr, "%s: --%s: %s\n", command->name, command->options[i].name, err.text);
		exit(PD_EXIT_USAGE);
	}
	return i;
}

/* Takes all options, and refuses those that do not go together. */
static void take_options(const struct pd_command *command, int argc, char **argv)
{
	struct getopt_table table = getopt_table_new(command);
	struct pd_error err;
	int c;

	check_hyphens(command, table.names, argc, argv);
	opterr = 0;
	while ((c = getopt_long(argc, argv, table.letters, table.names, NULL)) != -1)
		table.given[take_option(command, &table, c, argv)] = true;
	if (pd_opt_check_needs(command, table.given, &err) < 0)
		exit(pd_command_fail(&err));
	free(table.given);
	free(table.names);
	free(table.letters);
}

/* Refuses operands that are too many, or that cannot be opened; the first is argv[first]. */
static void check_operands(const struct pd_command *command, int argc, char **argv, int first)
{
	struct pd_error err;

	/* the operand before may have been meant as the value of an option that takes =VALUE */
	if (argc - first > command->max_operands && command->max_operands == 1)
		usage_error(command, "unexpected operand \"%s\" behind \"%s\"", argv[first + 1], argv[first]);
	if (argc - first > command->max_operands)
		usage_error(command, "unexpected operand \"%s\"", argv[first + command->max_operands]);
	for (int i = first; i < argc && command->files; i++)
		if (strcmp(argv[i], "-") != 0 && access(argv[i], F_OK) != 0) {
			pd_error_input(&err, "%s: cannot open: %s", *argv[i] ? argv[i] : "\"\"",
				       strerror(errno));
			exit(pd_command_fail(&err));
		}
}

int pd_command_parse(const struct pd_command *command, int argc, char **argv)
{
	pd_program_begin(command->name);
	if (argc == 2 && strcmp(argv[1], "--completion") == 0) {
		pd_command_completion(command);
		exit(pd_command_end(PD_EXIT_YES));
	}
	take_options(command, argc, argv);
	check_operands(command, argc, argv, optind);
	return optind;
}

const char *pd_operand(int argc, char **argv, int first, int n)
{
	return first + n < argc ? argv[first + n] : NULL;
}

int pd_output_check(struct pd_error *err)
{
	/* An empty write fails only on an output that can never be written, not on a pipe. */
	if (write(STDOUT_FILENO, "", 0) < 0 && errno != EAGAIN && errno != EINTR)
		return pd_error_failed(err, "standard output: cannot write: %s", strerror(errno));
	return 0;
}

int pd_command_end(enum pd_exit status)
{
	bool bad = ferror(stdout);

	errno = 0;
	if (fflush(stdout) != 0 || bad) {
		/* A reader that closed its pipe has seen enough; this is no failure. */
		if (errno == 0)         /* the cause of an earlier failure is not known any more */
			pd_say("standard output: not everything could be written");
		else if (errno != EPIPE)
			pd_say("standard output: cannot write: %s", strerror(errno));
		return PD_EXIT_FAILED;
	}
	return (int)status;
}

int pd_command_end_by(int number)
{
	sigset_t set;

	fflush(stdout);
	sigemptyset(&set);
	sigaddset(&set, number);
	signal(number, SIG_DFL);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return 128 + number;
}

int pd_command_fail(const struct pd_error *err)
{
	int status;

	fflush(stdout);
	pd_say("%s", err->text);
	status = err->status;
	return status ? status : PD_EXIT_FAILED;
}
