/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bias of relative positions, as T5 has it: Gather takes rows of a table, one for each query and key, and what
 * follows puts the heads in front.  The rule of the buckets is known by the rows that are taken.
 */
#include "doors/onnx/attention.h"

#include "model/model.h"
#include "model/relative.h"

#define OF_T5 128               /* its greatest distance */

/* Looks through nodes that add axes or change nothing. */
static const struct pd_onnx_node *below(const struct graph *g, const struct value *value)
{
	value = pattern_origin(g, value);
	while (value && value->node && !value->constant && is_op(value->node, "Unsqueeze"))
		value = pattern_in(g, value->node, 0);
	return value && !value->constant ? value->node : NULL;
}

/* Is the order of the axes heads, queries, keys, from queries, keys, heads? */
static bool puts_heads_first(const struct pd_onnx_node *node)
{
	const struct pd_onnx_attribute *order = pd_onnx_attribute(node, "perm", PD_ONNX_INTEGERS);

	return order && order->count == 3 && order->integers[0] == 2 && order->integers[1] == 0 &&
	       order->integers[2] == 1;
}

/* Returns the row that is taken at this distance, key less query, or -1: several are. */
static int64_t row_at(const struct array *rows, int64_t distance)
{
	int64_t queries = rows->size[0], keys = rows->size[1], row = -1;

	for (int64_t q = distance < 0 ? -distance : 0; q < queries && q + distance < keys; q++) {
		int64_t found = rows->integers[q * keys + q + distance];

		if (row >= 0 && found != row)
			return -1;
		row = found;
	}
	return row;
}

/*
 * Compares the rows that are taken with those of a rule.  0: they are those; 1 or -1: at the least distance where
 * they differ, this one has a later row, or an earlier one.
 */
static int compare(const struct array *rows, const struct pd_relative *rule)
{
	int64_t most = rows->size[0] > rows->size[1] ? rows->size[0] : rows->size[1];

	for (int64_t n = 0; n < most; n++)
		for (int way = 0; way < 2; way++) {
			int64_t distance = way ? n : -n;

			if (distance >= rows->size[1] || -distance >= rows->size[0])
				continue;
			for (int32_t b = 0; b < rule->buckets; b++) {
				struct pd_relative_range range = pd_relative_range(rule, b);

				if (distance < range.begin || distance >= range.end)
					continue;
				if (b != row_at(rows, distance))
					return b > row_at(rows, distance) ? 1 : -1;
			}
		}
	return 0;
}

/* Distances that are far in a rule have the later rows, the less its greatest one is. */
static bool find_most(const struct array *rows, int64_t buckets, bool both, int64_t *most_p)
{
	int64_t low = buckets / (both ? 4 : 2) + 1, high = PD_MAX_EXTENT;

	while (low <= high) {
		int64_t middle = low <= OF_T5 && high >= OF_T5 ? OF_T5 : low + (high - low) / 2;
		struct pd_relative rule = pd_relative_make(buckets, middle, both);
		int order = compare(rows, &rule);

		*most_p = middle;
		if (order == 0)
			return true;
		if (order > 0)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return false;
}

bool relative_of(struct graph *g, const struct value *value, struct relative *out_p)
{
	const struct pd_onnx_node *turned = below(g, value);
	const struct pd_onnx_node *taken = turned && is_op(turned, "Transpose") && puts_heads_first(turned)
		? pattern_made(g, graph_in(g, turned, 0), "Gather") : NULL;
	const struct pd_onnx_tensor *table = taken ? translate_whole(g, taken, 0) : NULL;
	const struct array *rows = taken ? graph_constant(g, taken, 1) : NULL;
	struct value *known = taken ? graph_find(g, taken->output[0]) : NULL;
	struct relative *kept;
	int64_t buckets;

	if (known && known->relative) {
		*out_p = *known->relative;
		return true;
	}
	if (!table || table->dims != 2 || integer_of(taken, "axis", 0) != 0 || !array_counts(rows) ||
	    rows->dims != 2)
		return false;
	buckets = table->size[0];
	if (buckets < 2 || buckets > PD_RELATIVE_BUCKETS)
		return false;
	*out_p = (struct relative){ .table = table };
	for (int both = buckets >= 4 && buckets % 2 == 0; both >= 0; both--) {
		out_p->both = both;
		if (find_most(rows, buckets, both, &out_p->max_distance)) {
			known->relative = kept = pd_arena_take(&g->constants.arena, 1, sizeof(*kept));
			*kept = *out_p;
			return true;
		}
	}
	return false;
}
