/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/torch/table.h"

#include "base/error.h"
#include "base/file_kind.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NUMBER 999999999   /* of stages and microbatches: nine digits */

static const bool has_microbatch[] = {
#define TORCH_ACTION(name, has_microbatch, what) has_microbatch,
#include "doors/torch/action.def"
#undef TORCH_ACTION
};

/* Where the text of a cell is. */
struct reading {
	struct pd_torch_table *table;
	int row;
	int64_t number;
	struct pd_error *err;
};

static int wrong(const struct reading *at, const char *text, const char *expected)
{
	return pd_error_input(at->err, "%s:%d, cell %" PRId64 ": expected %s, found \"%.40s\"",
			      at->table->name, at->row + 1, at->number, expected, text);
}

/* Reads digits; returns what is behind them, or NULL if there are none or too many. */
static const char *digits(const char *text, int64_t *out_p)
{
	int64_t n = 0;
	int count = 0;

	for (; isdigit((unsigned char)*text); text++, count++)
		if (n <= MOST_NUMBER)
			n = 10 * n + (*text - '0');
	*out_p = n;
	return count > 0 && n <= MOST_NUMBER ? text : NULL;
}

bool pd_torch_action_read(const char *text, struct pd_torch_named *out_p)
{
	const char *name = digits(text, &out_p->stage), *end = name;
	size_t length;

	while (end && (isupper((unsigned char)*end) || *end == '_'))
		end++;
	length = end ? (size_t)(end - name) : 0;
	for (int a = 0; a < PD_TORCH_ACTIONS && length > 0; a++) {
		if (strlen(pd_torch_action_name[a]) != length ||
		    strncmp(pd_torch_action_name[a], name, length) != 0)
			continue;
		out_p->action = (enum pd_torch_action)a;
		out_p->microbatch = -1;
		if (has_microbatch[a])
			end = digits(end, &out_p->microbatch);
		return end && *end == '\0';
	}
	return false;
}

static int add_action(const struct reading *at, const char *text)
{
	struct pd_torch_table *table = at->table;
	struct pd_torch_named named;

	if (!pd_torch_action_read(text, &named))
		return wrong(at, text, "an action such as 2F0 (stage; F, I, W, B or another of PyTorch's; its "
			     "microbatch where it has one)");
	table->cells = pd_grow(table->cells, &table->capacity, table->count + 1, sizeof(*table->cells));
	table->cells[table->count++] = (struct pd_torch_cell){
		.row = at->row, .number = at->number, .action = named.action, .stage = (int)named.stage,
		.microbatch = named.microbatch };
	return 0;
}

static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (isspace((unsigned char)*text))
		text++;
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

/* Reads "(0F8;7B0)OVERLAP_F_B", whose parts share the number of the cell. */
static int read_overlap(const struct reading *at, char *text)
{
	char *end = strchr(text, ')'), *next = text + 1;

	if (!end || strcmp(end + 1, "OVERLAP_F_B") != 0)
		return wrong(at, text, "(ACTION;ACTION)OVERLAP_F_B");
	*end = '\0';
	for (char *part = next; part; part = next) {
		next = strchr(part, ';');
		if (next)
			*next++ = '\0';
		if (add_action(at, trim(part)) < 0)
			return -1;
		if (at->table->cells[at->table->count - 1].action > PD_TORCH_B)
			return wrong(at, part, "computations in an OVERLAP_F_B");
	}
	return 0;
}

/* The characters of a cell. */
struct cell_text {
	char *chars;                    /* NUL-terminated; owned */
	size_t count, capacity;
};

static void cell_text_add(struct cell_text *text, char c)
{
	text->chars = pd_grow(text->chars, &text->capacity, text->count + 1, 1);
	text->chars[text->count++] = c;
}

/*
 * Reads a cell as Python's csv does: one that begins with a quotation mark ends at the next, and
 * two of them are one; CR, LF and CR LF end a row.  Returns ',', '\n' or EOF, which ends it, or 0
 * on failure.
 */
static int read_cell_text(struct reading *at, FILE *in, struct cell_text *text)
{
	bool quoted = false;
	int c = getc(in);

	text->count = 0;
	for (; c != EOF; c = getc(in)) {
		if (c == '\0')
			return pd_error_input(at->err, "%s:%d, cell %" PRId64 ": found a NUL character; expected "
					      "a text", at->table->name, at->row + 1, at->number), 0;
		if (c == '"' && quoted) {
			c = getc(in);
			quoted = c == '"';
			if (!quoted) {
				ungetc(c, in);
				continue;
			}
		} else if (c == '"' && text->count == 0) {
			quoted = true;
			continue;
		} else if (!quoted && (c == ',' || c == '\n' || c == '\r')) {
			break;
		}
		cell_text_add(text, (char)c);
	}
	if (quoted)
		return pd_error_input(at->err, "%s:%d, cell %" PRId64 ": the quotation mark that it begins with "
				      "is not closed", at->table->name, at->row + 1, at->number), 0;
	if (c == '\r' && (c = getc(in)) != '\n') {
		ungetc(c, in);
		c = '\n';
	}
	cell_text_add(text, '\0');
	return c;
}

/* Says what is wrong with the first cell of a row, which is no action: it may be no row of a rank.
 */
static int check_first(const struct reading *at, const char *text)
{
	const struct pd_file_kind *kind = at->row == 0 ? pd_file_kind(text, strlen(text)) : NULL;
	char found[PD_FILE_KIND_TEXT];

	if (kind)
		return pd_error_input(at->err, "%s: expected a document or a table of PyTorch%s",
				      at->table->name, pd_file_kind_say(kind, found));
	if (*text == '#')
		return pd_error_input(at->err, "%s:%d: this is a comment, which PyTorch takes for a rank; "
				      "expected the actions of rank %d: delete the line", at->table->name,
				      at->row + 1, at->row);
	if (at->row == 0 && isalpha((unsigned char)*text))
		return pd_error_input(at->err, "%s:1: \"%.40s\" begins a header, which PyTorch takes for a "
				      "rank; expected the actions of rank 0, such as 0F0: delete the line, and "
				      "a column of names", at->table->name, text);
	return 0;
}

static int read_cell(struct reading *at, char *text)
{
	char *cell = trim(text);

	if (at->number == 1 && check_first(at, cell) < 0)
		return -1;
	if (!*cell && at->table->idle_row < 0) {
		at->table->idle_row = at->row;
		at->table->idle_number = at->number;
	}
	return !*cell ? 0 : *cell == '(' ? read_overlap(at, cell) : add_action(at, cell);
}

static int read_row(struct reading *at, FILE *in, struct cell_text *text)
{
	size_t before = at->table->count;
	int end;

	at->number = 0;
	do {
		at->number++;
		end = read_cell_text(at, in, text);
		if (end == 0 || read_cell(at, text->chars) < 0)
			return -1;
	} while (end == ',');
	if (at->table->count == before)
		return pd_error_no(
			at->err,
			"%s:%d: rank %d has no action: PyTorch takes an empty line for a rank, "
			"too; expected a stage for each",
			at->table->name, at->row + 1, at->row);
	at->row++;
	return 0;
}

static int read_rows(FILE *in, struct pd_torch_table *table, struct pd_error *err)
{
	struct reading at = { .table = table, .err = err };
	struct cell_text text = { 0 };
	int result = 0, c;

	while (result == 0 && (c = getc(in)) != EOF) {
		ungetc(c, in);
		result = at.row == PD_MAX_RANKS
			? pd_error_input(err, "%s: expected at most %d rows", table->name, PD_MAX_RANKS)
			: read_row(&at, in, &text);
	}
	free(text.chars);
	table->row_count = at.row;
	if (result == 0 && ferror(in))
		return pd_error_input(err, "%s: cannot read: %s", table->name, strerror(errno));
	if (result == 0 && at.row == 0)
		return pd_error_input(err, "%s: expected a row of actions for each rank, found nothing",
				      table->name);
	return result;
}

int pd_torch_no(const struct pd_torch_table *table, const struct pd_torch_cell *cell,
		struct pd_error *err, const char *fmt, ...)
{
	char text[240], microbatch[24] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (cell->microbatch >= 0)
		snprintf(microbatch, sizeof(microbatch), "%" PRId64, cell->microbatch);
	return pd_error_no(err, "%s:%d, cell %" PRId64 ": rank %d, %d%s%s: %s", table->name, cell->row + 1,
			   cell->number, cell->row, cell->stage, pd_torch_action_name[cell->action], microbatch,
			   text);
}

/* Sets which row has each stage. */
static int place_stages(struct pd_torch_table *table, struct pd_error *err)
{
	int *stages = pd_calloc((size_t)table->row_count, sizeof(*stages)), result = 0;

	table->row_of = pd_calloc((size_t)table->stage_count, sizeof(*table->row_of));
	for (int s = 0; s < table->stage_count; s++)
		table->row_of[s] = -1;
	for (size_t i = 0; i < table->count && result == 0; i++) {
		const struct pd_torch_cell *cell = &table->cells[i];
		int *row = &table->row_of[cell->stage];

		if (*row < 0) {
			*row = cell->row;
			table->shared |= stages[cell->row]++ > 0;
		} else if (*row != cell->row) {
			result = pd_torch_no(
				table, cell, err,
				"rank %d has stage %d, too; expected one rank for a stage", *row,
				cell->stage);
		}
	}
	for (int s = 0; s < table->stage_count && result == 0; s++)
		if (table->row_of[s] < 0)
			result = pd_error_no(err, "%s: no rank has stage %d; expected stages 0 to %d", table->name,
					     s, table->stage_count - 1);
	free(stages);
	return result;
}

static int by_number(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Returns the number of microbatches that most stages have, so that a wrong number is found where
 * it is. */
static int64_t most_common(const struct pd_torch_table *table)
{
	int64_t *counts = pd_calloc((size_t)table->stage_count, sizeof(*counts)), best = 0;
	int most = 0, run = 0;

	for (size_t i = 0; i < table->count; i++)
		if (table->cells[i].microbatch >= counts[table->cells[i].stage])
			counts[table->cells[i].stage] = table->cells[i].microbatch + 1;
	qsort(counts, (size_t)table->stage_count, sizeof(*counts), by_number);
	for (int s = 0; s < table->stage_count; s++) {
		run = s > 0 && counts[s] == counts[s - 1] ? run + 1 : 1;
		if (run >= most) {
			most = run;
			best = counts[s];
		}
	}
	free(counts);
	return best;
}

/* Sets how many stages and microbatches there are, as far as the numbers can be right. */
static int set_counts(struct pd_torch_table *table, struct pd_error *err)
{
	bool reduces = false;

	for (size_t i = 0; i < table->count; i++) {
		const struct pd_torch_cell *cell = &table->cells[i];

		reduces |= cell->action >= PD_TORCH_REDUCE_GRAD;
		table->comms |= cell->action > PD_TORCH_B && cell->action < PD_TORCH_REDUCE_GRAD;
		table->splits |= cell->action == PD_TORCH_I || cell->action == PD_TORCH_W;
		if (cell->stage >= table->stage_count)
			table->stage_count = cell->stage + 1;
	}
	if ((size_t)table->stage_count > table->count)
		return pd_error_no(err, "%s: the table has %zu actions, too few for stages 0 to %d", table->name,
				   table->count, table->stage_count - 1);
	table->microbatches = most_common(table);
	table->comms |= reduces && table->row_count == 1;
	if ((size_t)table->stage_count * (size_t)table->microbatches <= table->count)
		return 0;
	return pd_error_no(err, "%s: the table has %zu actions, too few for %d stages and %" PRId64
			   " microbatches, each of which goes forward and backward through every stage",
			   table->name, table->count, table->stage_count, table->microbatches);
}

/* Refuses what PyTorch does not take in a table of its kind. */
static int check_kind(const struct pd_torch_table *table, struct pd_error *err)
{
	if (table->comms && table->idle_row >= 0)
		return pd_error_no(err,
				   "%s:%d, cell %" PRId64
				   ": rank %d: empty: PyTorch takes no idle moments in a "
				   "table with transfers, nor a comma at its end",
				   table->name, table->idle_row + 1, table->idle_number,
				   table->idle_row);
	for (size_t i = 0; i < table->count && !table->comms; i++)
		if (table->cells[i].action > PD_TORCH_B)
			return pd_torch_no(table, &table->cells[i], err, "a table without transfers (compute_only) "
					   "has F, I, W, B and OVERLAP_F_B alone: PyTorch adds reductions itself");
	return 0;
}

int pd_torch_check_losses(const struct pd_torch_table *table, struct pd_error *err)
{
	int64_t before = -1;

	for (size_t i = 0; i < table->count; i++) {
		const struct pd_torch_cell *cell = &table->cells[i];

		if (cell->stage != table->stage_count - 1 || cell->action != PD_TORCH_F)
			continue;
		if (cell->microbatch < before)
			return pd_torch_no(table, cell, err, "the last stage has done the forward of microbatch %"
					   PRId64 " before: " PD_TORCH_LOSS_RULE, before);
		before = cell->microbatch;
	}
	return 0;
}

/* What has been done in a row so far. */
struct comms {
	const struct pd_torch_table *table;
	bool *pending; /* [stage][activations, gradients][microbatch]: sent, not waited for */
	int *reduced;                   /* per stage: 0 no, 1 begun, 2 waited for */
};

static bool *pending(const struct comms *c, const struct pd_torch_cell *cell)
{
	int gradient = cell->action == PD_TORCH_SEND_B || cell->action == PD_TORCH_WAIT_SEND_B;

	return &c->pending[((int64_t)2 * cell->stage + gradient) * c->table->microbatches +
			   cell->microbatch];
}

static int follow(struct comms *c, const struct pd_torch_cell *cell, struct pd_error *err)
{
	int *reduced = &c->reduced[cell->stage];

	if (cell->microbatch >= c->table->microbatches)
		return pd_torch_no(c->table, cell, err, "expected a microbatch from 0 to %" PRId64,
				   c->table->microbatches - 1);
	switch (cell->action) {
	case PD_TORCH_SEND_F:
	case PD_TORCH_SEND_B:
		*pending(c, cell) = true;
		return 0;
	case PD_TORCH_WAIT_SEND_F:
	case PD_TORCH_WAIT_SEND_B:
		if (!*pending(c, cell))
			return pd_torch_no(c->table, cell, err, "its send does not stand before it, or has been "
					   "waited for");
		*pending(c, cell) = false;
		return 0;
	case PD_TORCH_B:
	case PD_TORCH_W:
		return *reduced == 0 ? 0
				     : pd_torch_no(c->table, cell, err,
						   "the stage's REDUCE_GRAD stands before "
						   "it: its gradients would be left out");
	case PD_TORCH_REDUCE_GRAD:
		if (*reduced != 0)
			return pd_torch_no(c->table, cell, err, "a second time; expected it once");
		*reduced = 1;
		return 0;
	case PD_TORCH_WAIT_REDUCE_GRAD:
		if (*reduced != 1)
			return pd_torch_no(c->table, cell, err, "its REDUCE_GRAD does not stand before it, or has been "
					   "waited for");
		*reduced = 2;
		return 0;
	default:
		return 0;
	}
}

static int check_ends(const struct comms *c, struct pd_error *err)
{
	const struct pd_torch_table *table = c->table;

	for (size_t i = 0; i < table->count; i++) {
		const struct pd_torch_cell *cell = &table->cells[i];

		if ((cell->action == PD_TORCH_SEND_F || cell->action == PD_TORCH_SEND_B) && *pending(c, cell))
			return pd_torch_no(table, cell, err, "no WAIT_%s stands behind it, without which PyTorch "
					   "2.15 refuses the table", pd_torch_action_name[cell->action]);
	}
	for (int s = 0; s < table->stage_count; s++)
		if (c->reduced[s] < 2)
			return pd_error_no(err, "%s:%d: rank %d, at its end: no %sREDUCE_GRAD of stage %d: %s",
					   table->name, table->row_of[s] + 1, table->row_of[s],
					   c->reduced[s] ? "WAIT_" : "", s, c->reduced[s]
					   ? "PyTorch 2.15 refuses the table"
					   : "PyTorch would not take the mean over microbatches, and say nothing");
	return 0;
}

int pd_torch_check_comms(const struct pd_torch_table *table, struct pd_error *err)
{
	size_t stages = (size_t)table->stage_count;
	struct comms c = {
		.table = table,
		.pending = pd_calloc(2 * stages * (size_t)table->microbatches, sizeof(bool)),
		.reduced = pd_calloc(stages, sizeof(*c.reduced)),
	};
	int result = 0;

	for (size_t i = 0; i < table->count && result == 0; i++)
		result = follow(&c, &table->cells[i], err);
	if (result == 0)
		result = check_ends(&c, err);
	free(c.pending);
	free(c.reduced);
	return result;
}

int pd_torch_table_read(FILE *in, const char *name, struct pd_torch_table *out_p,
			struct pd_error *err)
{
	struct pd_torch_table table = { .name = pd_strdup(name), .idle_row = -1 };

	if (read_rows(in, &table, err) < 0 || set_counts(&table, err) < 0 ||
	    place_stages(&table, err) < 0 || check_kind(&table, err) < 0) {
		pd_torch_table_release(&table);
		return -1;
	}
	*out_p = table;
	return 0;
}

void pd_torch_table_release(struct pd_torch_table *table)
{
	free(table->name);
	free(table->cells);
	free(table->row_of);
	*table = (struct pd_torch_table){ 0 };
}
