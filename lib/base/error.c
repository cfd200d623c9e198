/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void pd_list_name(char *list, size_t room, const char *name, const char *quote)
{
	size_t used = strlen(list);

	snprintf(list + used, room - used, "%s%s%s%s", used ? ", " : "", quote, name, quote);
}

const char *pd_program = "pd";

/* Makes the text one line, whatever names and documents it contains. */
static void make_one_line(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
}

static bool is_continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/*
 * Copies a sentence, less its middle where there is no room for all of it: a file's name stands at
 * its beginning, what is wrong at its end, and either may be long.
 */
static void fit(char *to, size_t size, const char *text)
{
	static const char gap[] = " ... ";
	size_t length = strlen(text), head = length, tail = 0;

	if (length >= size) {
		tail = (size - sizeof(gap)) / 2;
		head = size - sizeof(gap) - tail;
		/* A character of several bytes is kept or left out as a whole. */
		while (head > 0 && is_continuation(text[head]))
			head--;
		while (tail > 0 && is_continuation(text[length - tail]))
			tail--;
	}
	memcpy(to, text, head);
	to[head] = '\0';
	if (head < length) {
		strcat(to, gap);
		strcat(to, text + length - tail);
	}
}

static void print(char *to, size_t size, const char *fmt, va_list ap)
{
	va_list again;
	char *text;

	va_copy(again, ap);
	if (vasprintf(&text, fmt, ap) >= 0) {
		fit(to, size, text);
		free(text);
	} else {
		vsnprintf(to, size, fmt, again);
	}
	va_end(again);
}

static void fill(struct pd_error *err, enum pd_exit status, const char *fmt, va_list ap)
{
	if (!err)
		return;
	err->status = status;
	err->cause = PD_CAUSE_OWN;
	err->peer = -1;
	print(err->text, sizeof(err->text), fmt, ap);
	make_one_line(err->text);
}

#define DEFINE(name, status_) \
	int name(struct pd_error *err, const char *fmt, ...) \
	{ \
		va_list ap; \
		va_start(ap, fmt); \
		fill(err, status_, fmt, ap); \
		va_end(ap); \
		return -1; \
	}
DEFINE(pd_error_input, PD_EXIT_USAGE)
DEFINE(pd_error_no, PD_EXIT_NO)
DEFINE(pd_error_failed, PD_EXIT_FAILED)
#undef DEFINE

int pd_error_peer(struct pd_error *err, int peer, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	fill(err, PD_EXIT_FAILED, fmt, ap);
	va_end(ap);
	err->cause = PD_CAUSE_PEER;
	err->peer = peer;
	return -1;
}

int pd_error_prefix(struct pd_error *err, const char *fmt, ...)
{
	char prefix[sizeof(err->text)], both[2 * sizeof(err->text) + 2];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	print(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	snprintf(both, sizeof(both), "%s: %s", prefix, err->text);
	fit(err->text, sizeof(err->text), both);
	make_one_line(err->text);
	return -1;
}

static void say(const char *what, const char *fmt, va_list ap)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "%s: %s", pd_program, what);

	print(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	make_one_line(line);
	strcat(line, "\n");
	/* One write keeps lines of several processes apart. */
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return;
}

void pd_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
}

void pd_bug(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("bug: ", fmt, ap);
	va_end(ap);
	abort();
}
