/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a program: one table of options serves getopt_long, --help and
 * the test that compares both with the manual page.
 */
#ifndef PD_BASE_OPT_H
#define PD_BASE_OPT_H

#include "base/error.h"

#include <stdint.h>

enum pd_opt_kind {
	PD_OPT_FLAG,            /* bool * */
	PD_OPT_STRING,          /* const char ** */
	PD_OPT_COUNT,           /* int64_t *; min to max */
	PD_OPT_BYTES,           /* int64_t *; 16GB, 12MiB, 4096; min or more */
	PD_OPT_REAL,            /* double *; finite, min to max */
	PD_OPT_CHOICE,          /* int *; index into choices */
};

struct pd_opt {
	const char *name;               /* long name; NULL ends the table */
	char letter;                    /* or 0 */
	enum pd_opt_kind kind;
	const char *argument;           /* how --help calls it, such as "N" */
	const char *help;               /* one line */
	void *value;                    /* where it goes, by kind */
	double min, max;                /* COUNT, REAL, BYTES; both 0: any non-negative */
	const char *const *choices;     /* CHOICE: NULL-terminated names */
	const char *otherwise;          /* STRING: its value where it has no argument; or NULL.  The
					   letter then takes none */
};

struct pd_command {
	const char *name;               /* pd-plan */
	const char *synopsis;           /* "[OPTION]... [profile.json]" */
	const char *summary;            /* one line */
	const struct pd_opt *options;
	int max_operands;
};

/*
 * Parses; prints --help or --version and exits 0 for those (the one place where
 * library code exits, called from main alone); on a usage error prints one line and
 * exits 2.  Returns the index of the first operand.  Does pd_program_begin() first.
 */
int pd_command_parse(const struct pd_command *command, int argc, char **argv);

/* Prints what makes bash complete the command line; what the build installs.  The whole command line
 * "PROGRAM --completion" is that, and no option. */
void pd_command_completion(const struct pd_command *command);

/* Operand n, or NULL (standard input). */
const char *pd_operand(int argc, char **argv, int first, int n);

/* Before any work: can standard output be written to at all? */
int pd_output_check(struct pd_error *err);
/* The end of main: flushes and checks standard output; returns the exit status. */
int pd_command_end(enum pd_exit status);
/*
 * The end of main after a signal was answered in order: ends by that signal, so that a shell knows
 * that what follows is not wanted either.  Returns what a shell would make of it where no signal
 * ends this process, the first of a container.
 */
int pd_command_end_by(int number);
/* Prints the error; the same as pd_command_end with its status. */
int pd_command_fail(const struct pd_error *err);

/* One parser each for numbers with units.  0, or -1 with *err saying what was expected. */
int pd_parse_count(const char *text, int64_t min, int64_t max, int64_t *out_p,
		   struct pd_error *err);
int pd_parse_real(const char *text, double min, double max, double *out_p, struct pd_error *err);
/* 1500, 16GB, 12MiB (kB = 1000, KiB = 1024) */
int pd_parse_bytes(const char *text, int64_t *out_p, struct pd_error *err);
/* 12GB/s, 10Gbit/s, 800MiB/s -> bytes per second */
int pd_parse_rate(const char *text, int64_t *out_p, struct pd_error *err);
/* 30us, 1.5ms, 200ns, 2s -> ns */
int pd_parse_time(const char *text, int64_t *out_p, struct pd_error *err);

/* For people: "12.3 MB", "4.56 ms", "1.25 GB/s"; into buf (at least 32 bytes), returned. */
const char *pd_show_bytes(int64_t bytes, char *buf);
const char *pd_show_time(int64_t ns, char *buf);
const char *pd_show_rate(int64_t bytes_per_s, char *buf);

#endif
