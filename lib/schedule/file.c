/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing pd-schedule(5): a header, then one small object per line. */
#include "schedule/file.h"

#include "base/json.h"
#include "base/lines.h"
#include "base/mem.h"
#include "schedule/price.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int pd_op_kind_read(const struct pd_place *place, const char *manual, enum pd_op_kind *kind_p,
		    struct pd_error *err)
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
	return pd_place_expected(&at, err, "an operation of %s such as \"forward\"", manual);
}

/*
 * The link of a transfer: this operation's stage is one end, and the other is a stage of the
 * peer.  peer_stage says which where there are several, else it is -1.
 */
static int find_link(const struct pd_lists *lists, const struct pd_place *place, struct pd_op *op,
		     int peer_stage, struct pd_error *err)
{
	const struct pd_wiring *wiring = lists->wiring;
	bool at_end = pd_op_at_end(op->kind);
	int count = at_end ? wiring->in_count[op->stage] : wiring->out_count[op->stage];

	for (int i = 0; i < count; i++) {
		int link = at_end ? wiring->in[op->stage][i] : wiring->out[op->stage][i];
		int other = at_end ? wiring->links[link].from : wiring->links[link].to;

		if (pd_lists_replica(lists, op->peer, other) < 0 ||
		    (peer_stage >= 0 && other != peer_stage))
			continue;
		if (op->link >= 0)
			return pd_place_error(place, err, "expected a \"peer_stage\": rank %d has "
					      "several stages that this could go to or come from",
					      op->peer);
		op->link = link;
	}
	if (op->link < 0)
		return pd_place_error(place, err, "nothing travels this way between stage %d of "
				      "rank %d and its peer %d in the plan", op->stage, op->rank,
				      op->peer);
	return 0;
}

/* Whom it meets. */
static int read_parties(const struct pd_lists *lists, const struct pd_place *place, struct pd_op *op,
			struct pd_error *err)
{
	const struct pd_plan *plan = lists->plan;
	int64_t peer = -1, peer_stage = -1, group = -1;

	if (pd_json_opt_int(place, "peer", 0, plan->rank_count - 1, &peer, err) < 0 ||
	    pd_json_opt_int(place, "peer_stage", 0, plan->stage_count - 1, &peer_stage, err) < 0 ||
	    pd_json_opt_int(place, "group", 0, plan->stage_count - 1, &group, err) < 0)
		return -1;
	if ((peer >= 0 || peer_stage >= 0) && !pd_op_transfers(op->kind))
		return pd_place_error(place, err, "%s has no \"%s\"", pd_op_kind_name[op->kind],
				      peer >= 0 ? "peer" : "peer_stage");
	if (group >= 0 && (op->kind != PD_OP_allreduce || group != op->stage))
		return pd_place_error(place, err, "\"group\" is %" PRId64 "; expected none, or"
				      " with allreduce the stage, %d", group, op->stage);
	if (!pd_op_transfers(op->kind))
		return 0;
	if (peer < 0)
		return pd_place_error(place, err, "expected a \"peer\" for %s",
				      pd_op_kind_name[op->kind]);
	op->peer = (int32_t)peer;
	return find_link(lists, place, op, (int)peer_stage, err);
}

static int read_op(const struct pd_lists *lists, const struct pd_place *place, struct pd_op *op,
		   struct pd_error *err)
{
	int64_t rank, stage, most = lists->microbatches;

	if (pd_json_get_int(place, "rank", 0, lists->rank_count - 1, &rank, err) < 0 ||
	    pd_op_kind_read(place, "pd-schedule(5)", &op->kind, err) < 0 ||
	    pd_json_get_int(place, "stage", 0, lists->plan->stage_count - 1, &stage, err) < 0 ||
	    pd_json_get_int(place, "microbatch", 0, most - 1, &op->microbatch, err) < 0 ||
	    pd_json_opt_int(place, "weight_version", 0, most, &op->version, err) < 0 ||
	    pd_json_opt_int(place, "seq", 0, INT64_MAX, &op->seq, err) < 0)
		return -1;
	if (pd_lists_replica(lists, (int)rank, (int)stage) < 0)
		return pd_place_error(place, err, "rank %" PRId64 " is of stage %d in the plan, "
				      "found stage %" PRId64, rank,
				      lists->seats[lists->first_seat[rank]].stage, stage);
	op->rank = (int32_t)rank;
	op->stage = (int32_t)stage;
	return read_parties(lists, place, op, err);
}

static int read_line(void *of, const struct pd_place *place, int64_t line, struct pd_error *err)
{
	static const char *const known[] = { "rank", "op", "stage", "microbatch", "weight_version",
					     "peer", "peer_stage", "group", "seq", "duration_ns",
					     "memory_delta_bytes", NULL };
	struct pd_op op = { .peer = -1, .link = -1, .version = -1, .keep = -1,
			    .seq = -1 };
	struct pd_note note = { .line = line, .duration_ns = -1,
				.memory_delta_bytes = INT64_MIN };
	struct pd_lists *lists = of;

	if (pd_json_keys(place, known, err) < 0 || read_op(lists, place, &op, err) < 0 ||
	    pd_json_opt_int(place, "duration_ns", 0, PD_MAX_TIME_NS, &note.duration_ns, err) < 0 ||
	    pd_json_opt_int(place, "memory_delta_bytes", -PD_MAX_BYTES, PD_MAX_BYTES,
			    &note.memory_delta_bytes, err) < 0)
		return -1;
	pd_lists_add(lists, &op, &note);
	return 0;
}

static struct pd_lists *read_header(const struct pd_place *root, struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "plan", "minibatches", NULL };
	struct pd_place at = pd_place_key(root, "plan");
	struct pd_plan *plan;
	int64_t minibatches;

	if (pd_json_header(root, "pd-schedule", err) < 0 || pd_json_keys(root, known, err) < 0 ||
	    pd_json_get_int(root, "minibatches", 1, INT64_C(1) << 40, &minibatches, err) < 0)
		return NULL;
	plan = pd_plan_parse_at(&at, err);
	return plan ? pd_lists_new(root->document, NULL, plan, minibatches, err) : NULL;
}

struct pd_lists *pd_lists_read_at(FILE *in, const struct pd_place *root, struct pd_error *err)
{
	struct pd_lists *lists = read_header(root, err);

	if (!lists)
		return NULL;
	if (pd_lines_read(in, root->document, read_line, lists, err) < 0) {
		pd_lists_free(lists);
		return NULL;
	}
	pd_lists_end(lists);
	return lists;
}

int pd_schedule_or_plan_read(const char *file, struct pd_lists **lists_p, struct pd_plan **plan_p,
			     struct pd_error *err)
{
	FILE *in = pd_document_open(file, err);
	struct pd_place root, format;
	json_t *value;

	*lists_p = NULL;
	*plan_p = NULL;
	if (!in)
		return -1;
	root = pd_place_root(pd_document_name(file), NULL);
	value = root.value = pd_json_load_stream(in, root.document, true, err);
	if (value) {
		const char *name;

		format = pd_place_key(&root, "format");
		name = json_string_value(format.value);
		if (name && strcmp(name, "pd-schedule") == 0)
			*lists_p = pd_lists_read_at(in, &root, err);
		else if (name && strcmp(name, "pd-plan") != 0)
			pd_place_expected(&format, err, "\"pd-schedule\" or \"pd-plan\"");
		else if (pd_document_end(in, root.document, "the plan", err) == 0)
			*plan_p = pd_plan_parse_at(&root, err);
	}
	json_decref(value);
	pd_document_close(in);
	return *lists_p || *plan_p ? 0 : -1;
}

static int write_header(FILE *out, const struct pd_lists *lists, struct pd_error *err)
{
	json_t *header = json_pack("{ss si so sI}", "format", "pd-schedule", "version", 1, "plan",
				   pd_plan_json(lists->plan), "minibatches", lists->minibatches);
	int result = json_dumpf(header, out, JSON_COMPACT | JSON_REAL_PRECISION(17));

	json_decref(header);
	if (result < 0 || fputc('\n', out) == EOF)
		return pd_error_failed(err, "cannot write the schedule: %s", strerror(errno));
	return 0;
}

static void write_op(FILE *out, const struct pd_lists *lists, const struct pd_op *op)
{
	fprintf(out, "{\"rank\":%" PRId32 ",\"op\":\"%s\",\"stage\":%" PRId32
		",\"microbatch\":%" PRId64, op->rank, pd_op_kind_name[op->kind], op->stage,
		op->microbatch);
	if (op->version >= 0)
		fprintf(out, ",\"weight_version\":%" PRId64, op->version);
	if (op->peer >= 0)
		fprintf(out, ",\"peer\":%" PRId32, op->peer);
	if (op->link >= 0 && lists->first_seat[op->peer + 1] - lists->first_seat[op->peer] > 1)
		fprintf(out, ",\"peer_stage\":%d", pd_op_at_end(op->kind)
			? lists->wiring->links[op->link].from : lists->wiring->links[op->link].to);
	if (op->kind == PD_OP_allreduce)
		fprintf(out, ",\"group\":%" PRId32, op->stage);
	if (op->seq >= 0)
		fprintf(out, ",\"seq\":%" PRId64, op->seq);
}

static void write_rank(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule,
		       const struct pd_prices *prices, int rank)
{
	const struct pd_note *note = lists->ranks[rank].notes;
	struct pd_account account;
	struct pd_op_source source;
	struct pd_op op;

	pd_account_init(&account, prices, lists->microbatches);
	pd_op_source_begin(&source, schedule, lists, rank);
	while (pd_op_source_next(&source, &op))
		pd_account_expect(&account, &op);
	pd_op_source_end(&source);
	pd_op_source_begin(&source, schedule, lists, rank);
	while (pd_op_source_next(&source, &op) && !ferror(out)) {
		int64_t duration_ns = note && note->duration_ns >= 0
			? note->duration_ns : pd_price_duration_ns(prices, &op);

		write_op(out, lists, &op);
		fprintf(out, ",\"duration_ns\":%" PRId64 ",\"memory_delta_bytes\":%" PRId64 "}\n",
			duration_ns, pd_account_enter(&account, &op));
		note += note != NULL;
	}
	pd_op_source_end(&source);
	pd_account_release(&account);
}

/* From the schedule, or where it is NULL from the lists. */
static int write_all(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule,
		     struct pd_error *err)
{
	struct pd_prices prices;

	if (write_header(out, lists, err) < 0)
		return -1;
	pd_prices_init(&prices, lists->plan, lists->wiring);
	for (int r = 0; r < lists->rank_count && !ferror(out); r++)
		write_rank(out, lists, schedule, &prices, r);
	pd_prices_release(&prices);
	if (fflush(out) != 0 || ferror(out))
		return pd_error_failed(err, "cannot write the schedule: %s", strerror(errno));
	return 0;
}

int pd_schedule_write(FILE *out, const struct pd_schedule *schedule, int64_t minibatches,
		      struct pd_error *err)
{
	struct pd_lists *empty = pd_lists_new("plan", schedule->plan, NULL, minibatches, err);
	int result = empty ? write_all(out, empty, schedule, err) : -1;

	pd_lists_free(empty);
	return result;
}

int pd_lists_write(FILE *out, const struct pd_lists *lists, struct pd_error *err)
{
	return write_all(out, lists, NULL, err);
}

char *pd_lists_text(const struct pd_lists *lists, int rank)
{
	const struct pd_list *list = &lists->ranks[rank];
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (out)
		putc('\n', out);        /* where a document has its header */
	for (size_t n = 0; n < list->count && out; n++) {
		write_op(out, lists, &list->ops[n]);
		fputs("}\n", out);
	}
	if (!out || fclose(out) != 0)
		pd_bug("schedule: no memory for a rank's list");
	return text;
}

int pd_lists_read_text(struct pd_lists *lists, const char *text, struct pd_error *err)
{
	FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int result;

	if (!in)
		return pd_error_failed(err, "%s: cannot be read: %s", lists->name, strerror(errno));
	result = pd_lines_read(in, lists->name, read_line, lists, err);
	fclose(in);
	if (result == 0)
		pd_lists_end(lists);
	return result;
}
