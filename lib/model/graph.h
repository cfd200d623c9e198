/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of directed graphs given as each node's inputs. */
#ifndef PD_MODEL_GRAPH_H
#define PD_MODEL_GRAPH_H

#include <stddef.h>

/* What uses what: the users of source s are users[first[s]] to users[first[s + 1] - 1]. */
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
 * A topological order of the nodes, whose inputs are nodes: among those that are ready
 * the lowest number comes next, so an order that is one already is kept.  Fills order
 * and returns -1, or returns a node that lies on a cycle.
 */
int pd_graph_order(int nodes, int *const *inputs, const int *input_counts, int *order);

#endif
