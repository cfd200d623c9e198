/* SPDX-License-Identifier: Apache-2.0 */
/* Writes pd-schedule(5): every operation, or a steady state once. */
#include "schedule/file.h"

#include "base/json.h"
#include "base/mem.h"
#include "schedule/compact.h"
#include "schedule/price.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The source of operations, and the output. */
struct written {
	FILE *out;
	const struct pd_lists *lists;
	const struct pd_schedule *schedule;     /* NULL: the operations are those of the lists */
	const struct pd_prices *prices;
};

static int write_header(FILE *out, const struct pd_lists *lists, struct pd_error *err)
{
	json_t *header = pd_rows_json(pd_schedule_rows, lists);
	int result = json_dumpf(header, out, JSON_COMPACT |
				JSON_REAL_PRECISION((size_t)pd_json_digits(header)));

	json_decref(header);
	if (result < 0 || fputc('\n', out) == EOF)
		return pd_error_failed(err, "cannot write the schedule: %s", strerror(errno));
	return 0;
}

/* Writes an operation, without the beginning with its rank, and without its end. */
static void write_op(FILE *out, const struct pd_lists *lists, const struct pd_op *op)
{
	fprintf(out, "\"op\":\"%s\",\"stage\":%" PRId32 ",\"microbatch\":%" PRId64,
		pd_op_kind_name[op->kind], op->stage, op->microbatch);
	if (op->version >= 0)
		fprintf(out, ",\"weight_version\":%" PRId64, op->version);
	if (op->peer >= 0)
		fprintf(out, ",\"peer\":%" PRId32, op->peer);
	if (op->link >= 0 && lists->first_role[op->peer + 1] - lists->first_role[op->peer] > 1)
		fprintf(out, ",\"peer_stage\":%d", pd_op_at_end(op->kind)
			? lists->wiring->links[op->link].from : lists->wiring->links[op->link].to);
	if (op->kind == PD_OP_allreduce || op->kind == PD_OP_norms)
		fprintf(out, ",\"group\":%" PRId32, op->stage);
	if (op->bucket > 0)
		fprintf(out, ",\"bucket\":%d", op->bucket);
	if (op->beside)
		fputs(",\"beside\":true", out);
	if (op->seq >= 0)
		fprintf(out, ",\"seq\":%" PRId64, op->seq);
}

static void write_note(FILE *out, const struct pd_note *note)
{
	fprintf(out, ",\"duration_ns\":%" PRId64 ",\"memory_delta_bytes\":%" PRId64,
		note->duration_ns, note->memory_delta_bytes);
}

/* Writes operations `from` to `to` - 1 of a list, a line each. */
static void write_lines(FILE *out, const struct pd_lists *lists, int rank,
			const struct pd_list *list, size_t from, size_t to)
{
	for (size_t n = from; n < to; n++) {
		fprintf(out, "{\"rank\":%d,", rank);
		write_op(out, lists, &list->ops[n]);
		if (list->notes)
			write_note(out, &list->notes[n]);
		fputs("}\n", out);
	}
}

static void write_block(FILE *out, const struct pd_lists *lists, int rank,
			const struct pd_list *list, const struct pd_block *block)
{
	fprintf(out, "{\"rank\":%d,\"repeat\":%" PRId64 ",\"microbatch_advance\":%" PRId64
		",\"weight_version_advance\":%" PRId64 ",\"seq_advance\":%" PRId64
		",\"operations\":[", rank, block->repeat, block->microbatches, block->versions,
		block->numbers);
	for (size_t n = block->first; n < block->first + block->length; n++) {
		fputs(n > block->first ? ",{" : "{", out);
		write_op(out, lists, &list->ops[n]);
		if (list->notes)
			write_note(out, &list->notes[n]);
		putc('}', out);
	}
	fputs("]}\n", out);
}

/* Writes a list as it is stored. */
static void write_list(FILE *out, const struct pd_lists *lists, int rank,
		       const struct pd_list *list)
{
	size_t n = 0;

	for (size_t b = 0; b < list->block_count && !ferror(out); b++) {
		const struct pd_block *block = &list->blocks[b];

		write_lines(out, lists, rank, list, n, block->first);
		write_block(out, lists, rank, list, block);
		n = block->first + block->length;
	}
	write_lines(out, lists, rank, list, n, list->count);
}

/* Calls a function for each operation of a rank, with its note. */
static void each_op(const struct written *from, int rank, int64_t microbatches,
		    void (*show)(void *context, const struct pd_op *op, const struct pd_note *note),
		    void *context)
{
	const struct pd_note *notes = from->lists->ranks[rank].notes;
	struct pd_account account;
	struct pd_op_source source;
	struct pd_op op;

	pd_account_init(&account, from->prices, microbatches);
	pd_op_source_begin(&source, from->schedule, from->lists, rank, microbatches);
	while (pd_op_source_next(&source, &op))
		pd_account_expect(&account, &op);
	pd_op_source_end(&source);
	pd_op_source_begin(&source, from->schedule, from->lists, rank, microbatches);
	while (pd_op_source_next(&source, &op) && !ferror(from->out)) {
		const struct pd_note *said = notes ? &notes[source.list.at] : NULL;
		struct pd_note note = { .duration_ns = said ? said->duration_ns : -1 };

		if (note.duration_ns < 0)
			note.duration_ns = pd_account_duration_ns(&account, &op);
		note.memory_delta_bytes = pd_account_enter(&account, &op);
		show(context, &op, &note);
	}
	pd_op_source_end(&source);
	pd_account_release(&account);
}

static void show_line(void *context, const struct pd_op *op, const struct pd_note *note)
{
	const struct written *to = context;

	fprintf(to->out, "{\"rank\":%d,", op->rank);
	write_op(to->out, to->lists, op);
	write_note(to->out, note);
	fputs("}\n", to->out);
}

static void show_list(void *context, const struct pd_op *op, const struct pd_note *note)
{
	pd_list_add(context, op, note);
}

/*
 * Writes a steady state once.  If the generator makes the list, a shorter one with the same steady
 * state is enough: more repetitions change only the numbers before and behind them.
 */
static void write_compact(const struct written *from, int rank)
{
	int64_t period = pd_compact_period(from->lists, rank), all = from->lists->microbatches;
	int64_t fewer = from->schedule ? pd_compact_fewer(from->schedule, period, all) : all;
	struct pd_list list = { 0 };

	each_op(from, rank, fewer, show_list, &list);
	if (!pd_compact(&list, period, period ? (all - fewer) / period : 0)) {
		pd_list_release(&list);
		each_op(from, rank, all, show_list, &list);
	}
	write_list(from->out, from->lists, rank, &list);
	pd_list_release(&list);
}

/* Writes operations from schedule, or from the lists if it is NULL. */
static int write_all(FILE *out, const struct pd_lists *lists, const struct pd_schedule *schedule,
		     bool compact, struct pd_error *err)
{
	struct pd_prices prices;
	struct written written = { .out = out, .lists = lists, .schedule = schedule,
				   .prices = &prices };

	if (write_header(out, lists, err) < 0)
		return -1;
	pd_prices_init(&prices, lists->plan, lists->wiring);
	for (int r = 0; r < lists->rank_count && !ferror(out); r++)
		if (compact)
			write_compact(&written, r);
		else
			each_op(&written, r, lists->microbatches, show_line, &written);
	pd_prices_release(&prices);
	if (fflush(out) != 0 || ferror(out))
		return pd_error_failed(err, "cannot write the schedule: %s", strerror(errno));
	return 0;
}

int pd_schedule_write(FILE *out, const struct pd_schedule *schedule, int64_t minibatches,
		      bool compact, struct pd_error *err)
{
	struct pd_lists *empty = pd_lists_new("plan", schedule->plan, NULL, minibatches, err);
	int result = empty ? pd_schedule_fits(schedule, empty->microbatches, err) : -1;

	if (result == 0)
		result = write_all(out, empty, schedule, compact, err);
	pd_lists_free(empty);
	return result;
}

int pd_lists_write(FILE *out, const struct pd_lists *lists, bool compact, struct pd_error *err)
{
	return write_all(out, lists, NULL, compact, err);
}

char *pd_lists_text(const struct pd_lists *lists, int rank)
{
	struct pd_list list = lists->ranks[rank];
	char *text = NULL;
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	list.notes = NULL;
	putc('\n', out);                /* a document has its header here */
	write_list(out, lists, rank, &list);
	pd_mem_stream_close(out);
	return text;
}
