/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/leaves.h"

#include "base/mem.h"

#include <stdlib.h>

bool *pd_kineto_leaves(const struct pd_kineto_ops *ops, const regex_t *blocks)
{
	bool *leaves = pd_calloc((size_t)ops->name_count + 1, sizeof(*leaves));
	struct open { int64_t end_ns; int name; } *open = NULL;
	size_t depth = 0, capacity = 0;
	int64_t thread = 0;

	for (int n = 0; n < ops->name_count; n++)
		leaves[n] = true;
	for (size_t i = 0; i < ops->count; i++) {
		const struct pd_kineto_op *op = &ops->ops[i];

		if (i == 0 || op->thread != thread)
			depth = 0;
		thread = op->thread;
		while (depth > 0 && open[depth - 1].end_ns <= op->start_ns)
			depth--;
		if (op->kind > PD_KINETO_NODE)
			continue;
		if (depth > 0)
			leaves[open[depth - 1].name] = false;
		if (op->kind != PD_KINETO_LABEL)
			continue;
		open = pd_grow(open, &capacity, depth + 1, sizeof(*open));
		open[depth].end_ns = op->end_ns;
		open[depth++].name = op->name;
	}
	free(open);
	for (int n = 0; blocks && n < ops->name_count; n++) {
		regmatch_t whole;

		if (regexec(blocks, ops->names[n], 1, &whole, 0) == 0 && whole.rm_so == 0 &&
		    ops->names[n][whole.rm_eo] == '\0')
			leaves[n] = true;
	}
	return leaves;
}
