/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous.h"

#include "tap.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Returns a value that stands for a tensor, mixed from the values it was computed from. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	struct pd_random4 r = pd_random(a, b, (uint32_t)(a >> 32), (uint32_t)b);

	return (uint64_t)r.v[0] << 32 | r.v[1];
}

/* The data of one replica of one stage. */
struct replica {
	uint64_t *weights;              /* per version */
	uint64_t *forward, *back;       /* per microbatch; 0: not there */
	uint64_t *kept;                 /* stash for backward, of the forward or the recompute */
	uint64_t *arrived;              /* per link and microbatch: activations, then gradients */
	uint64_t (*sums)[2];            /* per bucket: the sum of a group, and of the next */
	int buckets;
	uint64_t agreed;                /* the value that all ranks agree on for the group */
	int64_t newest;
	bool *loaded;
};

struct machine {
	const struct pd_lists *lists;
	struct replica *replicas;       /* per role */
	size_t *at;                     /* per rank */
	int64_t n;
};

static struct replica *replica_of(struct machine *m, int rank, int stage)
{
	for (int i = m->lists->first_role[rank]; i < m->lists->first_role[rank + 1]; i++)
		if (m->lists->roles[i].stage == stage)
			return &m->replicas[i];
	return NULL;
}

static uint64_t *arrived(const struct machine *m, struct replica *replica, int link, bool gradient,
			 int64_t b)
{
	return &replica->arrived[(2 * link + gradient) * m->n + b];
}

static void replica_init(struct machine *m, struct replica *replica, int stage)
{
	size_t n = (size_t)m->n;

	replica->buckets = pd_plan_bucket_count(m->lists->plan, stage);
	replica->sums = pd_calloc((size_t)replica->buckets, sizeof(*replica->sums));
	replica->weights = pd_calloc(n + 1, sizeof(uint64_t));
	replica->forward = pd_calloc(n, sizeof(uint64_t));
	replica->back = pd_calloc(n, sizeof(uint64_t));
	replica->kept = pd_calloc(n, sizeof(uint64_t));
	replica->loaded = pd_calloc(n, sizeof(bool));
	replica->arrived = pd_calloc(2 * n, (size_t)(m->lists->wiring->link_count + 1) * 8);
	replica->weights[0] = mix(7, (uint64_t)stage);
}

static void replica_free(struct replica *replica)
{
	free(replica->sums);
	free(replica->weights);
	free(replica->forward);
	free(replica->back);
	free(replica->kept);
	free(replica->loaded);
	free(replica->arrived);
}

static uint64_t activation(struct machine *m, struct replica *replica, int s, int64_t b,
			   int64_t version)
{
	const struct pd_wiring *wiring = m->lists->wiring;
	uint64_t value = mix(replica->weights[version], (uint64_t)b);

	if (s == 0)     /* the small profile has no model, so that the first stage loads */
		value = mix(value, replica->loaded[b]);
	for (int i = 0; i < wiring->in_count[s]; i++)
		value = mix(value, *arrived(m, replica, wiring->in[s][i], false, b));
	return value;
}

/* Computes a forward, of which a stage that recomputes keeps only the output that it sends. */
static void forward(struct machine *m, struct replica *replica, int s, int64_t b, int64_t version)
{
	replica->forward[b] = activation(m, replica, s, b, version);
	if (!m->lists->plan->stages[s].recompute)
		replica->kept[b] = replica->forward[b];
}

static void backward(struct machine *m, struct replica *replica, int s, int64_t b, int64_t version)
{
	const struct pd_wiring *wiring = m->lists->wiring;
	uint64_t value = mix(mix(replica->weights[version], replica->kept[b]), 3);

	for (int i = 0; i < wiring->out_count[s]; i++)
		value = mix(value, *arrived(m, replica, wiring->out[s][i], true, b));
	replica->back[b] = value;
}

static uint64_t *sum_of(const struct machine *m, struct replica *replica, int s, int bucket,
			int64_t b)
{
	const struct pd_plan *plan = m->lists->plan;
	int64_t group = plan->microbatches > 1 ? plan->microbatches : plan->stages[s].replicas;

	return &replica->sums[bucket][b / group % 2];
}

/* Returns the sums of all buckets mixed in their order. */
static uint64_t all_of(const struct machine *m, struct replica *replica, int s, int64_t b)
{
	uint64_t all = 0;

	for (int k = 0; k < replica->buckets; k++)
		all = mix(all, *sum_of(m, replica, s, k, b));
	return all;
}

/* Adds a backward's gradients to a bucket, counted from 1, or to all (0); frees the stash with the last. */
static void add(const struct machine *m, struct replica *replica, int s, int bucket, int64_t b)
{
	int first = bucket > 0 ? bucket - 1 : 0, end = bucket > 0 ? bucket : replica->buckets;

	for (int k = first; k < end; k++)
		*sum_of(m, replica, s, k, b) += mix(replica->back[b], (uint64_t)k);
	if (end == replica->buckets)
		replica->kept[b] = 0;
}

/* Updates the weights for the group of microbatch b. */
static void step(const struct machine *m, struct replica *replica, int s, int64_t b,
		 int64_t version)
{
	replica->weights[version] = mix(replica->weights[replica->newest],
					all_of(m, replica, s, b) + replica->agreed);
	replica->newest = version;
	for (int k = 0; k < replica->buckets; k++)
		*sum_of(m, replica, s, k, b) = 0;
}

static void compute(struct machine *m, const struct pd_op *op)
{
	struct replica *replica = replica_of(m, op->rank, op->stage);

	switch (op->kind) {
	case PD_OP_load:
		replica->loaded[op->microbatch] = true;
		break;
	case PD_OP_forward:
		forward(m, replica, op->stage, op->microbatch, op->version);
		break;
	case PD_OP_recompute:
		replica->kept[op->microbatch] = activation(m, replica, op->stage, op->microbatch,
							   op->version);
		break;
	case PD_OP_backward:
	case PD_OP_backward_input:
		backward(m, replica, op->stage, op->microbatch, op->version);
		if (op->kind == PD_OP_backward)
			add(m, replica, op->stage, op->bucket, op->microbatch);
		break;
	case PD_OP_backward_weight:
		add(m, replica, op->stage, op->bucket, op->microbatch);
		break;
	case PD_OP_step:
		step(m, replica, op->stage, op->microbatch, op->version);
		break;
	default:
		break;
	}
}

/* Carries the value that the sender names to the place that the receiver names. */
static void carry(struct machine *m, const struct pd_op *send, const struct pd_op *recv)
{
	struct replica *from = replica_of(m, send->rank, send->stage);
	struct replica *to = replica_of(m, recv->rank, recv->stage);
	bool gradient = send->kind == PD_OP_send_gradient;
	uint64_t value = gradient ? from->back[send->microbatch] : from->forward[send->microbatch];

	*arrived(m, to, recv->link, recv->kind == PD_OP_recv_gradient, recv->microbatch) =
		mix(value, 2 * (uint64_t)send->link + gradient);
}

static const struct pd_op *head(const struct machine *m, int rank)
{
	const struct pd_list *list = &m->lists->ranks[rank];

	return m->at[rank] < list->count ? &list->ops[m->at[rank]] : NULL;
}

static bool sends(const struct pd_op *op)
{
	return op->kind == PD_OP_send_activation || op->kind == PD_OP_send_gradient;
}

static bool transfer(struct machine *m, const struct pd_op *op)
{
	const struct pd_op *other;

	if (op->peer == op->rank) {     /* the same rank has both ends */
		const struct pd_list *list = &m->lists->ranks[op->rank];

		other = m->at[op->rank] + 1 < list->count ? op + 1 : NULL;
	} else {
		other = head(m, op->peer);
	}
	if (!other || !pd_op_transfers(other->kind) || other->peer != op->rank ||
	    sends(other) == sends(op))
		return false;
	carry(m, sends(op) ? op : other, sends(op) ? other : op);
	m->at[op->peer]++;
	m->at[op->rank]++;
	return true;
}

static bool allreduce(struct machine *m, const struct pd_op *op)
{
	const struct pd_stage *stage = &m->lists->plan->stages[op->stage];
	int bucket = op->bucket > 0 ? op->bucket - 1 : 0;
	uint64_t sum = 0;

	for (int r = 0; r < stage->replicas; r++) {
		const struct pd_op *other = head(m, stage->ranks[r]);

		if (!other || other->kind != PD_OP_allreduce || other->stage != op->stage ||
		    other->bucket != op->bucket)
			return false;
		sum += *sum_of(m, replica_of(m, stage->ranks[r], op->stage), op->stage, bucket,
			       op->microbatch);
	}
	for (int r = 0; r < stage->replicas; r++) {
		*sum_of(m, replica_of(m, stage->ranks[r], op->stage), op->stage, bucket,
			op->microbatch) = sum;
		m->at[stage->ranks[r]]++;
	}
	return true;
}

/* Lets all ranks agree on all stages' sums, of the first replica of each. */
static bool agree(struct machine *m, const struct pd_op *op)
{
	const struct pd_lists *lists = m->lists;
	uint64_t all = 0;

	for (int r = 0; r < lists->rank_count; r++) {
		const struct pd_op *other = head(m, r);

		if (!other || other->kind != PD_OP_agree)
			return false;
	}
	for (int i = 0; i < lists->role_count; i++)
		if (lists->roles[i].replica == 0)
			all += all_of(m, &m->replicas[i], lists->roles[i].stage, op->microbatch);
	for (int i = 0; i < lists->role_count; i++)
		m->replicas[i].agreed = all;
	for (int r = 0; r < lists->rank_count; r++)
		m->at[r]++;
	return true;
}

/* Does a rank's next operation if all its parties are at it; returns whether it did. */
static bool advance(struct machine *m, int rank)
{
	const struct pd_op *op = head(m, rank);

	if (!op)
		return false;
	if (pd_op_transfers(op->kind))
		return transfer(m, op);
	if (op->kind == PD_OP_allreduce)
		return allreduce(m, op);
	if (op->kind == PD_OP_agree)
		return agree(m, op);
	compute(m, op);
	m->at[rank]++;
	return true;
}

static void machine_init(struct machine *m, const struct pd_lists *lists)
{
	*m = (struct machine){ .lists = lists, .n = lists->microbatches };
	m->replicas = pd_calloc((size_t)lists->role_count, sizeof(*m->replicas));
	m->at = pd_calloc((size_t)lists->rank_count, sizeof(*m->at));
	for (int i = 0; i < lists->role_count; i++)
		replica_init(m, &m->replicas[i], lists->roles[i].stage);
}

static void machine_release(struct machine *m)
{
	for (int i = 0; i < m->lists->role_count; i++)
		replica_free(&m->replicas[i]);
	free(m->replicas);
	free(m->at);
}

/* Runs the lists; returns true if every list comes to its end. */
static bool runs(struct machine *m)
{
	bool moved = true, ended = true;

	while (moved) {
		moved = false;
		for (int r = 0; r < m->lists->rank_count; r++)
			while (advance(m, r))
				moved = true;
	}
	for (int r = 0; r < m->lists->rank_count; r++)
		ended = ended && !head(m, r);
	return ended;
}

/*
 * Returns the number of forwards of stage s before its first backward, less one, by the clock: a forward
 * takes as many units of time as there are replicas, a backward twice as many, and forwards that the
 * first stage admits at once arrive at stage s one after the other.
 */
static int64_t eager(const struct pd_plan *plan, int s)
{
	int64_t above = plan->stages[0].warmup * (int64_t)plan->stages[0].replicas;

	for (int i = 1; i <= s; i++) {
		int64_t r = plan->stages[i].replicas, w = plan->stages[i].warmup, back = r, n = 0;

		for (int k = i + 1; k < plan->stage_count; k++)
			back += 3 * plan->stages[k].replicas;
		while ((n + 2) * r <= back && (n + 1) * r <= above)
			n++;
		above = (n > w ? n : w) * r;
	}
	return above / plan->stages[s].replicas;
}

/* Returns the version by the published rules, which count updates of stages without replicas (r = 1). */
static int64_t published(const struct pd_plan *plan, int s, int64_t b)
{
	int64_t r0 = plan->stages[0].replicas, r = plan->stages[s].replicas, M = plan->microbatches;
	int64_t G = M > 1 ? M : r, G0 = M > 1 ? M : r0, t = b / G, w = plan->stages[s].warmup;
	int64_t w0 = plan->stages[0].warmup, at;

	if (plan->weights == PD_WEIGHTS_FLUSH)
		return t * G;
	if (plan->weights == PD_WEIGHTS_2BW)
		return t > 0 ? (t - 1) * G : 0;
	if (plan->schedule == PD_SCHEDULE_NF1B) {
		at = t - (plan->weights == PD_WEIGHTS_VERTICAL_SYNC ? w0 : w);
		return at > 0 ? at * G : 0;
	}
	if (plan->schedule == PD_SCHEDULE_NONE)
		w = w0 = 0;
	if (plan->startup == PD_STARTUP_EAGER && b < (w0 + 1) * r0)
		w = eager(plan, s);
	if (plan->weights == PD_WEIGHTS_VERTICAL_SYNC) {
		/* These are whole groups of the first stage whose backwards ended before b entered it. */
		at = (b / r0 - w0) * r0;
		at = at > 0 ? at / G0 * G0 : 0;
		return at / G * G;
	}
	at = (b / r - w) * r;
	return at > 0 ? at / G * G : 0;
}

/*
 * The serial program, which computes one microbatch after the other at the versions that the rule names,
 * or, with "latest", which depends on times, at those that the lists name.
 */
struct serial {
	struct machine machine;         /* one replica per stage: role s is used for stage s */
	int64_t *reads[3];              /* per stage and microbatch: forward, recompute, backward */
};

static int read_of(enum pd_op_kind kind)
{
	switch (kind) {
	case PD_OP_forward:
		return 0;
	case PD_OP_recompute:
		return 1;
	case PD_OP_backward:
	case PD_OP_backward_input:
		return 2;
	default:
		return -1;
	}
}

static void serial_versions(struct serial *serial, const struct pd_lists *lists)
{
	int64_t n = lists->microbatches;
	size_t cells = (size_t)(n * lists->plan->stage_count);

	for (int i = 0; i < 3; i++) {
		serial->reads[i] = pd_calloc(cells, sizeof(int64_t));
		for (int s = 0; s < lists->plan->stage_count; s++)
			for (int64_t b = 0; b < n; b++)
				serial->reads[i][s * n + b] = published(lists->plan, s, b);
	}
	if (lists->plan->weights != PD_WEIGHTS_LATEST)
		return;
	for (int r = 0; r < lists->rank_count; r++)
		for (size_t i = 0; i < lists->ranks[r].count; i++) {
			const struct pd_op *op = &lists->ranks[r].ops[i];

			if (read_of(op->kind) >= 0)
				serial->reads[read_of(op->kind)][op->stage * n + op->microbatch] =
					op->version;
		}
}

/* Returns the value that all ranks would agree on after microbatch b; there are no replicas here. */
static uint64_t serial_agreed(struct serial *serial, int64_t b)
{
	struct machine *m = &serial->machine;
	uint64_t all = 0;

	for (int s = 0; s < m->lists->plan->stage_count && m->lists->plan->agree; s++)
		all += all_of(m, &m->replicas[s], s, b);
	return all;
}

static void serial_microbatch(struct serial *serial, int64_t b)
{
	struct machine *m = &serial->machine;
	const struct pd_wiring *wiring = m->lists->wiring;
	const struct pd_plan *plan = m->lists->plan;
	uint64_t all;

	for (int s = 0; s < plan->stage_count; s++) {
		struct replica *replica = &m->replicas[s];

		replica->loaded[b] = true;
		forward(m, replica, s, b, serial->reads[0][s * m->n + b]);
		for (int i = 0; i < wiring->out_count[s]; i++) {
			int link = wiring->out[s][i];

			*arrived(m, &m->replicas[wiring->links[link].to], link, false, b) =
				mix(replica->forward[b], 2 * (uint64_t)link);
		}
	}
	for (int s = plan->stage_count - 1; s >= 0; s--) {
		struct replica *replica = &m->replicas[s];

		if (plan->stages[s].recompute)
			replica->kept[b] = activation(m, replica, s, b,
						      serial->reads[1][s * m->n + b]);
		backward(m, replica, s, b, serial->reads[2][s * m->n + b]);
		add(m, replica, s, 0, b);
		for (int i = 0; i < wiring->in_count[s]; i++) {
			int link = wiring->in[s][i];

			*arrived(m, &m->replicas[wiring->links[link].from], link, true, b) =
				mix(replica->back[b], 2 * (uint64_t)link + 1);
		}
	}
	all = serial_agreed(serial, b);
	for (int s = 0; s < plan->stage_count; s++) {
		int64_t G = plan->microbatches > 1 ? plan->microbatches
						   : plan->stages[s].replicas;

		m->replicas[s].agreed = all;
		if ((b + 1) % G == 0 || b + 1 == m->n)
			step(m, &m->replicas[s], s, b, b + 1);
	}
}

/* Tells whether all versions of all replicas are those of the serial program. */
static bool same_weights(const struct machine *m)
{
	struct serial serial = { .machine = { .lists = m->lists, .n = m->n } };
	size_t stages = (size_t)m->lists->plan->stage_count;
	bool same = true;

	serial.machine.replicas = pd_calloc(stages, sizeof(struct replica));
	for (size_t s = 0; s < stages; s++)
		replica_init(&serial.machine, &serial.machine.replicas[s], (int)s);
	serial_versions(&serial, m->lists);
	for (int64_t b = 0; b < m->n; b++)
		serial_microbatch(&serial, b);
	for (int i = 0; i < m->lists->role_count; i++) {
		struct replica *expected = &serial.machine.replicas[m->lists->roles[i].stage];

		same = same && m->replicas[i].newest == m->n &&
		       memcmp(m->replicas[i].weights, expected->weights,
			      (size_t)(m->n + 1) * sizeof(uint64_t)) == 0;
	}
	for (size_t s = 0; s < stages; s++)
		replica_free(&serial.machine.replicas[s]);
	free(serial.machine.replicas);
	for (int i = 0; i < 3; i++)
		free(serial.reads[i]);
	return same;
}

bool runs_right(const struct pd_lists *lists)
{
	struct machine machine;
	bool right;

	machine_init(&machine, lists);
	right = runs(&machine);
	if (!right)
		diag("it does not come to its end");
	if (right && !same_weights(&machine)) {
		diag("its weights are wrong");
		right = false;
	}
	machine_release(&machine);
	return right;
}
