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
	struct pd_json_at at;
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

static int next_char(struct scan *r)
{
	int c = getc(r->in);

	pd_json_pass(&r->at, c);
	return c;
}

/* Returns the next character that is not blank. */
static int sign(struct scan *r)
{
	int c;

	while ((c = next_char(r)) == ' ' || c == '\n' || c == '\t' || c == '\r')
		;
	return c;
}

/* Gives back a character that does not end a line. */
static void put_back(struct scan *r, int c)
{
	r->at.columns -= ungetc(c, r->in) != EOF;
}

static json_t *load_value(struct scan *r, struct pd_error *err)
{
	bool last;

	return pd_json_load_next(r->in, r->name, 0, &r->at, &last, err);
}

static int lacks(const struct scan *r, const char *what, struct pd_error *err)
{
	if (r->at.lines == 0)
		return pd_error_input(err, "%s: expected a trace of torch.profiler, found no %s in it", r->name, what);
	return pd_error_input(err, "%s:%d:%d: expected a trace of torch.profiler, found no %s here",
			      r->name, r->at.lines + 1, r->at.columns, what);
}

static int read_events(struct scan *r, struct pd_error *err)
{
	int c = sign(r), status = 0;

	if (c == ']')
		return 0;
	put_back(r, c);
	do {
		json_t *value = load_value(r, err);

		status = value ? r->take(r->to, value, err) : -1;
		json_decref(value);
		c = status == 0 ? sign(r) : EOF;
	} while (c == ',');
	return status < 0 || c == ']' ? status : lacks(r, "end of \"traceEvents\"", err);
}

/* Reads a string or a number into buf, without quotes; what does not fit is dropped. */
static void read_plain(struct scan *r, int c, char *buf, size_t bytes)
{
	bool quoted = c == '"', escaped = false;
	size_t n = 0;

	for (c = quoted ? next_char(r) : c; c != EOF; c = next_char(r)) {
		if (quoted ? c == '"' && !escaped : c == ',' || c == '}')
			break;
		escaped = c == '\\' && !escaped;
		if (n + 1 < bytes)
			buf[n++] = (char)c;
	}
	buf[n] = '\0';
	if (!quoted)
		put_back(r, c);
}

static int read_value(struct scan *r, const char *key, struct pd_error *err)
{
	int c = sign(r);
	char plain[32];
	json_t *value;

	if (c == '[' && strcmp(key, "traceEvents") == 0) {
		r->events = true;
		return read_events(r, err);
	}
	if (c != '{' && c != '[') {
		read_plain(r, c, plain, sizeof(plain));
		if (strcmp(key, "baseTimeNanoseconds") == 0)
			r->head->base_ns = pd_clamp(strtoll(plain, NULL, 10), 0, INT64_MAX / 4);
		return 0;
	}
	put_back(r, c);
	value = load_value(r, err);
	if (value && strcmp(key, "distributedInfo") == 0 && json_is_integer(json_object_get(value, "rank")))
		r->head->rank = json_integer_value(json_object_get(value, "rank"));
	if (value && strcmp(key, "deviceProperties") == 0)
		r->head->device = json_array_size(value) > 0;
	json_decref(value);
	return value ? 0 : -1;
}

static int read_members(struct scan *r, struct pd_error *err)
{
	char key[64];
	int c = sign(r);

	if (c != '{')
		return lacks(r, "JSON object", err);
	for (c = sign(r); c == '"'; c = sign(r)) {
		read_plain(r, c, key, sizeof(key));
		if (sign(r) != ':')
			return lacks(r, "\":\" behind a key", err);
		if (read_value(r, key, err) < 0)
			return -1;
		c = sign(r);
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
