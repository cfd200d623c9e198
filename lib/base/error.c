/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *pd_program = "pd";

/* One line whatever the names and the documents in it contain. */
static void make_one_line(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
}

static void fill(struct pd_error *err, enum pd_exit status, const char *fmt, va_list ap)
{
	if (!err)
		return;
	err->status = status;
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
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

int pd_error_prefix(struct pd_error *err, const char *fmt, ...)
{
	char prefix[256], text[sizeof(err->text)];
	va_list ap;

	if (!err)
		return -1;
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix), fmt, ap);
	va_end(ap);
	memcpy(text, err->text, sizeof(text));
	snprintf(err->text, sizeof(err->text), "%s: %.*s", prefix,
		 (int)(sizeof(err->text) - strlen(prefix) - 3), text);
	make_one_line(err->text);
	return -1;
}

static void say(const char *what, const char *fmt, va_list ap)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "%s: %s", pd_program, what);

	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	strcat(line, "\n");
	/* one write, so that lines of several processes do not mix */
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
