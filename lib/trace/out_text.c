/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the timeline in a terminal: cells such as F3-- and B1====. */
#include "base/mem.h"
#include "base/opt.h"
#include "trace/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CELLS 20
#define NAME 40

struct cell {
	const struct pd_record *record;
	int64_t time_ns;                /* part of the record in the cell */
};

/* Returns the ANSI colour of a kind, and the character that fills its cells. */
static const char *colour_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_forward:
		return "\033[44;97m";
	case PD_OP_recompute:
		return "\033[46;30m";
	case PD_OP_step:
		return "\033[45;97m";
	case PD_OP_backward_weight:
		return "\033[43;30m";
	default:
		return "\033[42;30m";
	}
}

static char filling_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_forward:
		return '-';
	case PD_OP_step:
		return '+';
	case PD_OP_recompute:
		return '~';
	case PD_OP_backward_weight:
		return ':';
	default:
		return '=';
	}
}

struct row {
	const struct pd_time_window *window;
	struct cell *cell;
	int cells;
};

static int64_t cell_begin(const struct row *row, int c)
{
	double length = (double)(row->window->end_ns - row->window->begin_ns);

	return row->window->begin_ns + (int64_t)(length * c / row->cells);
}

/* Calls use() for each operation of the lane in the window, with the cell in which it begins. */
static void for_operations(const struct pd_lane *lane, const struct row *row,
			   void (*use)(const struct row *row, const struct pd_record *record,
				       int first))
{
	int first = 0;

	for (size_t i = 0; i < lane->count; i++) {
		const struct pd_record *record = lane->bars[i].record;

		if (record->start_ns >= row->window->end_ns)
			break;
		while (first < row->cells && cell_begin(row, first + 1) <= record->start_ns)
			first++;
		use(row, record, first);
	}
}

/* Gives an operation the cells of which it takes more than the one that has them. */
static void claim(const struct row *row, const struct pd_record *record, int first)
{
	for (int c = first; c < row->cells && cell_begin(row, c) < record->end_ns; c++) {
		int64_t from = cell_begin(row, c), to = cell_begin(row, c + 1);

		if (from < record->start_ns)
			from = record->start_ns;
		if (to > record->end_ns)
			to = record->end_ns;
		if (to - from > row->cell[c].time_ns)
			row->cell[c] = (struct cell){ record, to - from };
	}
}

/* Tells whether an operation already has a cell; *middle_p is the cell of its middle. */
static bool is_seen(const struct row *row, const struct pd_record *record, int first, int *middle_p)
{
	int64_t middle = record->start_ns + (record->end_ns - record->start_ns) / 2;

	*middle_p = -1;
	for (int c = first; c < row->cells && cell_begin(row, c) <= record->end_ns; c++) {
		if (row->cell[c].record == record)
			return true;
		if (cell_begin(row, c) <= middle)
			*middle_p = c;
	}
	return false;
}

/* Tells whether the operation can give up the cell, because it has others or is an update. */
static bool may_give(const struct row *row, int c)
{
	const struct pd_record *record = row->cell[c].record;

	return !record || record->op.kind == PD_OP_step ||
	       (c > 0 && row->cell[c - 1].record == record) ||
	       (c + 1 < row->cells && row->cell[c + 1].record == record);
}

/*
 * Shows an operation that is too short for a cell in the cell of its middle, if no other operation
 * is lost.  Updates are not shown in this way, since they would fill the idle moments.
 */
static void show_short(const struct row *row, const struct pd_record *record, int first)
{
	int middle;

	if (record->op.kind != PD_OP_step && record->end_ns > row->window->begin_ns &&
	    !is_seen(row, record, first, &middle) && middle >= 0 && may_give(row, middle))
		row->cell[middle].record = record;
}

/*
 * Gives each cell to the operation that takes most of it, if that is at least half, and then other
 * cells to operations without one.
 */
static void fill_cells(const struct pd_lane *lane, const struct row *row)
{
	memset(row->cell, 0, (size_t)row->cells * sizeof(*row->cell));
	for_operations(lane, row, claim);
	for (int c = 0; c < row->cells; c++)
		if (2 * row->cell[c].time_ns < cell_begin(row, c + 1) - cell_begin(row, c))
			row->cell[c].record = NULL;
	for_operations(lane, row, show_short);
}

/*
 * Prints one operation over n cells: its label if that fits, with the stage if the rank has
 * several, else its letter.
 */
static void print_run(const struct pd_timeline *timeline, const struct pd_op *op, int n,
		      bool colour, FILE *out)
{
	char text[40], *label = text;
	int length;

	pd_op_short(op, label);
	if (timeline->stage_counts[op->rank] == 1)
		label += strspn(label, "0123456789");
	length = (int)strlen(label);
	if (length + (label == text) > n) {     /* with a stage, the label needs an end */
		label = text + strspn(text, "0123456789");
		length = 1;
	}
	if (colour)
		fputs(colour_of(op->kind), out);
	fwrite(label, 1, (size_t)length, out);
	for (int i = length; i < n; i++)
		putc(filling_of(op->kind), out);
	if (colour)
		fputs("\033[0m", out);
}

static void print_row(const struct pd_timeline *timeline, const struct row *row, bool colour,
		      FILE *out)
{
	const struct cell *cell = row->cell;

	for (int c = 0, n; c < row->cells; c += n) {
		n = 1;
		if (!cell[c].record) {
			putc('.', out);
			continue;
		}
		while (c + n < row->cells && cell[c + n].record == cell[c].record)
			n++;
		print_run(timeline, &cell[c].record->op, n, colour, out);
	}
	putc('\n', out);
}

/* Writes "2:5" or "0,4:0"; a long list of stages is cut. */
static const char *row_name(const struct pd_timeline *timeline, int rank, char name[NAME])
{
	char stages[NAME / 2];

	pd_timeline_stages(timeline, rank, ",", stages, sizeof(stages));
	snprintf(name, NAME, "%s:%d", stages, rank);
	return name;
}

static void print_window(const struct pd_timeline *timeline, const struct pd_time_window *window,
			 int columns, int label, bool colour, FILE *out)
{
	char from[32], to[32], each[32];
	int cells = columns - label - 1 < LEAST_CELLS ? LEAST_CELLS : columns - label - 1;
	int64_t zero = timeline->begin_ns;
	struct row row = { window, pd_calloc((size_t)cells, sizeof(*row.cell)), cells };

	fprintf(out, "%s%s%s to %s, one column is %s\n", window->what ? window->what : "",
		window->what ? ": " : "", pd_show_time(window->begin_ns - zero, from),
		pd_show_time(window->end_ns - zero, to),
		pd_show_time((window->end_ns - window->begin_ns) / cells, each));
	for (int i = 0; i < timeline->rank_count; i++) {
		int rank = timeline->rows[i];
		char name[NAME];

		fprintf(out, "%*s ", label, row_name(timeline, rank, name));
		fill_cells(pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE), &row);
		print_row(timeline, &row, colour, out);
	}
	free(row.cell);
}

/*
 * Returns the columns per operation with which an operation of two thirds of the mean length has
 * its label.
 */
static double columns_per_op(const struct pd_timeline *timeline)
{
	const struct pd_trace *trace = timeline->trace;
	int64_t highest = 0;
	double per_op;

	for (size_t i = 0; i < trace->count; i++)
		if (trace->records[i].op.microbatch > highest)
			highest = trace->records[i].op.microbatch;
	per_op = 1.5 * (1 + snprintf(NULL, 0, "%" PRId64, highest));
	if (timeline->rank_count && timeline->stage_counts[0] > 1)
		per_op += 1.5 * (1 + snprintf(NULL, 0, "%d", trace->plan->stage_count - 1));
	return per_op;
}

static void print_legend(const struct pd_view *views, int count, FILE *out)
{
	static const struct { enum pd_op_kind kind; const char *what; } legend[] = {
		{ PD_OP_forward, "forward" }, { PD_OP_backward, "backward" },
		{ PD_OP_backward_input, "backward, inputs" },
		{ PD_OP_backward_weight, "backward, weights" },
		{ PD_OP_recompute, "recompute" }, { PD_OP_step, "update" },
	};
	bool used[PD_OP_KINDS] = { false };

	for (int v = 0; v < count; v++)
		for (size_t i = 0; i < views[v].timeline->trace->count; i++)
			used[views[v].timeline->trace->records[i].op.kind] = true;
	fputs("stage:rank; ", out);
	for (size_t i = 0; i < PD_COUNT(legend); i++)
		if (used[legend[i].kind])
			fprintf(out, "%c%c %s, ", pd_op_kind_letter[legend[i].kind],
				filling_of(legend[i].kind), legend[i].what);
	fputs(". idle\n", out);
}

void pd_timeline_text(const struct pd_view *views, int count, int columns, bool colour, FILE *out)
{
	struct pd_time_window windows[count][2];
	double per_op = 0;
	int label = 0, n;

	for (int v = 0; v < count; v++) {
		double each = columns_per_op(views[v].timeline);

		per_op = each > per_op ? each : per_op;
		for (int r = 0; r < views[v].timeline->rank_count; r++) {
			char name[NAME];

			n = (int)strlen(row_name(views[v].timeline, r, name));
			label = n > label ? n : label;
		}
	}
	n = pd_view_windows(views, count, (columns - label - 1) / per_op, windows);
	print_legend(views, count, out);
	for (int w = 0; w < n; w++)
		for (int v = 0; v < count; v++) {
			putc('\n', out);
			if (views[v].name)
				fprintf(out, "%s\n", views[v].name);
			print_window(views[v].timeline, &windows[v][w], columns, label, colour,
				     out);
		}
}
