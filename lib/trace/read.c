/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pd-trace(5): a header, then one small object per line. */
#include "trace/trace.h"

#include "base/lines.h"
#include "base/mem.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_ROWS 14

struct reader {
	struct pd_trace *trace;
	struct pd_key_row rows[RECORD_ROWS + 1];        /* those of a record, with the plan's bounds */
	struct pd_wiring *wiring;
	int64_t scale;                  /* pd_schedule_scale */
};

static bool stage_has(const struct pd_stage *stage, int64_t rank)
{
	for (int i = 0; i < stage->replicas; i++)
		if (stage->ranks[i] == rank)
			return true;
	return false;
}

/*
 * Finds the link of a transfer.  A record has this rank's stage and the peer, which may have
 * several stages.  The sequence number tells which of their links it is: it is twice the link's
 * number, plus one for gradients, modulo the factor by which the schedule multiplies its times.
 */
static int find_link(const struct reader *reader, const struct pd_op *op)
{
	const struct pd_plan *plan = reader->trace->plan;
	const struct pd_wiring *wiring = reader->wiring;
	bool leaves = !pd_op_at_end(op->kind);
	int count = leaves ? wiring->out_count[op->stage] : wiring->in_count[op->stage];
	const int *links = leaves ? wiring->out[op->stage] : wiring->in[op->stage];
	int found = -1;

	for (int i = 0; i < count; i++) {
		const struct pd_link *link = &wiring->links[links[i]];

		if (stage_has(&plan->stages[leaves ? link->to : link->from], op->peer) &&
		    (found < 0 || op->seq % reader->scale / 2 == links[i]))
			found = links[i];
	}
	return found;
}

static int read_op_kind(const struct pd_place *place, void *member, struct pd_error *err)
{
	return pd_op_kind_read(place->up, "pd-trace(5)", member, err);
}

#define IN(member) PD_MEMBER(struct pd_record, member)
#define BYTES PD_ROW_INT, .most = PD_MAX_BYTES

/* What is up to INT32_MAX has a bound by the plan: read_trace(). */
const struct pd_key_row pd_trace_record_rows[RECORD_ROWS + 1] = {
	{ "rank", PD_ROW_INT, .needed = true, IN(op.rank), .most = INT32_MAX },
	{ "op", PD_ROW_BY, .needed = true, IN(op.kind), .read = read_op_kind },
	{ "stage", PD_ROW_INT, .needed = true, IN(op.stage), .most = INT32_MAX },
	{ "microbatch", PD_ROW_INT, .needed = true, IN(op.microbatch) },
	{ "weight_version", PD_ROW_INT, IN(op.version), .otherwise = -1 },
	{ "peer", PD_ROW_INT, IN(op.peer), .most = INT32_MAX, .otherwise = -1 },
	{ "bucket", PD_ROW_BY },
	{ "seq", PD_ROW_INT, IN(op.seq), .otherwise = -1 },
	{ "bytes", BYTES, IN(bytes) },
	{ "sent_bytes", BYTES, IN(sent_bytes) },
	{ "messages", BYTES, IN(messages) },
	{ "evaluate", PD_ROW_BOOL, IN(op.evaluate) },
	{ "start_ns", PD_ROW_BY, .needed = true },
	{ "end_ns", PD_ROW_BY, .needed = true },
	{ NULL }
};

/* Checks what the plan says of an operation, and finds its link. */
static int check_op(const struct reader *reader, const struct pd_place *place, struct pd_op *op,
		    struct pd_error *err)
{
	const struct pd_plan *plan = reader->trace->plan;

	if (!stage_has(&plan->stages[op->stage], op->rank))
		return pd_place_error(place, err, "rank %" PRId32 " belongs to stage %d in the "
				      "plan, found stage %" PRId32, op->rank,
				      pd_plan_stage_of_rank(plan, op->rank, NULL), op->stage);
	if (pd_op_bucket_read(place, plan, op, err) < 0)
		return -1;
	if (!pd_op_transfers(op->kind))
		return 0;
	if (op->peer < 0)
		return pd_place_error(place, err, "expected a \"peer\" for %s",
				      pd_op_kind_name[op->kind]);
	op->link = find_link(reader, op);
	if (op->link < 0)
		return pd_place_error(place, err, "nothing travels this way between rank %" PRId32
				      " and its peer %" PRId32 " in the plan", op->rank, op->peer);
	return 0;
}

static int read_record(void *of, const struct pd_place *place, int64_t line, struct pd_error *err)
{
	struct pd_record record = { .op.link = -1 };
	const struct reader *reader = of;

	(void)line;
	if (pd_rows_read(place, reader->rows, &record, err) < 0 || check_op(reader, place, &record.op, err) < 0 ||
	    pd_json_get_int(place, "start_ns", 0, PD_MAX_TIME_NS, &record.start_ns, err) < 0 ||
	    pd_json_get_int(place, "end_ns", record.start_ns, PD_MAX_TIME_NS, &record.end_ns, err) < 0)
		return -1;
	pd_trace_add(reader->trace, &record);
	return 0;
}

static struct pd_trace *read_trace(FILE *in, const struct pd_place *root, struct pd_error *err)
{
	struct reader reader = { .trace = pd_trace_new(NULL, NULL, 0) };
	int result = pd_rows_read(root, pd_trace_rows, reader.trace, err);

	if (result < 0) {
		pd_trace_free(reader.trace);
		return NULL;
	}
	memcpy(reader.rows, pd_trace_record_rows, sizeof(reader.rows));
	pd_rows_bound(reader.rows, "rank", reader.trace->plan->rank_count - 1);
	pd_rows_bound(reader.rows, "peer", reader.trace->plan->rank_count - 1);
	pd_rows_bound(reader.rows, "stage", reader.trace->plan->stage_count - 1);
	reader.wiring = pd_wiring_new(reader.trace->plan);
	reader.scale = pd_schedule_scale(reader.trace->plan, reader.wiring);
	result = pd_lines_read(in, root->document, read_record, &reader, err);
	pd_wiring_free(reader.wiring);
	if (result < 0) {
		pd_trace_free(reader.trace);
		return NULL;
	}
	return reader.trace;
}

int pd_trace_or_lists_read(const char *file, const struct pd_table_door *const *doors,
			   struct pd_trace **trace_p, struct pd_plan **plan_p,
			   struct pd_lists **lists_p, struct pd_error *err)
{
	FILE *in = pd_document_open(file, err);
	const struct pd_table_door *door;
	struct pd_place root, format;
	int result = -1;
	json_t *value;

	*trace_p = NULL;
	*plan_p = NULL;
	*lists_p = NULL;
	if (!in)
		return -1;
	root = pd_place_root(pd_document_name(file), NULL);
	door = pd_table_door_of(doors, in);
	if (door) {
		pd_document_close(in);
		return pd_error_input(err, "%s: this is a %s: pd-replay --schedule=table.csv plan.json "
				      "replays the stages of a plan in its order", root.document,
				      door->what);
	}
	value = root.value = pd_json_load_stream(in, root.document, true, err);
	if (value) {
		const char *name;

		format = pd_place_key(&root, "format");
		name = json_string_value(format.value);
		if (name && strcmp(name, "pd-trace") == 0)
			result = (*trace_p = read_trace(in, &root, err)) ? 0 : -1;
		else if (name && strcmp(name, "pd-schedule") == 0)
			result = (*lists_p = pd_lists_read_at(in, &root, err)) ? 0 : -1;
		else if (name && strcmp(name, "pd-plan") != 0)
			pd_json_other_format(&format,
					     "\"pd-trace\", \"pd-schedule\" or \"pd-plan\"", err);
		else if (pd_document_end(in, root.document, "the plan", err) == 0)
			result = (*plan_p = pd_plan_parse_at(&root, err)) ? 0 : -1;
	}
	json_decref(value);
	pd_document_close(in);
	return result;
}
