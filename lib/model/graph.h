/* SPDX-License-Identifier: Apache-2.0 */
/* This file orders directed graphs whose nodes name their inputs. */
#pragma once

#include <stddef.h>

/* An index of users: users[first[s]] to users[first[s + 1] - 1] are the nodes that use source s. */
struct pd_uses {
	size_t *first;
	int *users;             /* ascending for each source; twice there if it uses it twice */
};

/*
 * Node n has input_counts[n] inputs, inputs[n][i], each a source from 0 to sources - 1;
 * negative ones are passed over.
 */
void pd_uses_init(struct pd_uses *uses, int sources, int nodes, int *const *inputs,
		  const int *input_counts);
void pd_uses_release(struct pd_uses *uses);

/*
 * Finds a topological order of nodes whose inputs are nodes.  Among the nodes that are ready, the
 * one with the lowest number comes next, so numbers that are in order already stay.  Fills order
 * and returns -1, or returns a node that lies on a cycle.
 */
int pd_graph_order(int nodes, int *const *inputs, const int *input_counts, int *order);
