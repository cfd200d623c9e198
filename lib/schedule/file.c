/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pd-schedule(5): a header, then one small object per line. */
#include "schedule/file.h"

#include "base/json.h"
#include "base/lines.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MICROBATCHES (1 << 30)     /* checking takes a few bytes for each */

int pd_op_kind_read(const struct pd_place *place, const char *manual, enum pd_op_kind *kind_p,
		    struct pd_error *err)
{
	struct pd_place at = pd_place_key(place, "op");
	char meant[PD_MEANT_TEXT];
	const char *name;
	int kind;

	if (pd_json_string(&at, &name, err) < 0)
		return -1;
	kind = pd_names_index(pd_op_kind_name, name);
	if (kind < 0)
		return pd_place_error(&at, err, "expected an operation of %s such as \"forward\", found "
				      "\"%.60s\"%s", manual, name,
				      pd_names_say(pd_op_kind_name, name, meant));
	*kind_p = (enum pd_op_kind)kind;
	return 0;
}

int pd_op_bucket_read(const struct pd_place *place, const struct pd_plan *plan, struct pd_op *op,
		      struct pd_error *err)
{
	int64_t bucket = 0;
	int count;

	if (pd_json_opt_int(place, "bucket", 1, PD_MOST_BUCKETS, &bucket, err) < 0)
		return -1;
	if (bucket == 0)
		return 0;
	count = pd_plan_bucket_count(plan, op->stage);
	if (op->kind != PD_OP_allreduce && op->kind != PD_OP_backward &&
	    op->kind != PD_OP_backward_weight)
		return pd_place_error(place, err, "%s has no \"bucket\"",
				      pd_op_kind_name[op->kind]);
	if (count == 1 || bucket > count)
		return pd_place_error(place, err, "\"bucket\" is %" PRId64 "; stage %d has %d in "
				      "the plan", bucket, op->stage, count);
	op->bucket = (int16_t)bucket;
	op->more = bucket < count;
	return 0;
}

/*
 * Finds the link of a transfer.  One end is this operation's stage, the other a stage of the peer. 
 * peer_stage names that stage if there are several, else it is -1.
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

/* Reads peer, link and sequence number. */
static int read_parties(const struct pd_lists *lists, const struct pd_place *place,
			struct pd_op *op, struct pd_error *err)
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
	if (group >= 0 && ((op->kind != PD_OP_allreduce && op->kind != PD_OP_norms) || group != op->stage))
		return pd_place_error(place, err, "\"group\" is %" PRId64 "; expected none, or"
				      " with allreduce and norms the stage, %d", group, op->stage);
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
	int64_t stage, most = lists->microbatches;

	if (pd_op_kind_read(place, "pd-schedule(5)", &op->kind, err) < 0 ||
	    pd_json_get_int(place, "stage", 0, lists->plan->stage_count - 1, &stage, err) < 0 ||
	    pd_json_get_int(place, "microbatch", 0, most - 1, &op->microbatch, err) < 0 ||
	    pd_json_opt_int(place, "weight_version", 0, most, &op->version, err) < 0 ||
	    pd_json_opt_int(place, "seq", 0, INT64_MAX, &op->seq, err) < 0 ||
	    pd_json_opt_bool(place, "beside", &op->beside, err) < 0)
		return -1;
	if (pd_lists_replica(lists, op->rank, (int)stage) < 0)
		return pd_place_error(place, err, "rank %d is of stage %d in the plan, "
				      "found stage %" PRId64, op->rank,
				      lists->roles[lists->first_role[op->rank]].stage, stage);
	op->stage = (int32_t)stage;
	return pd_op_bucket_read(place, lists->plan, op, err) < 0
		? -1 : read_parties(lists, place, op, err);
}

/* Adds an operation of a rank, from a line of its own or from a block. */
static int add_op(struct pd_lists *lists, const struct pd_place *place, int rank, int64_t line,
		  struct pd_error *err)
{
	struct pd_op op = { .rank = rank, .peer = -1, .link = -1, .version = -1, .keep = -1,
			    .seq = -1 };
	struct pd_note note = { .line = line, .duration_ns = -1,
				.memory_delta_bytes = INT64_MIN };

	if (read_op(lists, place, &op, err) < 0 ||
	    pd_json_opt_int(place, "duration_ns", 0, PD_MAX_TIME_NS, &note.duration_ns, err) < 0 ||
	    pd_json_opt_int(place, "memory_delta_bytes", -PD_MAX_BYTES, PD_MAX_BYTES,
			    &note.memory_delta_bytes, err) < 0)
		return -1;
	pd_lists_add(lists, &op, &note);
	return 0;
}

/* Checks that the last repetition is still about microbatches of the document. */
static int check_last(const struct pd_lists *lists, const struct pd_place *place,
		      const struct pd_op *op, const struct pd_block *block, struct pd_error *err)
{
	int64_t times = block->repeat - 1, most = lists->microbatches, last;

	if (op->microbatch + times * block->microbatches >= most)
		return pd_place_error(place, err, "its last repetition is of microbatch %" PRId64
				      "; there are %" PRId64,
				      op->microbatch + times * block->microbatches, most);
	if (op->version >= 0 && op->version + times * block->versions > most)
		return pd_place_error(place, err, "its last repetition has version %" PRId64
				      "; there are %" PRId64 " microbatches",
				      op->version + times * block->versions, most);
	if (op->seq >= 0 && (!pd_mul(times, block->numbers, &last) ||
			     !pd_add(op->seq, last, &last)))
		return pd_place_error(place, err, "the seq of its last repetition is above 2^63");
	return 0;
}

static int read_operations(struct pd_lists *lists, const struct pd_place *place, int rank,
			   int64_t line, struct pd_block *block, struct pd_error *err)
{
	static const char *const known[] = { "op", "stage", "microbatch", "weight_version", "peer",
					     "peer_stage", "group", "bucket", "beside", "seq", "duration_ns",
					     "memory_delta_bytes", NULL };
	const struct pd_list *list = &lists->ranks[rank];
	struct pd_place operations = pd_place_key(place, "operations");

	if (pd_json_array(&operations, &block->length, err) < 0)
		return -1;
	if (block->length == 0)
		return pd_place_error(&operations, err, "expected one or more");
	for (size_t i = 0; i < block->length; i++) {
		struct pd_place at = pd_place_index(&operations, i);

		if (pd_json_keys(&at, known, err) < 0 || add_op(lists, &at, rank, line, err) < 0 ||
		    check_last(lists, &at, &list->ops[list->count - 1], block, err) < 0)
			return -1;
	}
	return 0;
}

static int read_block(struct pd_lists *lists, const struct pd_place *place, int rank,
		      int64_t line, struct pd_error *err)
{
	static const char *const known[] = { "rank", "repeat", "microbatch_advance",
					     "weight_version_advance", "seq_advance", "operations",
					     NULL };
	struct pd_block block = { .versions = 0 };
	int64_t most = lists->microbatches;

	if (pd_json_keys(place, known, err) < 0 ||
	    pd_json_get_int(place, "repeat", 1, most, &block.repeat, err) < 0 ||
	    pd_json_get_int(place, "microbatch_advance", 1, most, &block.microbatches, err) < 0 ||
	    pd_json_opt_int(place, "weight_version_advance", 0, most, &block.versions, err) < 0 ||
	    pd_json_opt_int(place, "seq_advance", 0, INT64_MAX, &block.numbers, err) < 0 ||
	    read_operations(lists, place, rank, line, &block, err) < 0)
		return -1;
	pd_lists_repeat(lists, rank, &block);
	return 0;
}

static int read_line(void *of, const struct pd_place *place, int64_t line, struct pd_error *err)
{
	static const char *const known[] = { "rank", "op", "stage", "microbatch", "weight_version",
					     "peer", "peer_stage", "group", "bucket", "beside", "seq",
					     "duration_ns", "memory_delta_bytes", NULL };
	struct pd_place operations = pd_place_key(place, "operations");
	struct pd_lists *lists = of;
	int64_t rank;

	/* An unknown key is reported before a missing one. */
	if ((!operations.value && pd_json_keys(place, known, err) < 0) ||
	    pd_json_get_int(place, "rank", 0, lists->rank_count - 1, &rank, err) < 0)
		return -1;
	return operations.value ? read_block(lists, place, (int)rank, line, err)
				: add_op(lists, place, (int)rank, line, err);
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
	if (plan && (minibatches > MOST_MICROBATCHES ||
		     minibatches * plan->microbatches > MOST_MICROBATCHES)) {
		pd_place_error(root, err, "minibatches: expected at most %d microbatches in all",
			       MOST_MICROBATCHES);
		pd_plan_free(plan);
		return NULL;
	}
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

static int read_json(FILE *in, const char *document, struct pd_lists **lists_p, struct pd_plan **plan_p,
		     struct pd_error *err)
{
	struct pd_place root = pd_place_root(document, NULL), format;
	json_t *value;

	value = root.value = pd_json_load_stream(in, root.document, true, err);
	if (value) {
		const char *name;

		format = pd_place_key(&root, "format");
		name = json_string_value(format.value);
		if (name && strcmp(name, "pd-schedule") == 0)
			*lists_p = pd_lists_read_at(in, &root, err);
		else if (name && strcmp(name, "pd-plan") != 0)
			pd_json_other_format(&format, "\"pd-schedule\" or \"pd-plan\"", err);
		else if (pd_document_end(in, root.document, "the plan", err) == 0)
			*plan_p = pd_plan_parse_at(&root, err);
	}
	json_decref(value);
	return *lists_p || *plan_p ? 0 : -1;
}

/* What is read of a file: a table is refused, or read for a plan. */
struct reading {
	const struct pd_table_door *const *doors;
	bool takes_tables;
	const struct pd_plan *of_table;
};

static int read_file(const char *file, const struct reading *reading, struct pd_lists **lists_p,
		     struct pd_plan **plan_p, struct pd_error *err)
{
	FILE *in = pd_document_open(file, err);
	const char *name = pd_document_name(file);
	const struct pd_table_door *door;
	int result;

	*lists_p = NULL;
	*plan_p = NULL;
	if (!in)
		return -1;
	door = pd_table_door_of(reading->doors, in);
	if (!door)
		result = read_json(in, name, lists_p, plan_p, err);
	else if (!reading->takes_tables)
		result = pd_error_input(
			err,
			"%s: this is a %s: pd-schedule --plan=plan.json makes a schedule of it",
			name, door->what);
	else
		result = (*lists_p = door->read(in, name, reading->of_table, err)) ? 0 : -1;
	pd_document_close(in);
	return result;
}

int pd_schedule_table_or_plan_read(const char *file, const struct pd_table_door *const *doors,
				   const struct pd_plan *of_table, struct pd_lists **lists_p,
				   struct pd_plan **plan_p, struct pd_error *err)
{
	const struct reading reading = { .doors = doors, .takes_tables = true, .of_table = of_table };

	return read_file(file, &reading, lists_p, plan_p, err);
}

int pd_schedule_or_plan_read(const char *file, const struct pd_table_door *const *doors,
			     struct pd_lists **lists_p, struct pd_plan **plan_p,
			     struct pd_error *err)
{
	const struct reading reading = { .doors = doors };

	return read_file(file, &reading, lists_p, plan_p, err);
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
