/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a program: one table of options serves getopt_long, --help and
 * the test that compares both with the manual page.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum pd_opt_kind {
	PD_OPT_FLAG,            /* bool * */
	PD_OPT_STRING,          /* const char ** */
	PD_OPT_COUNT,           /* int64_t *; min to max */
	PD_OPT_BYTES,           /* int64_t *; 16GB, 12MiB, 4096; min or more */
	PD_OPT_REAL,            /* double *; finite, min to max */
	PD_OPT_CHOICE,          /* int *; index into choices */
	PD_OPT_TITLE,           /* no option: the title of the group of those behind it, for --help */
};

#define PD_OPT_GROUP(title) { "", 0, PD_OPT_TITLE, NULL, title, NULL }

struct pd_opt {
	const char *name;               /* long name; NULL ends the table */
	char letter;                    /* short name, or 0 */
	enum pd_opt_kind kind;
	const char *argument;           /* name of the argument in --help, such as "N" */
	const char *help;               /* one line */
	void *value;                    /* pointer to the variable; type by kind */
	double min, max;                /* COUNT, REAL, BYTES; both 0: any non-negative */
	const char *const *choices;     /* CHOICE: NULL-terminated names */
	/*
	 * What others call some of them: pairs of their name and ours; with "!" in front, of what is
	 * not had, and what to do instead.  NULL: nothing.
	 */
	const char *const (*aliases)[2];
	const char *otherwise;          /* the value if there is no argument, or NULL; the letter then
					   takes none */
	/*
	 * What it asks of the others, checked once all are read.  Names of options, such as "data
	 * init"; with a value, such as "format=svg", of one that has this value, if only by
	 * default.  NULL: nothing.
	 */
	const char *needs;              /* one of these has to be there */
	const char *excludes;           /* none of these may be there */
	const char *alone;              /* no options but these may be there */
	const char *why;                /* said behind such a refusal, or NULL */
	bool (*counts)(void); /* NULL, or tells whether the value asks for this, and is what others
				 need */
	const char *which;              /* of such values, for --help */
};

struct pd_command {
	const char *name;               /* such as pd-plan */
	const char *synopsis;           /* such as "[OPTION]... [profile.json]" */
	const char *summary;            /* one line */
	const struct pd_opt *options;
	int max_operands;
	/* Options that are looked for here: NAME, and the program that has it, or what it is called here. */
	const char *const (*elsewhere)[2];
	bool files;                     /* operands are files to read, which have to be there, or "-" */
};

/*
 * Parses; prints --help or --version and exits 0 for those (the one place where
 * library code exits, called from main alone); on a usage error prints one line and
 * exits 2.  Returns the index of the first operand.  Does pd_program_begin() first.
 */
int pd_command_parse(const struct pd_command *command, int argc, char **argv);

/* What the options of a command have, so that one process can be asked several times. */
struct pd_opt_values;
struct pd_opt_values *pd_opt_values_new(const struct pd_command *command);
/* Has the options be as they were then; none is given. */
void pd_opt_values_restore(struct pd_opt_values *values);
/* Sets an option by its long name; text NULL: it has no value. */
int pd_opt_values_set(struct pd_opt_values *values, const char *name, const char *text,
		      struct pd_error *err);
/* Checks what the options that were set need of each other. */
int pd_opt_values_check(const struct pd_opt_values *values, struct pd_error *err);
void pd_opt_values_free(struct pd_opt_values *values);

/*
 * Prints the bash completion of the command line, which the build installs.  A program does this if
 * its whole command line is "PROGRAM --completion", which is not in the table of options.
 */
void pd_command_completion(const struct pd_command *command);

/* Returns operand n, or NULL for standard input. */
const char *pd_operand(int argc, char **argv, int first, int n);

/* Checks before any work that standard output can be written to. */
int pd_output_check(struct pd_error *err);
/* The end of main: flushes and checks standard output; returns the exit status. */
int pd_command_end(enum pd_exit status);
/*
 * Ends main() after a signal was handled in order.  The process ends by that signal, so that a
 * shell does not continue.  If no signal can end this process, as for the first one of a container,
 * it returns the exit status that a shell would use.
 */
int pd_command_end_by(int number);
/* Prints the error, and ends like pd_command_end with its status. */
int pd_command_fail(const struct pd_error *err);

/* These parse numbers with units.  They return 0, or -1 with *err saying what was expected. */
int pd_parse_count(const char *text, int64_t min, int64_t max, int64_t *out_p,
		   struct pd_error *err);
int pd_parse_real(const char *text, double min, double max, double *out_p, struct pd_error *err);
/* Parses 1500, 16GB or 12MiB (kB = 1000, KiB = 1024). */
int pd_parse_bytes(const char *text, int64_t *out_p, struct pd_error *err);
/* Parses 12GB/s, 10Gbit/s or 800MiB/s into bytes per second. */
int pd_parse_rate(const char *text, int64_t *out_p, struct pd_error *err);
/* Parses 30us, 1.5ms, 200ns or 2s into ns. */
int pd_parse_time(const char *text, int64_t *out_p, struct pd_error *err);

/* These write "12.3 MB", "4.56 ms" or "1.25 GB/s" into buf (at least 32 bytes) and return it. */
const char *pd_show_bytes(int64_t bytes, char *buf);
const char *pd_show_time(int64_t ns, char *buf);
const char *pd_show_rate(int64_t bytes_per_s, char *buf);
