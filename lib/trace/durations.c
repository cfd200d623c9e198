/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/durations.h"

#include "base/json.h"
#include "base/median.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KEPT 256                        /* the newest of a kind */

struct kept {
	int64_t ns[KEPT], count;        /* a ring; all that were added */
	int64_t parts_ns;               /* of an operation in parts, as far as it has come */
};

struct pd_durations {
	int stage_count;
	int *stages;
	struct kept (*kept)[PD_OP_KINDS];
};

struct pd_durations *pd_durations_new(const int *stages, int stage_count)
{
	struct pd_durations *durations = pd_zalloc(sizeof(*durations));

	durations->stage_count = stage_count;
	durations->stages = pd_memdup(stages, (size_t)stage_count * sizeof(*stages));
	durations->kept = pd_calloc((size_t)stage_count, sizeof(*durations->kept));
	return durations;
}

void pd_durations_free(struct pd_durations *durations)
{
	if (!durations)
		return;
	free(durations->stages);
	free(durations->kept);
	free(durations);
}

bool pd_durations_has(enum pd_op_kind kind)
{
	return kind == PD_OP_forward || kind == PD_OP_recompute || kind == PD_OP_backward ||
	       kind == PD_OP_backward_input || kind == PD_OP_backward_weight || kind == PD_OP_step;
}

void pd_durations_add(struct pd_durations *durations, const struct pd_record *record)
{
	const struct pd_op *op = &record->op;
	struct kept *kept;
	int i = 0;

	while (i < durations->stage_count && durations->stages[i] != op->stage)
		i++;
	if (i == durations->stage_count || op->evaluate || !pd_durations_has(op->kind))
		return;
	kept = &durations->kept[i][op->kind];
	kept->parts_ns += record->end_ns - record->start_ns;
	if (op->more)
		return;
	kept->ns[kept->count++ % KEPT] = kept->parts_ns;
	kept->parts_ns = 0;
}

double pd_durations_ns(const struct pd_durations *durations, int index, enum pd_op_kind kind)
{
	const struct kept *kept = &durations->kept[index][kind];
	int64_t n = kept->count < KEPT ? kept->count : KEPT, values[KEPT];

	memcpy(values, kept->ns, (size_t)n * sizeof(*values));
	return n > 0 ? pd_trimmed_mean(values, n) : 0;
}

void pd_expected_run_release(struct pd_expected_run *expected)
{
	free(expected->ns);
	free(expected->spreads);
	*expected = (struct pd_expected_run){ 0 };
}

json_t *pd_durations_json(const struct pd_durations *durations)
{
	json_t *list = json_array();

	for (int i = 0; i < durations->stage_count; i++)
		for (int kind = 0; kind < PD_OP_KINDS; kind++) {
			double ns = pd_durations_ns(durations, i, (enum pd_op_kind)kind);

			if (ns > 0)
				pd_json_add(list, json_pack("{s:i, s:i, s:f}", "stage", durations->stages[i],
							    "kind", kind, "ns", ns));
		}
	return list;
}
