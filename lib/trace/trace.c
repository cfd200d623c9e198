/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include "base/mem.h"
#include "base/sort.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct pd_trace *pd_trace_new(struct pd_plan *plan, const char *device, int64_t start_ns)
{
	struct pd_trace *trace = pd_zalloc(sizeof(*trace));

	trace->plan = plan;
	trace->device = device ? pd_strdup(device) : NULL;
	trace->start_ns = start_ns;
	return trace;
}

void pd_trace_free(struct pd_trace *trace)
{
	if (!trace)
		return;
	pd_plan_free(trace->plan);
	free(trace->device);
	free(trace->records);
	free(trace);
}

void pd_trace_add(struct pd_trace *trace, const struct pd_record *record)
{
	trace->records = pd_grow(trace->records, &trace->capacity, trace->count + 1,
				 sizeof(*trace->records));
	trace->records[trace->count++] = *record;
}

static int compare(const void *a, const void *b)
{
	const struct pd_record *x = *(const struct pd_record *const *)a;
	const struct pd_record *y = *(const struct pd_record *const *)b;

	PD_ORDER(x->start_ns, y->start_ns);
	PD_ORDER(x->end_ns, y->end_ns);
	PD_ORDER(x->op.rank, y->op.rank);
	return x < y ? -1 : x > y;      /* this keeps the order in which a rank did them */
}

void pd_trace_sort(struct pd_trace *trace)
{
	struct pd_record **order = pd_calloc(trace->count, sizeof(struct pd_record *));
	struct pd_record *sorted = pd_calloc(trace->count, sizeof(*sorted));

	for (size_t i = 0; i < trace->count; i++)
		order[i] = &trace->records[i];
	qsort(order, trace->count, sizeof(*order), compare);
	for (size_t i = 0; i < trace->count; i++)
		sorted[i] = *order[i];
	free(order);
	free(trace->records);
	trace->records = sorted;
	trace->capacity = trace->count ? trace->count : 1;
}

static int read_plan(const struct pd_place *place, void *member, struct pd_error *err)
{
	*(struct pd_plan **)member = pd_plan_parse_at(place, err);
	return *(struct pd_plan **)member ? 0 : -1;
}

static json_t *plan_json(const void *member)
{
	return pd_plan_json(*(struct pd_plan *const *)member);
}

#define IN(member) PD_MEMBER(struct pd_trace, member)

const struct pd_key_row pd_trace_rows[] = {
	PD_ROWS_HEADER("pd-trace", 1),
	{ "plan", PD_ROW_BY, .needed = true, IN(plan), .rows = pd_plan_rows, .read = read_plan,
	  .write = plan_json },
	{ "device", PD_ROW_TEXT, .needed = true, IN(device) },
	{ "start_ns", PD_ROW_INT, .needed = true, IN(start_ns) },
	{ "processors", PD_ROW_INT, IN(processors), .most = 1 << 20 },
	{ "threads", PD_ROW_INT, IN(threads), .most = 1 << 20 },
	{ "epoch_minibatches", PD_ROW_INT, IN(epoch_minibatches), .least = 1 },
	{ NULL }
};

int pd_trace_write_header(FILE *out, const struct pd_trace *trace, struct pd_error *err)
{
	json_t *header = pd_rows_json(pd_trace_rows, trace);
	int result = json_dumpf(header, out, JSON_COMPACT |
			    JSON_REAL_PRECISION((size_t)pd_json_digits(header)));
	json_decref(header);
	if (result < 0 || fputc('\n', out) == EOF)
		return pd_error_failed(err, "cannot write the trace: %s", strerror(errno));
	return 0;
}

void pd_trace_write_record(FILE *out, const struct pd_record *record)
{
	const struct pd_op *op = &record->op;

	fprintf(out, "{\"rank\":%" PRId32 ",\"op\":\"%s\",\"stage\":%" PRId32
		",\"microbatch\":%" PRId64, op->rank, pd_op_kind_name[op->kind], op->stage,
		op->microbatch);
	if (op->version >= 0)
		fprintf(out, ",\"weight_version\":%" PRId64, op->version);
	if (op->peer >= 0)
		fprintf(out, ",\"peer\":%" PRId32, op->peer);
	if (op->bucket > 0)
		fprintf(out, ",\"bucket\":%d", op->bucket);
	if (op->seq >= 0)
		fprintf(out, ",\"seq\":%" PRId64, op->seq);
	if (record->bytes != 0)
		fprintf(out, ",\"bytes\":%" PRId64, record->bytes);
	if (record->messages != 0)
		fprintf(out, ",\"sent_bytes\":%" PRId64 ",\"messages\":%" PRId64, record->sent_bytes,
			record->messages);
	if (op->evaluate)
		fputs(",\"evaluate\":true", out);
	fprintf(out, ",\"start_ns\":%" PRId64 ",\"end_ns\":%" PRId64 "}\n", record->start_ns,
		record->end_ns);
}

int pd_trace_write(const struct pd_trace *trace, FILE *out, struct pd_error *err)
{
	if (pd_trace_write_header(out, trace, err) < 0)
		return -1;
	for (size_t i = 0; i < trace->count; i++)
		pd_trace_write_record(out, &trace->records[i]);
	if (fflush(out) != 0 || ferror(out))
		return pd_error_failed(err, "cannot write the trace: %s", strerror(errno));
	return 0;
}
