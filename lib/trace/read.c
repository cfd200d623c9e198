/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pd-trace(5): a header, then one small object per line. */
#include "trace/trace.h"

#include "base/json.h"
#include "base/lines.h"
#include "base/mem.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	struct pd_trace *trace;
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

static int read_op(const struct reader *reader, const struct pd_place *place, struct pd_op *op,
		   struct pd_error *err)
{
	const struct pd_plan *plan = reader->trace->plan;
	int64_t rank, stage, peer = -1;

	if (pd_json_get_int(place, "rank", 0, plan->rank_count - 1, &rank, err) < 0 ||
	    pd_op_kind_read(place, "pd-trace(5)", &op->kind, err) < 0 ||
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
	if (pd_op_bucket_read(place, plan, op, err) < 0)
		return -1;
	if (!pd_op_transfers(op->kind))
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

static int read_record(void *of, const struct pd_place *place, int64_t line, struct pd_error *err)
{
	static const char *const known[] = { "rank", "op", "stage", "microbatch", "weight_version",
					     "peer", "bucket", "seq", "bytes", "sent_bytes",
					     "messages", "evaluate", "start_ns",
					     "end_ns", NULL };
	struct pd_record record = { .op = { .peer = -1, .link = -1, .version = -1, .seq = -1 } };
	const struct reader *reader = of;

	(void)line;
	if (pd_json_keys(place, known, err) < 0 || read_op(reader, place, &record.op, err) < 0 ||
	    pd_json_opt_int(place, "bytes", 0, PD_MAX_BYTES, &record.bytes, err) < 0 ||
	    pd_json_opt_int(place, "sent_bytes", 0, PD_MAX_BYTES, &record.sent_bytes, err) < 0 ||
	    pd_json_opt_int(place, "messages", 0, PD_MAX_BYTES, &record.messages, err) < 0 ||
	    pd_json_get_int(place, "start_ns", 0, PD_MAX_TIME_NS, &record.start_ns, err) < 0 ||
	    pd_json_get_int(place, "end_ns", record.start_ns, PD_MAX_TIME_NS, &record.end_ns,
			    err) < 0)
		return -1;
	pd_trace_add(reader->trace, &record);
	return 0;
}

static struct pd_trace *read_header(const struct pd_place *root, struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "plan", "device", "start_ns",
					     "processors", "threads", "epoch_minibatches", NULL };
	int64_t start_ns, processors = 0, threads = 0, epoch = 0;
	struct pd_place at = pd_place_key(root, "plan");
	const char *device;
	struct pd_trace *trace;
	struct pd_plan *plan;

	if (pd_json_header(root, "pd-trace", err) < 0 || pd_json_keys(root, known, err) < 0 ||
	    pd_json_get_string(root, "device", &device, err) < 0 ||
	    pd_json_get_int(root, "start_ns", 0, INT64_MAX, &start_ns, err) < 0 ||
	    pd_json_opt_int(root, "processors", 0, 1 << 20, &processors, err) < 0 ||
	    pd_json_opt_int(root, "threads", 0, 1 << 20, &threads, err) < 0 ||
	    pd_json_opt_int(root, "epoch_minibatches", 1, INT64_MAX, &epoch, err) < 0)
		return NULL;
	plan = pd_plan_parse_at(&at, err);
	if (!plan)
		return NULL;
	trace = pd_trace_new(plan, device, start_ns);
	trace->processors = processors;
	trace->threads = threads;
	trace->epoch_minibatches = epoch;
	return trace;
}

static struct pd_trace *read_trace(FILE *in, const struct pd_place *root, struct pd_error *err)
{
	struct reader reader = { .trace = read_header(root, err) };
	int result;

	if (!reader.trace)
		return NULL;
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
