/* SPDX-License-Identifier: Apache-2.0 */
/* Stops a worker for a checkpoint while the pipeline is full. */
#include "engine/worker/internal.h"

#include "base/mem.h"

/* A pause for a version must not replace one for the state, in which versions are taken, too. */
static void want_version(struct pd_worker *w)
{
	if (!w->wanted)
		w->wanted = PD_PAUSE_VERSION;
}

void worker_pause_before(struct pd_worker *w, const struct pd_op *op)
{
	for (size_t i = 0; i < w->checkpoint_count && !w->wanted && !w->phase.evaluate; i++) {
		struct checkpoint *c = &w->checkpoints[i];

		if (c->at < 0 || c->state_seen)
			continue;
		if (!op || (op->kind == PD_OP_forward && op->microbatch >= c->at)) {
			c->state_seen = true;
			w->wanted = PD_PAUSE_STATE;
		}
	}
}

void worker_pause_after(struct pd_worker *w, const struct pd_op *op)
{
	for (size_t i = 0; i < w->checkpoint_count; i++) {
		const struct checkpoint *c = &w->checkpoints[i];

		if (c->at >= 0 && op->kind == PD_OP_step && op->version <= c->at &&
		    op->version >= pd_cursor_oldest(&w->source.cursor, op->stage, c->at))
			want_version(w);
	}
}

void pd_worker_checkpoint(struct pd_worker *w, int64_t at)
{
	struct checkpoint *c = NULL;

	for (size_t i = 0; i < w->checkpoint_count && !c; i++)
		if (w->checkpoints[i].at < 0)
			c = &w->checkpoints[i];
	if (!c) {
		w->checkpoints = pd_grow(w->checkpoints, &w->checkpoint_capacity,
					 w->checkpoint_count + 1, sizeof(*c));
		c = &w->checkpoints[w->checkpoint_count++];
	}
	*c = (struct checkpoint){ .at = at };
	for (int k = 0; k < w->chunk_count; k++) {
		int64_t newest;

		pd_weights_newest(&w->chunks[k].weights, &newest);
		if (newest >= pd_worker_checkpoint_oldest(w, k, at))
			want_version(w);
	}
}

void pd_worker_checkpoint_done(struct pd_worker *w, int64_t at)
{
	for (size_t i = 0; i < w->checkpoint_count; i++)
		if (w->checkpoints[i].at == at)
			w->checkpoints[i].at = -1;
}

bool pd_worker_state_reached(const struct pd_worker *w, int64_t at)
{
	for (size_t i = 0; i < w->checkpoint_count; i++)
		if (w->checkpoints[i].at == at)
			return w->checkpoints[i].state_seen;
	return false;
}

int64_t pd_worker_checkpoint_oldest(const struct pd_worker *w, int i, int64_t at)
{
	return pd_cursor_oldest(&w->source.cursor, w->chunks[i].index, at);
}

bool pd_worker_checkpoint_holds(const struct pd_worker *w, int i, int64_t at, int64_t version)
{
	return version == at || pd_cursor_reads(&w->source.cursor, w->chunks[i].index, at, version);
}

enum pd_pause pd_worker_paused(const struct pd_worker *w)
{
	return w->paused;
}
