/* SPDX-License-Identifier: Apache-2.0 */
/* Reading pd-trace(5): a header, then one small object per line. */
#include "trace/trace.h"

#include "base/json.h"
#include "base/mem.h"
#include "schedule/file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const char *document;
	FILE *in;
	int64_t line;
	char where[256];                /* "trace.jsonl:12", for messages */
	struct pd_trace *trace;
	struct pd_wiring *wiring;
};

static bool stage_has(const struct pd_stage *stage, int64_t rank)
{
	for (int i = 0; i < stage->replicas; i++)
		if (stage->ranks[i] == rank)
			return true;
	return false;
}

/*
 * The link of a transfer: a record says this rank's stage and the peer, which may have
 * several stages.  Of their links the number of the operation tells which: it is twice the
 * link's, plus one for gradients, modulo what the schedule multiplies its times by.
 */
static int find_link(const struct reader *reader, const struct pd_op *op)
{
	const struct pd_plan *plan = reader->trace->plan;
	const struct pd_wiring *wiring = reader->wiring;
	bool leaves = op->kind == PD_OP_send_activation || op->kind == PD_OP_recv_gradient;
	int count = leaves ? wiring->out_count[op->stage] : wiring->in_count[op->stage];
	const int *links = leaves ? wiring->out[op->stage] : wiring->in[op->stage];
	int64_t scale = 2 * (int64_t)wiring->link_count + plan->stage_count;
	int found = -1;

	for (int i = 0; i < count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		if (stage_has(&plan->stages[leaves ? link->to : link->from], op->peer) &&
		    (found < 0 || op->seq % scale / 2 == links[i]))
			found = links[i];
	}
	return found;
}

static bool is_transfer(enum pd_op_kind kind)
{
	return kind == PD_OP_recv_activation || kind == PD_OP_send_activation ||
	       kind == PD_OP_recv_gradient || kind == PD_OP_send_gradient;
}

static int read_kind(const struct pd_place *place, enum pd_op_kind *kind_p, struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "op");
	const char *name;

	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	for (int kind = 0; kind < PD_OP_KINDS; kind++)
		if (strcmp(pd_op_kind_name[kind], name) == 0) {
			*kind_p = (enum pd_op_kind)kind;
			return 0;
		}
	return pd_place_expected(&at, err, "an operation of pd-trace(5) such as \"forward\"");
}

static int read_op(const struct reader *reader, const struct pd_place *place, struct pd_op *op,
		   struct pd_error *err)
{
	const struct pd_plan *plan = reader->trace->plan;
	int64_t rank, stage, peer = -1;

	if (pd_json_get_int(place, "rank", 0, plan->rank_count - 1, &rank, err) < 0 ||
	    read_kind(place, &op->kind, err) < 0 ||
	    pd_json_get_int(place, "stage", 0, plan->stage_count - 1, &stage, err) < 0 ||
	    pd_json_get_int(place, "microbatch", 0, INT64_MAX, &op->microbatch, err) < 0 ||
	    pd_json_opt_int(place, "weight_version", 0, INT64_MAX, &op->version, err) < 0 ||
	    pd_json_opt_int(place, "peer", 0, plan->rank_count - 1, &peer, err) < 0 ||
	    pd_json_opt_int(place, "seq", 0, INT64_MAX, &op->seq, err) < 0 ||
	    pd_json_opt_bool(place, "evaluate", &op->evaluate, err) < 0)
		return -1;
	if (!stage_has(&plan->stages[stage], rank))
		return pd_place_error(place, err, "rank %" PRId64 " belongs to stage %d in the "
				      "plan, found stage %" PRId64, rank,
				      pd_plan_stage_of_rank(plan, (int)rank, NULL), stage);
	op->rank = (int32_t)rank;
	op->stage = (int32_t)stage;
	op->peer = (int32_t)peer;
	if (!is_transfer(op->kind))
		return 0;
	if (peer < 0)
		return pd_place_error(place, err, "expected a \"peer\" for %s",
				      pd_op_kind_name[op->kind]);
	op->link = find_link(reader, op);
	if (op->link < 0)
		return pd_place_error(place, err, "nothing travels this way between rank %" PRId64
				      " and its peer %" PRId64 " in the plan", rank, peer);
	return 0;
}

static int read_record(const struct reader *reader, json_t *value, struct pd_error *err)
{
	static const char *const known[] = { "rank", "op", "stage", "microbatch", "weight_version",
					     "peer", "seq", "bytes", "evaluate", "start_ns",
					     "end_ns", NULL };
	struct pd_record record = { .op = { .peer = -1, .link = -1, .version = -1, .seq = -1 } };
	struct pd_place place = pd_place_root(reader->where, value);

	if (pd_json_keys(&place, known, err) < 0 || read_op(reader, &place, &record.op, err) < 0 ||
	    pd_json_opt_int(&place, "bytes", 0, INT64_MAX, &record.bytes, err) < 0 ||
	    pd_json_get_int(&place, "start_ns", 0, INT64_MAX, &record.start_ns, err) < 0 ||
	    pd_json_get_int(&place, "end_ns", record.start_ns, INT64_MAX, &record.end_ns, err) < 0)
		return -1;
	pd_trace_add(reader->trace, &record);
	return 0;
}

static bool is_blank(const char *text, size_t length)
{
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	return length == 0;
}

/* The next line into *line_p: its length, 0 at the end, -1 on an error. */
static ssize_t next_line(struct reader *reader, char **line_p, size_t *size_p,
			 struct pd_error *err)
{
	ssize_t length = getline(line_p, size_p, reader->in);

	if (length < 0 && ferror(reader->in))
		return pd_error_input(err, "%s: cannot read: %m", reader->document);
	reader->line++;
	return length < 0 ? 0 : length;
}

static int read_records(struct reader *reader, struct pd_error *err)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t length;
	int result = 0;

	/* the rest of the header's line */
	length = next_line(reader, &line, &size, err);
	if (length > 0 && !is_blank(line, (size_t)length))
		result = pd_error_input(err, "%s:1: text after the header: expected one object per "
					"line",
					reader->document);
	while (result == 0 && length > 0 &&
	       (length = next_line(reader, &line, &size, err)) > 0) {
		json_error_t why;
		json_t *value;

		if (is_blank(line, (size_t)length))
			continue;
		value = json_loadb(line, (size_t)length, JSON_REJECT_DUPLICATES, &why);
		snprintf(reader->where, sizeof(reader->where), "%s:%" PRId64, reader->document,
			 reader->line);
		if (!value)
			result = pd_error_input(err, "%s:%d: not JSON: %s", reader->where,
						why.column,
						why.text);
		else
			result = read_record(reader, value, err);
		json_decref(value);
	}
	free(line);
	return length < 0 ? -1 : result;
}

static struct pd_trace *read_header(const struct pd_place *root, struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "plan", "device", "start_ns",
					     NULL };
	struct pd_place at = pd_place_key(root, "plan");
	const char *device;
	int64_t start_ns;
	struct pd_plan *plan;

	if (pd_json_header(root, "pd-trace", err) < 0 || pd_json_keys(root, known, err) < 0 ||
	    pd_json_get_string(root, "device", &device, err) < 0 ||
	    pd_json_get_int(root, "start_ns", 0, INT64_MAX, &start_ns, err) < 0)
		return NULL;
	plan = pd_plan_parse_at(&at, err);
	return plan ? pd_trace_new(plan, device, start_ns) : NULL;
}

static struct pd_trace *read_trace(FILE *in, const struct pd_place *root, struct pd_error *err)
{
	struct reader reader = { .document = root->document, .in = in };
	int result;

	reader.trace = read_header(root, err);
	if (!reader.trace)
		return NULL;
	reader.wiring = pd_wiring_new(reader.trace->plan);
	result = read_records(&reader, err);
	pd_wiring_free(reader.wiring);
	if (result < 0) {
		pd_trace_free(reader.trace);
		return NULL;
	}
	return reader.trace;
}

/* Nothing but white space follows a plan. */
static int check_end(FILE *in, const char *document, struct pd_error *err)
{
	int c;

	while ((c = getc(in)) != EOF)
		if (!isspace(c))
			return pd_error_input(err, "%s: text after the plan: expected its end",
					      document);
	return 0;
}

/* lists_p NULL: a schedule is none of what was expected. */
static int read_any(const char *file, struct pd_trace **trace_p, struct pd_plan **plan_p,
		    struct pd_lists **lists_p, struct pd_error *err)
{
	FILE *in = pd_document_open(file, err);
	struct pd_place root, format;
	int result = -1;
	json_t *value;

	if (!in)
		return -1;
	root = pd_place_root(pd_document_name(file), NULL);
	value = root.value = pd_json_load_stream(in, root.document, true, err);
	if (value) {
		const char *name;

		format = pd_place_key(&root, "format");
		name = json_string_value(format.value);
		if (name && strcmp(name, "pd-trace") == 0)
			result = (*trace_p = read_trace(in, &root, err)) ? 0 : -1;
		else if (name && lists_p && strcmp(name, "pd-schedule") == 0)
			result = (*lists_p = pd_lists_read_at(in, &root, err)) ? 0 : -1;
		else if (name && strcmp(name, "pd-plan") != 0)
			pd_place_expected(&format, err, lists_p
					  ? "\"pd-trace\", \"pd-schedule\" or \"pd-plan\""
					  : "\"pd-trace\" or \"pd-plan\"");
		else if (check_end(in, root.document, err) == 0)
			result = (*plan_p = pd_plan_parse_at(&root, err)) ? 0 : -1;
	}
	json_decref(value);
	pd_document_close(in);
	return result;
}

int pd_trace_or_plan_read(const char *file, struct pd_trace **trace_p, struct pd_plan **plan_p,
			  struct pd_error *err)
{
	*trace_p = NULL;
	*plan_p = NULL;
	return read_any(file, trace_p, plan_p, NULL, err);
}

int pd_trace_or_lists_read(const char *file, struct pd_trace **trace_p, struct pd_plan **plan_p,
			   struct pd_lists **lists_p, struct pd_error *err)
{
	*trace_p = NULL;
	*plan_p = NULL;
	*lists_p = NULL;
	return read_any(file, trace_p, plan_p, lists_p, err);
}
