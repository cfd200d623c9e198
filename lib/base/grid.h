/* SPDX-License-Identifier: Apache-2.0 */
/* A table of texts for people: columns as wide as their widest cell, or Markdown. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct pd_grid;

/*
 * Makes one with columns of these names, NULL-terminated and borrowed; those that begin with '<'
 * are aligned to the left.
 */
struct pd_grid *pd_grid_new(const char *const *columns);
/* Appends a cell; a row has one for each column. */
void pd_grid_put(struct pd_grid *grid, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Leaves columns out whose cells are all empty. */
void pd_grid_print(const struct pd_grid *grid, bool markdown, FILE *out);
void pd_grid_free(struct pd_grid *grid);
