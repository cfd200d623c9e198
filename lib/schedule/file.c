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

/* An operation as a document has it; read_line() copies the rows, with bounds by the plan where they have INT32_MAX. */
struct op_line {
	struct pd_op op;
	int32_t peer_stage, group;
	struct pd_note note;
};

struct block_line {
	int32_t rank;
	struct pd_block block;
};

static int read_op_kind(const struct pd_place *place, void *member, struct pd_error *err)
{
	return pd_op_kind_read(place->up, "pd-schedule(5)", member, err);
}

#define IN(member) PD_MEMBER(struct op_line, member)
#define BY_PLAN PD_ROW_INT, .most = INT32_MAX

const struct pd_key_row pd_schedule_op_rows[] = {
	{ "rank", BY_PLAN, .needed = true, IN(op.rank) },
	{ "op", PD_ROW_BY, .needed = true, IN(op.kind), .read = read_op_kind },
	{ "stage", BY_PLAN, .needed = true, IN(op.stage) },
	{ "microbatch", BY_PLAN, .needed = true, IN(op.microbatch) },
	{ "weight_version", BY_PLAN, IN(op.version), .otherwise = -1 },
	{ "peer", BY_PLAN, IN(op.peer), .otherwise = -1 },
	{ "peer_stage", BY_PLAN, IN(peer_stage), .otherwise = -1 },
	{ "group", BY_PLAN, IN(group), .otherwise = -1 },
	{ "bucket", PD_ROW_BY },
	{ "beside", PD_ROW_BOOL, IN(op.beside) },
	{ "seq", PD_ROW_INT, IN(op.seq), .otherwise = -1 },
	{ "duration_ns", PD_ROW_INT, IN(note.duration_ns), .most = PD_MAX_TIME_NS, .otherwise = -1 },
	{ "memory_delta_bytes", PD_ROW_INT, IN(note.memory_delta_bytes), .least = -PD_MAX_BYTES,
	  .most = PD_MAX_BYTES, .otherwise = INT64_MIN },
	{ NULL }
};

#undef IN
#define IN(member) PD_MEMBER(struct block_line, member)

const struct pd_key_row pd_schedule_block_rows[] = {
	{ "rank", BY_PLAN, .needed = true, IN(rank) },
	{ "repeat", BY_PLAN, .needed = true, IN(block.repeat), .least = 1 },
	{ "microbatch_advance", BY_PLAN, .needed = true, IN(block.microbatches), .least = 1 },
	{ "weight_version_advance", BY_PLAN, IN(block.versions) },
	{ "seq_advance", PD_ROW_INT, IN(block.numbers) },
	{ "operations", PD_ROW_BY, .needed = true, .rows = pd_schedule_op_rows + 1 },
	{ NULL }
};

#undef IN
#define IN(member) PD_MEMBER(struct pd_lists, member)

static int read_plan(const struct pd_place *place, void *of, struct pd_error *err)
{
	struct pd_lists *lists = of;

	lists->plan = lists->owned = pd_plan_parse_at(place, err);
	return lists->plan ? 0 : -1;
}

static json_t *plan_json(const void *of)
{
	const struct pd_lists *lists = of;

	return pd_plan_json(lists->plan);
}

const struct pd_key_row pd_schedule_rows[] = {
	PD_ROWS_HEADER("pd-schedule", 1),
	{ "plan", PD_ROW_BY, .needed = true, .rows = pd_plan_rows, .read = read_plan, .write = plan_json },
	{ "minibatches", PD_ROW_INT, .needed = true, IN(minibatches), .least = 1, .most = INT64_C(1) << 40 },
	{ NULL }
};

struct reader {
	struct pd_lists *lists;
	struct pd_key_row op_rows[PD_COUNT(pd_schedule_op_rows)];
	struct pd_key_row block_rows[PD_COUNT(pd_schedule_block_rows)];
};

/* Checks peer, peer_stage and group, and finds the link. */
static int check_parties(const struct pd_lists *lists, const struct pd_place *place, struct op_line *line,
			 struct pd_error *err)
{
	struct pd_op *op = &line->op;

	if ((op->peer >= 0 || line->peer_stage >= 0) && !pd_op_transfers(op->kind))
		return pd_place_error(place, err, "%s has no \"%s\"", pd_op_kind_name[op->kind],
				      op->peer >= 0 ? "peer" : "peer_stage");
	if (line->group >= 0 &&
	    ((op->kind != PD_OP_allreduce && op->kind != PD_OP_norms) || line->group != op->stage))
		return pd_place_error(place, err, "\"group\" is %" PRId32 "; expected none, or"
				      " with allreduce and norms the stage, %d", line->group, op->stage);
	if (!pd_op_transfers(op->kind))
		return 0;
	if (op->peer < 0)
		return pd_place_error(place, err, "expected a \"peer\" for %s",
				      pd_op_kind_name[op->kind]);
	return find_link(lists, place, op, line->peer_stage, err);
}

/* Adds an operation, from a line of its own, or from a block of a rank that is known. */
static int add_op(const struct reader *reader, const struct pd_place *place, int rank, int64_t number,
		  struct pd_error *err)
{
	struct pd_lists *lists = reader->lists;
	struct op_line line = { .op.rank = rank, .op.link = -1, .op.keep = -1, .note.line = number };
	struct pd_op *op = &line.op;

	if (pd_rows_read(place, reader->op_rows + (rank >= 0), &line, err) < 0)
		return -1;
	if (pd_lists_replica(lists, op->rank, op->stage) < 0)
		return pd_place_error(place, err, "rank %d is of stage %d in the plan, "
				      "found stage %" PRId32, op->rank,
				      lists->roles[lists->first_role[op->rank]].stage, op->stage);
	if (pd_op_bucket_read(place, lists->plan, op, err) < 0 || check_parties(lists, place, &line, err) < 0)
		return -1;
	pd_lists_add(lists, op, &line.note);
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

static int read_block(const struct reader *reader, const struct pd_place *place, int64_t number,
		      struct pd_error *err)
{
	struct pd_place operations = pd_place_key(place, "operations");
	struct block_line line = { .rank = 0 };
	const struct pd_list *list;

	if (pd_rows_read(place, reader->block_rows, &line, err) < 0 ||
	    pd_json_array(&operations, &line.block.length, err) < 0)
		return -1;
	if (line.block.length == 0)
		return pd_place_error(&operations, err, "expected one or more");
	list = &reader->lists->ranks[line.rank];
	for (size_t i = 0; i < line.block.length; i++) {
		struct pd_place at = pd_place_index(&operations, i);

		if (add_op(reader, &at, line.rank, number, err) < 0 ||
		    check_last(reader->lists, &at, &list->ops[list->count - 1], &line.block, err) < 0)
			return -1;
	}
	pd_lists_repeat(reader->lists, line.rank, &line.block);
	return 0;
}

static int read_line(void *of, const struct pd_place *place, int64_t number, struct pd_error *err)
{
	return json_object_get(place->value, "operations") ? read_block(of, place, number, err)
							   : add_op(of, place, -1, number, err);
}

static int read_lines(FILE *in, struct pd_lists *lists, struct pd_error *err)
{
	const struct pd_plan *plan = lists->plan;
	int64_t most = lists->microbatches;
	struct reader reader = { .lists = lists };

	memcpy(reader.op_rows, pd_schedule_op_rows, sizeof(reader.op_rows));
	memcpy(reader.block_rows, pd_schedule_block_rows, sizeof(reader.block_rows));
	pd_rows_bound(reader.op_rows, "rank", lists->rank_count - 1);
	pd_rows_bound(reader.op_rows, "stage", plan->stage_count - 1);
	pd_rows_bound(reader.op_rows, "microbatch", most - 1);
	pd_rows_bound(reader.op_rows, "weight_version", most);
	pd_rows_bound(reader.op_rows, "peer", plan->rank_count - 1);
	pd_rows_bound(reader.op_rows, "peer_stage", plan->stage_count - 1);
	pd_rows_bound(reader.op_rows, "group", plan->stage_count - 1);
	pd_rows_bound(reader.block_rows, "rank", lists->rank_count - 1);
	pd_rows_bound(reader.block_rows, "repeat", most);
	pd_rows_bound(reader.block_rows, "microbatch_advance", most);
	pd_rows_bound(reader.block_rows, "weight_version_advance", most);
	if (pd_lines_read(in, lists->name, read_line, &reader, err) < 0)
		return -1;
	pd_lists_end(lists);
	return 0;
}

static struct pd_lists *read_header(const struct pd_place *root, struct pd_error *err)
{
	struct pd_lists header = { .name = NULL };
	int result = pd_rows_read(root, pd_schedule_rows, &header, err);

	if (result == 0 && (header.minibatches > MOST_MICROBATCHES ||
			    header.minibatches * header.plan->microbatches > MOST_MICROBATCHES))
		result = pd_place_error(root, err, "minibatches: expected at most %d microbatches in all",
					MOST_MICROBATCHES);
	if (result == 0)
		return pd_lists_new(root->document, NULL, header.owned, header.minibatches, err);
	pd_plan_free(header.owned);
	return NULL;
}

struct pd_lists *pd_lists_read_at(FILE *in, const struct pd_place *root, struct pd_error *err)
{
	struct pd_lists *lists = read_header(root, err);

	if (!lists)
		return NULL;
	if (read_lines(in, lists, err) < 0) {
		pd_lists_free(lists);
		return NULL;
	}
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
	result = read_lines(in, lists, err);
	fclose(in);
	return result;
}
