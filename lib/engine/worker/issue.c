/* SPDX-License-Identifier: Apache-2.0 */
/* Taking operations from the list and issuing them: which file does it for which kind. */
#include "engine/worker/issue.h"

#include "base/mem.h"

#include <stdlib.h>

static void refused(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	char name[40];

	if (w->config.gate && w->config.gate->failed)
		pd_gate_failed(w->config.gate, err, "%s", pd_op_short(op, name));
	else
		pd_error_failed(err, "%s: the device or transport refused it",
				pd_op_short(op, name));
}

/* 1 issued, 0 not yet, -1 failed. */
static int issue(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
{
	static int (*const table[PD_OP_KINDS])(struct pd_worker *, struct chunk *,
					       const struct pd_op *) = {
		[PD_OP_load] = worker_issue_load,
		[PD_OP_forward] = worker_issue_forward,
		[PD_OP_recompute] = worker_issue_recompute,
		[PD_OP_backward] = worker_issue_backward,
		[PD_OP_backward_input] = worker_issue_backward,
		[PD_OP_backward_weight] = worker_issue_backward_weight,
		[PD_OP_recv_activation] = worker_issue_transfer,
		[PD_OP_send_activation] = worker_issue_transfer,
		[PD_OP_recv_gradient] = worker_issue_transfer,
		[PD_OP_send_gradient] = worker_issue_transfer,
		[PD_OP_allreduce] = worker_issue_allreduce,
		[PD_OP_norms] = worker_issue_norms,
		[PD_OP_agree] = worker_issue_agree,
		[PD_OP_step] = worker_issue_step,
	};
	int verdict;

	if (!table[op->kind])
		pd_bug("worker: nothing issues %s", pd_op_kind_name[op->kind]);
	verdict = table[op->kind](w, worker_chunk(w, op->stage), op);
	if (verdict > 0)
		w->issued++;
	if (verdict < 0)
		refused(w, op, err);
	return verdict;
}

/* Room for twice as many operations that have not retired. */
static void grow_entries(struct pd_worker *w)
{
	int64_t count = 2 * w->entry_count;
	struct issued_op *entries = pd_calloc((size_t)count, sizeof(*entries));

	for (int64_t n = w->retired; n < w->issued; n++)
		entries[n & (count - 1)] = *worker_entry(w, n);
	free(w->entries);
	w->entries = entries;
	w->entry_count = count;
}

static int issue_all(struct pd_worker *w, struct pd_error *err)
{
	int any = 0;

	w->until = NULL;
	while (!w->wanted && !w->frozen && !w->held && w->issued - w->retired < w->ring) {
		int verdict;

		if (!w->has_next && !w->exhausted) {
			w->has_next = pd_op_source_next(&w->source, &w->next);
			w->exhausted = !w->has_next;
		}
		if (w->checkpoint_count > 0)
			worker_pause_before(w, w->has_next ? &w->next : NULL);
		if (w->wanted || !w->has_next)
			return any;
		if (w->issued - w->retired == w->entry_count)
			grow_entries(w);
		verdict = issue(w, &w->next, err);
		if (verdict <= 0)
			return verdict < 0 ? -1 : any;
		any = 1;
		w->has_next = false;
		if (w->checkpoint_count > 0)
			worker_pause_after(w, &w->next);
	}
	return any;
}

int worker_issue(struct pd_worker *w, struct pd_error *err)
{
	int verdict = issue_all(w, err);

	if (worker_hand_over(w) >= 0 || verdict < 0)
		return verdict;
	refused(w, &worker_entry(w, w->issued - 1)->op, err);
	return -1;
}
