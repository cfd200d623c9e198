/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/kineto_file.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	FILE *in;
	struct pd_kineto_file *file;
	int64_t base_ns;
	bool events;                    /* there is a list of them */
	struct pd_kineto_file all[2];   /* of the processor; of the GPU */
};

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* Tells whether the pipeline is concerned, and how.  Actions without a microbatch have no operation here. */
static bool classify(const char *name, struct pd_kineto_event *event)
{
	if (begins(name, "gloo:") || begins(name, "nccl:")) {
		event->kind = PD_KINETO_MESSAGE;
		return true;
	}
	if (begins(name, "Optimizer.step")) {
		event->kind = PD_KINETO_UPDATE;
		return true;
	}
	event->kind = PD_KINETO_ACTION;
	return begins(name, "PP:") && pd_torch_action_read(name + 3, &event->act) && event->act.microbatch >= 0;
}

/* Microseconds become nanoseconds; a time that is none, or far off, is refused. */
static bool to_ns(json_t *value, int64_t *out_p)
{
	double us = json_is_number(value) ? json_number_value(value) : NAN;

	if (!(fabs(us) < (double)INT64_MAX / 4000))
		return false;
	*out_p = llround(us * 1000);
	return true;
}

static int take_event(struct reader *r, json_t *value, struct pd_error *err)
{
	const char *name = json_string_value(json_object_get(value, "name"));
	const char *phase = json_string_value(json_object_get(value, "ph"));
	const char *category = json_string_value(json_object_get(value, "cat"));
	struct pd_kineto_event event = { .start_ns = 0 };
	struct pd_kineto_file *to;
	int64_t duration;

	if (!name || !phase || !category || strcmp(phase, "X") != 0 || !strstr(category, "user_annotation") ||
	    !classify(name, &event))
		return 0;
	if (!to_ns(json_object_get(value, "ts"), &event.start_ns) ||
	    !to_ns(json_object_get(value, "dur"), &duration) || duration < 0)
		return pd_error_input(err, "%s: event \"%.60s\": expected \"ts\" and \"dur\", microseconds",
				      r->file->name, name);
	event.end_ns = event.start_ns + duration;
	to = &r->all[begins(category, "gpu_")];
	to->events = pd_grow(to->events, &to->capacity, to->count + 1, sizeof(*to->events));
	to->events[to->count++] = event;
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

static int lacks(const struct reader *r, const char *what, struct pd_error *err)
{
	return pd_error_input(err, "%s: expected a trace of torch.profiler, found no %s in it", r->file->name, what);
}

static int read_events(struct reader *r, struct pd_error *err)
{
	int c = sign(r->in), status = 0;

	if (c == ']')
		return 0;
	ungetc(c, r->in);
	do {
		json_t *value = pd_json_load_stream(r->in, r->file->name, true, err);

		status = value ? take_event(r, value, err) : -1;
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

static int read_value(struct reader *r, const char *key, struct pd_error *err)
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
			r->base_ns = strtoll(plain, NULL, 10);
		return 0;
	}
	ungetc(c, r->in);
	value = pd_json_load_stream(r->in, r->file->name, true, err);
	if (value && strcmp(key, "distributedInfo") == 0 && json_is_integer(json_object_get(value, "rank")))
		r->file->rank = json_integer_value(json_object_get(value, "rank"));
	json_decref(value);
	return value ? 0 : -1;
}

static int read_members(struct reader *r, struct pd_error *err)
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

static int by_start(const void *a, const void *b)
{
	const struct pd_kineto_event *x = a, *y = b;

	PD_ORDER(x->start_ns, y->start_ns);
	PD_ORDER(y->end_ns, x->end_ns);
	PD_ORDER(x->kind, y->kind);
	return 0;
}

static bool acts(const struct pd_kineto_file *events)
{
	for (size_t i = 0; i < events->count; i++)
		if (events->events[i].kind == PD_KINETO_ACTION && events->events[i].act.action == PD_TORCH_F)
			return true;
	return false;
}

int pd_kineto_file_read(const char *name, struct pd_kineto_file *out_p, struct pd_error *err)
{
	struct reader r = { .file = out_p };
	int status;

	*out_p = (struct pd_kineto_file){ .name = name, .rank = -1 };
	r.in = pd_document_open(name, err);
	if (!r.in)
		return -1;
	status = read_members(&r, err);
	pd_document_close(r.in);
	out_p->gpu = acts(&r.all[1]);
	out_p->count = r.all[out_p->gpu].count;
	out_p->events = r.all[out_p->gpu].events;
	free(r.all[!out_p->gpu].events);
	for (size_t i = 0; i < out_p->count; i++) {
		out_p->events[i].start_ns += r.base_ns;
		out_p->events[i].end_ns += r.base_ns;
	}
	if (status == 0 && !acts(out_p))
		status = pd_error_input(err, "%s: expected actions of a pipeline, such as \"PP:0F0\", found none: "
					"schedules of torch.distributed.pipelining that follow a table have them",
					name);
	if (out_p->count > 0)
		qsort(out_p->events, out_p->count, sizeof(*out_p->events), by_start);
	return status;
}

void pd_kineto_file_release(struct pd_kineto_file *file)
{
	free(file->events);
}
