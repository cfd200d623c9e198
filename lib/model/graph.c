/* SPDX-License-Identifier: Apache-2.0 */
#include "model/graph.h"

#include "base/mem.h"

#include <stdlib.h>

void pd_uses_init(struct pd_uses *uses, int sources, int nodes, int *const *inputs,
		  const int *input_counts)
{
	size_t total = 0;

	/* First first[s + 2] counts the users of s; in the end they begin at first[s]. */
	uses->first = pd_calloc((size_t)sources + 2, sizeof(*uses->first));
	for (int n = 0; n < nodes; n++)
		for (int i = 0; i < input_counts[n]; i++)
			if (inputs[n][i] >= 0) {
				uses->first[inputs[n][i] + 2]++;
				total++;
			}
	uses->users = pd_calloc(total, sizeof(*uses->users));
	for (int s = 0; s < sources; s++)
		uses->first[s + 2] += uses->first[s + 1];
	for (int n = 0; n < nodes; n++)
		for (int i = 0; i < input_counts[n]; i++)
			if (inputs[n][i] >= 0)
				uses->users[uses->first[inputs[n][i] + 1]++] = n;
}

void pd_uses_release(struct pd_uses *uses)
{
	free(uses->first);
	free(uses->users);
	*uses = (struct pd_uses){ 0 };
}

/* A binary heap of node numbers, the lowest on top. */
static void push(int *heap, int *count, int node)
{
	int at = (*count)++;

	while (at > 0 && heap[(at - 1) / 2] > node) {
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap[at] = node;
}

static int pop(int *heap, int *count)
{
	int top = heap[0], last = heap[--(*count)], at = 0;

	for (;;) {
		int child = 2 * at + 1;

		if (child + 1 < *count && heap[child + 1] < heap[child])
			child++;
		if (child >= *count || heap[child] >= last)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = last;
	return top;
}

/*
 * Every node that could not be ordered has an input that could not be ordered either.  A walk from
 * a node to such an input, repeated as often as there are nodes, therefore ends on a cycle.
 */
static int on_cycle(int nodes, int *const *inputs, const int *missing)
{
	int node = 0;

	while (missing[node] == 0)
		node++;
	for (int step = 0; step < nodes; step++) {
		int i = 0;

		while (inputs[node][i] < 0 || missing[inputs[node][i]] == 0)
			i++;
		node = inputs[node][i];
	}
	return node;
}

int pd_graph_order(int nodes, int *const *inputs, const int *input_counts, int *order)
{
	int *missing = pd_calloc((size_t)nodes, sizeof(*missing));     /* inputs not yet ordered */
	int *heap = pd_calloc((size_t)nodes, sizeof(*heap));
	int ready = 0, done = 0, cycle = -1;
	struct pd_uses uses;

	pd_uses_init(&uses, nodes, nodes, inputs, input_counts);
	for (int n = 0; n < nodes; n++) {
		for (int i = 0; i < input_counts[n]; i++)
			missing[n] += inputs[n][i] >= 0;
		if (missing[n] == 0)
			push(heap, &ready, n);
	}
	while (ready > 0) {
		int n = pop(heap, &ready);

		order[done++] = n;
		for (size_t u = uses.first[n]; u < uses.first[n + 1]; u++)
			if (--missing[uses.users[u]] == 0)
				push(heap, &ready, uses.users[u]);
	}
	if (done < nodes)
		cycle = on_cycle(nodes, inputs, missing);
	pd_uses_release(&uses);
	free(missing);
	free(heap);
	return cycle;
}
