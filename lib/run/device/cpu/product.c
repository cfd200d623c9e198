/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of our own, where they are quicker than oneDNN's: blocks of both matrices are packed so
 * that a tile finds what it reads side by side (K. Goto, R. van de Geijn: Anatomy of
 * High-Performance Matrix Multiplication, TOMS 34, 2008).  oneDNN's kernels for AVX2 read large
 * matrices where they lie, and one whose rows are a power of two apart lies in few sets of the
 * caches: gradients of weights are made half as fast (test/README has figures).
 */
#include "run/device/cpu/product.h"

#include "base/minmax.h"
#include "run/device/cpu/onednn.h"
#include "run/device/cpu/tile.h"

#include <omp.h>
#include <string.h>

/* A block of B has 256 KiB, half of a second-level cache, one of A 192. */
#define DEPTH 256
#define COLUMNS 256
#define ROWS 192
/* With fewer rows it takes longer to pack B than to multiply. */
#define LEAST_ROWS 64
#define PANEL PD_TILE_PAD

/* What a task has packed: panels of B, depth x PANEL, and A's block where A is transposed. */
struct packed {
	float b[DEPTH * COLUMNS], a[DEPTH * ROWS], c[ROWS * PANEL];
} __attribute__((aligned(64)));

/* A part of C. */
struct part {
	int64_t row, rows, column, columns;
};

bool pd_matrix_product_is_ours(int64_t m)
{
	return pd_tile_ops()->packs && m >= LEAST_ROWS;
}

/* These pack `depth` rows of a panel, from row `at` of B on; zeros follow the last column. */
static void pack_part(const struct pd_matrix_product *g, float *to, int64_t at, int64_t depth,
		      int64_t column)
{
	int64_t count = pd_min(g->n - column, PANEL), down = g->transposed_b ? 1 : g->ldb;
	const float *from = g->b + at * down + column * (g->transposed_b ? g->ldb : 1);

	for (int64_t l = 0; l < depth; l++, to += PANEL, from += down) {
		for (int64_t j = 0; j < count; j++)
			to[j] = from[g->transposed_b ? j * g->ldb : j];
		memset(to + count, 0, (size_t)(PANEL - count) * sizeof(*to));
	}
}

static void pack_panel(const struct pd_matrix_product *g, float *to, int64_t at, int64_t depth,
		       int64_t column)
{
	const float *from = g->b + at * g->ldb + column;
	int64_t whole = depth / PD_TILE_PAD * PD_TILE_PAD;

	if (g->n - column < PANEL) {
		pack_part(g, to, at, depth, column);
	} else if (g->transposed_b) {
		pd_tile_ops()->transpose(to, PANEL, g->b + column * g->ldb + at, g->ldb, PANEL,
					 whole);
		pack_part(g, to + whole * PANEL, at + whole, depth - whole, column);
	} else {
		for (int64_t l = 0; l < depth; l++)
			memcpy(to + l * PANEL, from + l * g->ldb, PANEL * sizeof(*to));
	}
}

static void pack_rows(const struct pd_matrix_product *g, float *to, int64_t at, int64_t depth,
		      int64_t row, int64_t rows)
{
	for (int64_t l = 0; l < depth; l++)
		memcpy(to + l * rows, g->a + (at + l) * g->lda + row, (size_t)rows * sizeof(*to));
}

/* Makes or adds to a strip of C, as wide as a panel. */
static void make_strip(const struct pd_matrix_product *g, struct pd_tile_product *tile, float *room,
		       int64_t row, int64_t column)
{
	float *c = g->c + row * g->ldc + column;
	size_t bytes = (size_t)pd_min(g->n - column, PANEL) * sizeof(*c);

	if (g->n - column >= PANEL) {
		tile->c = c;
		tile->ldc = g->ldc;
		pd_tile_ops()->multiply(tile);
		return;
	}
	tile->c = room;
	tile->ldc = PANEL;
	if (tile->adds)
		memset(room, 0, (size_t)tile->m * PANEL * sizeof(*room));
	for (int64_t i = 0; tile->adds && i < tile->m; i++)
		memcpy(room + i * PANEL, c + i * g->ldc, bytes);
	pd_tile_ops()->multiply(tile);
	for (int64_t i = 0; i < tile->m; i++)
		memcpy(c + i * g->ldc, room + i * PANEL, bytes);
}

static void make_rows(const struct pd_matrix_product *g, struct packed *packed,
		      const struct part *part, int64_t at, int64_t depth)
{
	for (int64_t i = part->row; i < part->row + part->rows; i += ROWS) {
		int64_t rows = pd_min(part->row + part->rows - i, ROWS);
		struct pd_tile_product tile = {
			.m = rows, .n = PANEL, .k = depth, .ldb = PANEL, .adds = g->adds || at > 0,
			.a = g->a + i * g->lda + at, .a_row = g->lda, .a_column = 1,
		};

		if (g->transposed_a) {
			pack_rows(g, packed->a, at, depth, i, rows);
			tile.a = packed->a;
			tile.a_row = 1;
			tile.a_column = rows;
		}
		for (int64_t j = 0; j < part->columns; j += PANEL) {
			tile.b = packed->b + j * depth;
			make_strip(g, &tile, packed->c, i, part->column + j);
		}
	}
}

static void make_part(const struct pd_matrix_product *g, const struct part *part)
{
	struct packed packed;

	for (int64_t at = 0; at < g->k; at += DEPTH) {
		int64_t depth = pd_min(g->k - at, DEPTH);

		for (int64_t j = 0; j < part->columns; j += PANEL)
			pack_panel(g, packed.b + j * depth, at, depth, part->column + j);
		make_rows(g, &packed, part, at, depth);
	}
}

/* B is packed anew for every part, so there are no more down than threads ask for. */
static int64_t rows_of_parts(const struct pd_matrix_product *g, int64_t across)
{
	int64_t down = (omp_get_max_threads() + across - 1) / across;
	int64_t rows = (g->m + down - 1) / down;

	return (rows + LEAST_ROWS - 1) / LEAST_ROWS * LEAST_ROWS;
}

static void multiply_parts(const struct pd_matrix_product *g)
{
	int64_t across = (g->n + COLUMNS - 1) / COLUMNS, rows = rows_of_parts(g, across);
	int64_t down = (g->m + rows - 1) / rows;

#pragma omp parallel for schedule(static) if (across * down > 1)
	for (int64_t n = 0; n < across * down; n++) {
		struct part part = { .row = n / across * rows, .column = n % across * COLUMNS };

		part.rows = pd_min(g->m - part.row, rows);
		part.columns = pd_min(g->n - part.column, COLUMNS);
		make_part(g, &part);
	}
}

int pd_matrix_multiply(const struct pd_matrix_product *g, struct pd_error *err)
{
	if (!pd_matrix_product_is_ours(g->m) || g->k == 0)
		return pd_onednn_product(g, err);
	multiply_parts(g);
	return 0;
}
