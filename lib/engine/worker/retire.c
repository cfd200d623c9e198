/* SPDX-License-Identifier: Apache-2.0 */
/* Retires finished operations and reports them, in the order of the list. */
#include "engine/worker/internal.h"

#include "base/container.h"

/* Reports the agree before this step, with the first step that waited for it. */
static void tell_agreed(struct pd_worker *w, const struct pd_op *step)
{
	const struct pd_worker_config *config = &w->config;
	struct pd_record record;
	struct pd_outcome outcome;

	if (!worker_global_norm_told(w, &record, &outcome))
		return;
	if (config->retired)
		config->retired(config->context, &record);
	if (config->updated)
		config->updated(config->context, step, &outcome);
}

static const struct bucket *bucket_of(const struct pd_worker *w, const struct pd_op *op)
{
	return &worker_chunk(w, op->stage)->buckets[op->bucket > 0 ? op->bucket - 1 : 0];
}

static int64_t bytes_of(struct pd_worker *w, const struct pd_op *op)
{
	if (op->link >= 0)
		return w->config.schedule->wiring->links[op->link].bytes;
	if (op->kind == PD_OP_norms)
		return worker_sparse_chunks(w, worker_chunk(w, op->stage)) * (int64_t)sizeof(float);
	if (op->kind != PD_OP_allreduce)
		return 0;
	return worker_chunk(w, op->stage)->residual
		? pd_sparse_sent_bytes(bucket_of(w, op)->reduction)
		: (int64_t)(bucket_of(w, op)->floats * sizeof(float));
}

static void release_batch(struct microbatch *microbatch)
{
	if (microbatch->batch)
		pd_loader_release(microbatch->chunk->loader, microbatch->batch);
	microbatch->batch = NULL;
}

static void tell_losses(const struct pd_worker *w, const struct pd_op *op,
			const struct microbatch *microbatch)
{
	int count = microbatch->chunk->sizes->loss_count;

	if (w->config.losses && count > 0)
		w->config.losses(w->config.context, op, microbatch->losses, count);
}

static void retire(struct pd_worker *w, struct issued_op *entry)
{
	const struct pd_worker_config *config = &w->config;
	const struct pd_event *events = entry->fence->events;
	struct pd_record record = { .op = entry->op, .start_ns = events[0].start_ns,
				    .end_ns = events[0].end_ns, .bytes = bytes_of(w, &entry->op) };

	for (int i = 1; i < entry->fence->count; i++) {
		if (events[i].start_ns < record.start_ns)
			record.start_ns = events[i].start_ns;
		if (events[i].end_ns > record.end_ns)
			record.end_ns = events[i].end_ns;
	}
	/* The event of a sum is the last one on the stream, and does not know the beginning. */
	if (entry->op.kind == PD_OP_allreduce || entry->op.kind == PD_OP_norms) {
		const struct pd_reduction *reduction = entry->op.kind == PD_OP_norms
			? worker_chunk(w, entry->op.stage)->norm_sum
			: bucket_of(w, &entry->op)->reduction;

		record.start_ns = reduction->ops->started_ns(reduction);
		record.sent_bytes = reduction->sent_bytes;
		record.messages = reduction->messages;
	}
	if (entry->op.kind == PD_OP_load)
		release_batch(pd_container(entry->fence, struct microbatch, loaded));
	if (entry->op.kind == PD_OP_forward)
		tell_losses(w, &entry->op, pd_container(entry->fence, struct microbatch, forward));
	if (entry->op.kind == PD_OP_step)
		tell_agreed(w, &entry->op);
	if (config->retired && entry->op.kind != PD_OP_agree)
		config->retired(config->context, &record);
}

int worker_retire(struct pd_worker *w, struct pd_error *err)
{
	int any = 0;

	while (w->retired < w->issued) {
		struct issued_op *entry = worker_entry(w, w->retired);
		const struct fence *fence = entry->fence;
		char name[40];

		for (int i = 0; i < fence->count; i++) {
			if (!pd_event_done(&fence->events[i]))
				return any;
			if (pd_event_failed(&fence->events[i]))
				return pd_gate_failed(w->config.gate, err, "%s",
						      pd_op_short(&entry->op, name));
		}
		retire(w, entry);
		w->retired++;
		any = 1;
	}
	return any;
}
