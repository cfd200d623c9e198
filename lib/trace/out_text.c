/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the timeline in a terminal: cells such as F3-- and B1====. */
#include "base/mem.h"
#include "base/opt.h"
#include "trace/window.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CELLS 20
#define LEAST_COLUMNS 1.5       /* of an operation without its stage, where a window must be long */
#define ROUNDING 0.5            /* an operation of so many more columns than n has n */
#define LABELLED 0.9            /* the part of a row's operations that must have room for a label */
#define NAME 48
#define PAIR '&'

struct cell {
	const struct pd_record *record, *beside;        /* beside: what ran together with it, or NULL */
	int64_t time_ns;                /* part of the record in the cell */
};

static int larger(int a, int b)
{
	return a > b ? a : b;
}

static bool is_evaluation(const struct pd_op *op)
{
	return op->evaluate && op->kind == PD_OP_forward;
}

static char letter_of(const struct pd_op *op)
{
	return is_evaluation(op) ? 'E' : pd_op_kind_letter[op->kind];
}

/* Returns the ANSI colour of an operation, and the character that fills its cells. */
static const char *colour_of(const struct pd_op *op)
{
	if (is_evaluation(op))
		return "\033[100;97m";
	switch (op->kind) {
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

static char filling_of(const struct pd_op *op)
{
	switch (op->kind) {
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

/* What a drawing has: letters of operations, and folded replicas. */
struct shown {
	bool letters[UCHAR_MAX + 1], folded;
};

struct row {
	struct shown *shown;
	const struct pd_window *window;
	struct cell *cell;
	int cells;
	double ns_per_cell;
};

static int64_t cell_begin(const struct row *row, int c)
{
	return pd_window_moment(row->window, (int64_t)(row->ns_per_cell * c));
}

/* Tells whether time is left out in a cell. */
static bool is_cut(const struct row *row, int c)
{
	for (int i = 0; i < row->window->cut_count; i++)
		if (cell_begin(row, c) <= row->window->cuts[i].begin_ns &&
		    cell_begin(row, c + 1) > row->window->cuts[i].begin_ns)
			return true;
	return false;
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
		if (!pd_window_has(row->window, record))
			continue;
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
			row->cell[c] = (struct cell){ record, NULL, to - from };
		else if (row->cell[c].record && row->cell[c].record->start_ns == record->start_ns &&
			 row->cell[c].record->end_ns == record->end_ns)
			row->cell[c].beside = record;
	}
}

/* Tells whether an operation already has a cell; *middle_p is the cell of its middle. */
static bool is_seen(const struct row *row, const struct pd_record *record, int first, int *middle_p)
{
	int64_t middle = record->start_ns + (record->end_ns - record->start_ns) / 2;

	*middle_p = -1;
	for (int c = first; c < row->cells && cell_begin(row, c) <= record->end_ns; c++) {
		if (row->cell[c].record == record || row->cell[c].beside == record)
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
		row->cell[middle] = (struct cell){ .record = record };
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
			row->cell[c].record = row->cell[c].beside = NULL;
	for_operations(lane, row, show_short);
}

/* What a label says; if the rank has several stages, the stage comes first, but in the shortest. */
enum label { NUMBER, KIND, SHORTEST };

/* Writes a label, and returns how many cells it needs. */
static int label_of(const struct pd_timeline *timeline, const struct pd_op *op, enum label which,
		    char label[40])
{
	char stage[16] = "", letter = letter_of(op);
	bool several = timeline->stage_counts[op->rank] > 1;

	if (several && which != SHORTEST)
		snprintf(stage, sizeof(stage), "%d", op->stage);
	if (which != NUMBER)
		return snprintf(label, 40, "%s%c", stage, letter);
	/* Before a number that is a stage, one that is a microbatch needs an end. */
	return snprintf(label, 40, "%s%c%" PRId64, stage, letter, op->microbatch) + several;
}

/* Returns how many cells from c on one operation has. */
static int run_of(const struct row *row, int c)
{
	int n = 1;

	while (c + n < row->cells && row->cell[c + n].record == row->cell[c].record &&
	       !is_cut(row, c + n))
		n++;
	return n;
}

/*
 * Decides for all operations of a row: they have numbers if nearly all have room for theirs.  Those of one
 * cell do not count.
 */
static enum label label_of_row(const struct pd_timeline *timeline, const struct row *row)
{
	int whole = 0, fit = 0;
	char label[40];

	for (int c = 0, n; c < row->cells; c += n) {
		const struct pd_record *record = row->cell[c].record;

		n = run_of(row, c);
		if (!record || n == 1 || !pd_window_has_whole(row->window, record))
			continue;
		whole++;
		fit += label_of(timeline, &record->op, NUMBER, label) * (row->cell[c].beside ? 2 : 1) <= n;
	}
	return fit >= LABELLED * whole ? NUMBER : KIND;
}

/* Prints one operation over n cells. */
static void print_run(const struct pd_timeline *timeline, const struct pd_op *op, int n,
		      enum label which, bool colour, FILE *out)
{
	char label[40];

	while (which < SHORTEST && label_of(timeline, op, which, label) > n)
		which++;
	label_of(timeline, op, which, label);
	if (colour)
		fputs(colour_of(op), out);
	fputs(label, out);
	for (int i = (int)strlen(label); i < n; i++)
		putc(filling_of(op), out);
	if (colour)
		fputs("\033[0m", out);
}

/* Prints two that ran together over n cells, one half in the colour of each. */
static void print_pair(const struct pd_timeline *timeline, const struct cell *cell, int n, enum label which,
		       bool colour, FILE *out)
{
	char first[40], second[40], label[84];

	do {
		label_of(timeline, &cell->record->op, which, first);
		label_of(timeline, &cell->beside->op, which, second);
		snprintf(label, sizeof(label), "%s%c%s", first, PAIR, second);
	} while ((int)strlen(label) > n && which++ < SHORTEST);
	if (which > SHORTEST)
		snprintf(label, sizeof(label), "%c", n > 1 ? letter_of(&cell->record->op) : PAIR);
	if (colour)
		fputs(colour_of(&cell->record->op), out);
	for (int i = 0; i < n; i++) {
		if (colour && i == n / 2)
			fputs(colour_of(&cell->beside->op), out);
		putc(i < (int)strlen(label) ? label[i] : PAIR, out);
	}
	if (colour)
		fputs("\033[0m", out);
}

static void print_row(const struct pd_timeline *timeline, const struct row *row, bool colour,
		      FILE *out)
{
	enum label which = label_of_row(timeline, row);

	for (int c = 0, n; c < row->cells; c += n) {
		n = is_cut(row, c) ? 1 : run_of(row, c);
		if (is_cut(row, c)) {
			putc('/', out);
		} else if (row->cell[c].beside) {
			row->shown->letters[PAIR] = true;
			row->shown->letters[(unsigned char)letter_of(&row->cell[c].record->op)] = true;
			row->shown->letters[(unsigned char)letter_of(&row->cell[c].beside->op)] = true;
			print_pair(timeline, &row->cell[c], n, which, colour, out);
		} else if (row->cell[c].record) {
			row->shown->letters[(unsigned char)letter_of(&row->cell[c].record->op)] = true;
			print_run(timeline, &row->cell[c].record->op, n, which, colour, out);
		} else {
			for (int i = 0; i < n; i++)
				putc('.', out);
		}
	}
	putc('\n', out);
}

/* Writes "2:5" or "0,4:0", or "2:8-15" for replicas in one row. */
static const char *row_name(const struct pd_timeline *timeline, int rank, char name[NAME])
{
	char stages[NAME / 2], ranks[NAME / 2];

	pd_timeline_stages(timeline, rank, ",", stages, sizeof(stages));
	snprintf(name, NAME, "%s:%s", stages,
		 pd_timeline_ranks(timeline, rank, ranks, sizeof(ranks)));
	return name;
}

static void print_window(const struct pd_timeline *timeline, const struct pd_window *window,
			 double ns_per_cell, int label, bool colour, struct shown *shown, FILE *out)
{
	char from[32], length[32], each[32];
	int64_t zero = timeline->begin_ns;
	struct row row = { .shown = shown, .window = window, .ns_per_cell = ns_per_cell };

	shown->folded |= timeline->folded;
	row.cells = (int)((double)pd_window_shown(window, window->end_ns) / ns_per_cell + 0.999);
	row.cell = pd_calloc((size_t)row.cells, sizeof(*row.cell));
	fprintf(out, "%s%s%s from %s on, one column is %s\n", window->what, *window->what ? ": " : "",
		pd_show_time(window->end_ns - window->begin_ns, length),
		pd_show_time(window->begin_ns - zero, from), pd_show_time((int64_t)ns_per_cell, each));
	for (int i = 0; i < timeline->row_count; i++) {
		int rank = timeline->rows[i];
		char name[NAME];

		fprintf(out, "%*s ", label, row_name(timeline, rank, name));
		fill_cells(pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE), &row);
		print_row(timeline, &row, colour, out);
	}
	free(row.cell);
}

/* Returns the columns that stages take in labels: none if ranks have one each. */
static int stage_columns(const struct pd_timeline *timeline)
{
	bool several = timeline->rank_count > 0 && timeline->stage_counts[0] > 1;

	return several ? snprintf(NULL, 0, "%d", timeline->trace->plan->stage_count - 1) : 0;
}

/* Returns the columns of the longest label, with its end. */
static int label_columns(const struct pd_timeline *timeline)
{
	const struct pd_trace *trace = timeline->trace;
	int64_t highest = 0;

	for (size_t i = 0; i < trace->count; i++)
		if (trace->records[i].op.microbatch > highest)
			highest = trace->records[i].op.microbatch;
	return stage_columns(timeline) + 1 + snprintf(NULL, 0, "%" PRId64, highest) +
	       (stage_columns(timeline) > 0);
}

/* Prints two lines: what it is, and its figures. */
static void print_title(const struct pd_view *view, FILE *out)
{
	char *title = pd_view_title(view), *figures = pd_view_figures(view);

	fprintf(out, "%s\n%s\n", title, figures);
	free(title);
	free(figures);
}

/* Explains what is shown, and nothing else. */
static void print_legend(const struct shown *shown, FILE *out)
{
	static const struct { struct pd_op op; const char *what; } legend[] = {
		{ { .kind = PD_OP_forward }, "forward" }, { { .kind = PD_OP_backward }, "backward" },
		{ { .kind = PD_OP_backward_input }, "backward, inputs" },
		{ { .kind = PD_OP_backward_weight }, "backward, weights" },
		{ { .kind = PD_OP_recompute }, "recompute" }, { { .kind = PD_OP_step }, "update" },
		{ { .kind = PD_OP_forward, .evaluate = true }, "forward of an evaluation" },
	};

	fputs("stage:rank; ", out);
	for (size_t i = 0; i < PD_COUNT(legend); i++) {
		char letter = letter_of(&legend[i].op);

		if (shown->letters[(unsigned char)letter])
			fprintf(out, "%c%c %s, ", letter, filling_of(&legend[i].op), legend[i].what);
	}
	if (shown->letters[PAIR])
		fprintf(out, "%c two together, ", PAIR);
	fprintf(out, ". idle%s\n", shown->folded ? "; of replicas, the first is drawn" : "");
}

void pd_timeline_text(const struct pd_view *views, int count, int columns, bool colour, FILE *out)
{
	struct pd_window windows[count][PD_WINDOWS];
	int names = 0, label = 0, stage = 0, cells;
	int64_t scales[PD_WINDOWS];
	struct shown shown = { .folded = false };
	char *body;
	size_t size;
	FILE *stream = pd_mem_stream(&body, &size);

	for (int v = 0; v < count; v++) {
		const struct pd_timeline *timeline = views[v].timeline;

		label = larger(label, label_columns(timeline));
		stage = larger(stage, stage_columns(timeline));
		for (int i = 0; i < timeline->row_count; i++) {
			char name[NAME];

			names = larger(names, (int)strlen(row_name(timeline, timeline->rows[i], name)));
		}
	}
	cells = larger(columns - names - 1, LEAST_CELLS);
	pd_windows_of(views, count, cells / (label + ROUNDING), cells / (stage + LEAST_COLUMNS), windows,
		      scales);
	for (int k = 0; k < PD_WINDOWS; k++)
		for (int v = 0; v < count; v++) {
			if (windows[v][k].end_ns == windows[v][k].begin_ns)
				continue;
			putc('\n', stream);
			if (views[v].name)
				fprintf(stream, "%s\n", views[v].name);
			print_window(views[v].timeline, &windows[v][k], (double)scales[k] / cells,
				     names, colour, &shown, stream);
		}
	pd_mem_stream_close(stream);
	for (int v = 0; v < count; v++)
		print_title(&views[v], out);
	print_legend(&shown, out);      /* what it has is known now */
	fwrite(body, 1, size, out);
	free(body);
}
