/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/scan.h"

#include "base/mem.h"
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

struct scan {
	FILE *in;
	const char *name;
	pd_kineto_take *take;
	void *to;
	struct pd_kineto_head *head;
	bool events;                    /* there is a list of them */
};

/* Microseconds become nanoseconds; a time that is none, or far off, is refused. */
static bool to_ns(json_t *value, int64_t *out_p)
{
	double us = json_is_number(value) ? json_number_value(value) : NAN;

	if (!(fabs(us) < (double)INT64_MAX / 4000))
		return false;
	*out_p = llround(us * 1000);
	return true;
}

int pd_kineto_times(json_t *event, const char *file, int64_t *start_p, int64_t *end_p, struct pd_error *err)
{
	const char *name = json_string_value(json_object_get(event, "name"));
	int64_t duration;

	if (!to_ns(json_object_get(event, "ts"), start_p) || !to_ns(json_object_get(event, "dur"), &duration) ||
	    duration < 0 || duration > PD_MAX_TIME_NS)
		return pd_error_input(err, "%s: event \"%.60s\": expected \"ts\" and \"dur\", microseconds",
				      file, name ? name : "");
	*end_p = *start_p + duration;
	return 0;
}

/* Returns the next character that is not blank. */
static int sign(FILE *in)
{
	int c;

	while ((c = getc(in)) == ' ' || c == '\n' || c == '\t' || c == '\r')
		;
	return c;
}

static int lacks(const struct scan *r, const char *what, struct pd_error *err)
{
	return pd_error_input(err, "%s: expected a trace of torch.profiler, found no %s in it", r->name, what);
}

static int read_events(struct scan *r, struct pd_error *err)
{
	int c = sign(r->in), status = 0;

	if (c == ']')
		return 0;
	ungetc(c, r->in);
	do {
		json_t *value = pd_json_load_stream(r->in, r->name, true, err);

		status = value ? r->take(r->to, value, err) : -1;
		json_decref(value);
		c = status == 0 ? sign(r->in) : EOF;
	} while (c == ',');
	return status < 0 || c == ']' ? status : lacks(r, "end of \"traceEvents\"", err);
}

/* Reads a string or a number into buf, without quotes; what does not fit is dropped. */
static void read_plain(FILE *in, int c, char *buf, size_t bytes)
{
	bool quoted = c == '"', escaped = false;
	size_t n = 0;

	for (c = quoted ? getc(in) : c; c != EOF; c = getc(in)) {
		if (quoted ? c == '"' && !escaped : c == ',' || c == '}')
			break;
		escaped = c == '\\' && !escaped;
		if (n + 1 < bytes)
			buf[n++] = (char)c;
	}
	buf[n] = '\0';
	if (!quoted)
		ungetc(c, in);
}

static int read_value(struct scan *r, const char *key, struct pd_error *err)
{
	int c = sign(r->in);
	char plain[32];
	json_t *value;

	if (c == '[' && strcmp(key, "traceEvents") == 0) {
		r->events = true;
		return read_events(r, err);
	}
	if (c != '{' && c != '[') {
		read_plain(r->in, c, plain, sizeof(plain));
		if (strcmp(key, "baseTimeNanoseconds") == 0)
			r->head->base_ns = pd_clamp(strtoll(plain, NULL, 10), 0, INT64_MAX / 4);
		return 0;
	}
	ungetc(c, r->in);
	value = pd_json_load_stream(r->in, r->name, true, err);
	if (value && strcmp(key, "distributedInfo") == 0 && json_is_integer(json_object_get(value, "rank")))
		r->head->rank = json_integer_value(json_object_get(value, "rank"));
	json_decref(value);
	return value ? 0 : -1;
}

static int read_members(struct scan *r, struct pd_error *err)
{
	char key[64];
	int c = sign(r->in);

	if (c != '{')
		return lacks(r, "JSON object", err);
	for (c = sign(r->in); c == '"'; c = sign(r->in)) {
		read_plain(r->in, c, key, sizeof(key));
		if (sign(r->in) != ':')
			return lacks(r, "\":\" behind a key", err);
		if (read_value(r, key, err) < 0)
			return -1;
		c = sign(r->in);
		if (c != ',')
			break;
	}
	if (c != '}')
		return lacks(r, "\"}\" at its end", err);
	return r->events ? 0 : lacks(r, "\"traceEvents\"", err);
}

static ssize_t read_packed(void *packed, char *buf, size_t bytes)
{
	return gzread(packed, buf, (unsigned)bytes);
}

static int close_packed(void *packed)
{
	return gzclose(packed) == Z_OK ? 0 : EOF;
}

/* Opens what may be compressed by gzip, which torch.profiler does where a name ends so. */
static FILE *unpacked(FILE *in)
{
	gzFile packed = gzdopen(dup(fileno(in)), "rb");
	FILE *out = packed ? fopencookie(packed, "r", (cookie_io_functions_t){ .read = read_packed,
									       .close = close_packed }) : NULL;

	if (!out)
		pd_mem_exhausted(0);
	return out;
}

int pd_kineto_scan(const char *name, pd_kineto_take *take, void *to, struct pd_kineto_head *head_p,
		   struct pd_error *err)
{
	struct scan r = { .name = name, .take = take, .to = to, .head = head_p };
	FILE *in = pd_document_open(name, err);
	int status;

	*head_p = (struct pd_kineto_head){ .rank = -1 };
	if (!in)
		return -1;
	r.in = unpacked(in);
	status = read_members(&r, err);
	fclose(r.in);
	pd_document_close(in);
	return status;
}
