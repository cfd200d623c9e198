/* SPDX-License-Identifier: Apache-2.0 */
/* Issuing one operation: which file does it for which kind. */
#include "worker/issue.h"

int worker_issue(struct pd_worker *w, const struct pd_op *op, struct pd_error *err)
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
		[PD_OP_agree] = worker_issue_agree,
		[PD_OP_step] = worker_issue_step,
	};
	char name[32];
	int verdict;

	if (!table[op->kind])
		return pd_error_failed(err, "this version does not execute %s",
				       pd_op_kind_name[op->kind]);
	verdict = table[op->kind](w, worker_chunk(w, op->stage), op);
	if (verdict > 0)
		w->issued++;
	if (verdict < 0)
		pd_error_failed(err, "%s: the %s refused it", pd_op_short(op, name),
				w->config.gate && w->config.gate->failed ? w->config.gate->err.text
								       : "device or transport");
	return verdict;
}
