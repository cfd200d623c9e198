/* SPDX-License-Identifier: Apache-2.0 */
#include "base/grid.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct pd_grid {
	const char *const *columns;
	size_t width, count, room;      /* columns; cells */
	char **cells;                   /* row by row */
};

struct pd_grid *pd_grid_new(const char *const *columns)
{
	struct pd_grid *grid = pd_zalloc(sizeof(*grid));

	grid->columns = columns;
	while (columns[grid->width])
		grid->width++;
	return grid;
}

void pd_grid_put(struct pd_grid *grid, const char *fmt, ...)
{
	va_list args;
	size_t size;
	FILE *out;

	grid->cells = pd_grow(grid->cells, &grid->room, grid->count + 1, sizeof(*grid->cells));
	out = pd_mem_stream(&grid->cells[grid->count++], &size);
	va_start(args, fmt);
	vfprintf(out, fmt, args);
	va_end(args);
	pd_mem_stream_close(out);
}

static bool is_left(const struct pd_grid *grid, size_t column)
{
	return grid->columns[column][0] == '<';
}

static const char *column_name(const struct pd_grid *grid, size_t column)
{
	return grid->columns[column] + is_left(grid, column);
}

/* Returns how many characters a text in UTF-8 has; in Markdown a bar has a backslash before it. */
static size_t text_width(const char *text, bool markdown)
{
	size_t count = 0;

	for (; *text; text++)
		count += ((*text & 0xc0) != 0x80) + (markdown && *text == '|');
	return count;
}

/* Returns how wide the widest cell of a column is, or its name; 0: all are empty. */
static size_t column_width(const struct pd_grid *grid, size_t column, bool markdown)
{
	size_t most = 0, name = text_width(column_name(grid, column), markdown);

	for (size_t at = column; at < grid->count; at += grid->width) {
		size_t width = text_width(grid->cells[at], markdown);

		most = width > most ? width : most;
	}
	return most == 0 ? 0 : most > name ? most : name;
}

static void put_times(char c, size_t times, FILE *out)
{
	while (times-- > 0)
		putc(c, out);
}

static void put_text(const char *text, bool markdown, FILE *out)
{
	for (; *text; text++) {
		if (markdown && *text == '|')
			putc('\\', out);
		putc(*text, out);
	}
}

/* Prints a row: cells, or the names of columns (NULL). */
static void print_row(const struct pd_grid *grid, char *const *cells, const size_t *widths,
		      bool markdown, FILE *out)
{
	size_t blanks = 0;      /* those before the next text */

	for (size_t c = 0; c < grid->width; c++) {
		const char *text = cells ? cells[c] : column_name(grid, c);
		size_t before, after = 0;

		if (widths[c] == 0)
			continue;
		before = widths[c] - text_width(text, markdown);
		if (is_left(grid, c)) {
			after = before;
			before = 0;
		}
		put_times(' ', blanks, out);
		fputs(markdown ? "| " : "", out);
		put_times(' ', before, out);
		put_text(text, markdown, out);
		blanks = after + (markdown ? 1 : 2);
	}
	put_times(' ', markdown ? blanks : 0, out);
	fputs(markdown ? "|\n" : "\n", out);
}

/* Prints the line of Markdown below the names, which says how columns are aligned. */
static void print_rule(const struct pd_grid *grid, const size_t *widths, FILE *out)
{
	for (size_t c = 0; c < grid->width; c++) {
		if (widths[c] == 0)
			continue;
		fputs(is_left(grid, c) ? "|:" : "|-", out);
		put_times('-', widths[c], out);
		fputs(is_left(grid, c) ? "-" : ":", out);
	}
	fputs("|\n", out);
}

void pd_grid_print(const struct pd_grid *grid, bool markdown, FILE *out)
{
	size_t *widths = pd_calloc(grid->width, sizeof(*widths));

	for (size_t c = 0; c < grid->width; c++)
		widths[c] = column_width(grid, c, markdown);
	print_row(grid, NULL, widths, markdown, out);
	if (markdown)
		print_rule(grid, widths, out);
	for (size_t at = 0; at < grid->count; at += grid->width)
		print_row(grid, grid->cells + at, widths, markdown, out);
	free(widths);
}

void pd_grid_free(struct pd_grid *grid)
{
	for (size_t i = 0; i < grid->count; i++)
		free(grid->cells[i]);
	free(grid->cells);
	free(grid);
}
