/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sentence about what went wrong, and whose fault it was.
 *
 * A library function that can fail takes a struct pd_error * and returns -1 or
 * NULL after filling it.  The first function that knows the reason writes the
 * sentence: place, what was found, what was expected.  Callers pass it up unchanged.
 * Programs print it once and exit with its status.
 *
 * An error carries its cause beside its sentence: a rank's own or another rank's, and then which.
 * A transport says so where it has lost a peer; a gate keeps it, and pd_gate_failed() passes it
 * on.  The supervisor asks the rank that is blamed first (run/supervisor/failure.c); nobody reads
 * sentences but people.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

enum pd_exit {
	PD_EXIT_YES = 0,
	PD_EXIT_NO = 1,         /* it ran, and the answer is no */
	PD_EXIT_USAGE = 2,      /* usage or bad input */
	PD_EXIT_FAILED = 3,     /* the run itself failed */
};

enum pd_cause {
	PD_CAUSE_OWN,           /* what the sentence says has happened here */
	PD_CAUSE_PEER,          /* another rank is lost, or what it takes part in failed */
};

struct pd_error {
	enum pd_exit status;
	enum pd_cause cause;
	int peer;               /* PD_CAUSE_PEER: that rank */
	char text[512];         /* a longer sentence loses its middle */
};

/* Each of these fills *err (unless err is NULL) and returns -1. */
int pd_error_input(struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int pd_error_no(struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int pd_error_failed(struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The run failed, and the cause is to be looked for at another rank. */
int pd_error_peer(struct pd_error *err, int peer, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the sentence and returns -1. */
int pd_error_prefix(struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Appends a name to a list for a message, between two of `quote` and behind a comma unless it is the first.
 * What does not fit into `room` bytes is left out.
 */
void pd_list_name(char *list, size_t room, const char *name, const char *quote);

/* Programs write one line such as "pd-plan: ..." to standard error. */
extern const char *pd_program;
void pd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Reports a bug in the program itself and aborts. */
void pd_bug(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
