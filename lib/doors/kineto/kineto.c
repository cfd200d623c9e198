/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/kineto.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "doors/kineto/file.h"
#include "doors/kineto/modules.h"
#include "doors/kineto/trace.h"
#include "profile/rounds.h"

#include <inttypes.h>
#include <stdlib.h>

/* Behind it is the number of times that a stage was updated. */
#define ACTIONS (PD_TORCH_ACTIONS + 1)
#define UPDATE PD_TORCH_ACTIONS

struct times {
	int64_t *ns;
	size_t count, capacity;
};

struct pipeline {
	struct pd_kineto_file *files;   /* by rank */
	int ranks, stages;
	int64_t microbatches, steps;
	int *rank_of;                   /* stage -> rank */
	int *seen;                      /* stage, action, microbatch -> how often it was done */
	int64_t *received_ns;           /* the same -> when its last message had come */
	struct times *times;            /* stage, action or UPDATE -> their lengths */
	struct pd_record *records;
	size_t record_count, record_capacity;
};

static size_t place(const struct pipeline *p, int64_t stage, enum pd_torch_action action, int64_t microbatch)
{
	return (size_t)((stage * ACTIONS + action) * p->microbatches + microbatch);
}

static int by_rank(const void *a, const void *b)
{
	const struct pd_kineto_file *x = a, *y = b;

	PD_ORDER(x->rank, y->rank);
	return 0;
}

static int read_files(struct pipeline *p, const char *const *files, struct pd_error *err)
{
	for (int f = 0; f < p->ranks; f++) {
		if (pd_kineto_file_read(files[f], &p->files[f], err) < 0)
			return -1;
		if (p->files[f].rank < 0)
			p->files[f].rank = f;
	}
	qsort(p->files, (size_t)p->ranks, sizeof(*p->files), by_rank);
	for (int f = 1; f < p->ranks; f++)
		if (p->files[f].rank == p->files[f - 1].rank)
			return pd_error_input(err, "%s: it is of rank %" PRId64 ", as %s is: expected one file of "
					      "each rank", p->files[f].name, p->files[f].rank,
					      p->files[f - 1].name);
	return 0;
}

/* Finds how many stages and microbatches there are; each microbatch has an action at each stage. */
static int find_size(struct pipeline *p, struct pd_error *err)
{
	int64_t events = 0, stages = 0;

	for (int f = 0; f < p->ranks; f++)
		for (size_t i = 0; i < p->files[f].count; i++) {
			const struct pd_kineto_event *event = &p->files[f].events[i];

			if (event->kind != PD_KINETO_ACTION)
				continue;
			if (event->act.stage >= stages)
				stages = event->act.stage + 1;
			if (event->act.microbatch >= p->microbatches)
				p->microbatches = event->act.microbatch + 1;
			events++;
		}
	if (stages * p->microbatches > events)
		return pd_error_input(err, "%s: %" PRId64 " stages and %" PRId64 " microbatches in %" PRId64 " actions: expected "
				      "the traces of all ranks, and whole steps", p->files[0].name, stages,
				      p->microbatches, events);
	p->stages = (int)stages;
	return 0;
}

/* Finds which rank has which stages: with several, rank r those that follow r at distances of the ranks. */
static int find_ranks(struct pipeline *p, struct pd_error *err)
{
	for (int s = 0; s < p->stages; s++)
		p->rank_of[s] = -1;
	for (int f = 0; f < p->ranks; f++)
		for (size_t i = 0; i < p->files[f].count; i++) {
			const struct pd_kineto_event *event = &p->files[f].events[i];

			if (event->kind != PD_KINETO_ACTION || event->act.action != PD_TORCH_F)
				continue;
			if (p->rank_of[event->act.stage] >= 0 && p->rank_of[event->act.stage] != f)
				return pd_error_input(err, "%s: it has stage %" PRId64 ", as %s has: expected the ranks "
						      "of one pipeline, without its replicas", p->files[f].name,
						      event->act.stage, p->files[p->rank_of[event->act.stage]].name);
			p->rank_of[event->act.stage] = f;
		}
	for (int s = 0; s < p->stages; s++) {
		if (p->rank_of[s] < 0)
			return pd_error_input(err, "%s: nobody has stage %d of %d: expected the traces of all ranks",
					      p->files[0].name, s, p->stages);
		if (p->rank_of[s] != s % p->ranks)
			return pd_error_input(err, "%s: stage %d is on rank %d: expected it on rank %d, since a plan "
					      "gives stages to ranks in turn", p->files[p->rank_of[s]].name, s,
					      p->rank_of[s], s % p->ranks);
	}
	return p->stages % p->ranks == 0 ? 0 : pd_error_input(
		err, "%s: %d ranks have %d stages: expected as many on each", p->files[0].name, p->ranks, p->stages);
}

static enum pd_op_kind kind_of(enum pd_torch_action action)
{
	switch (action) {
	case PD_TORCH_F: return PD_OP_forward;
	case PD_TORCH_I: return PD_OP_backward_input;
	case PD_TORCH_W: return PD_OP_backward_weight;
	case PD_TORCH_B: return PD_OP_backward;
	case PD_TORCH_SEND_F: return PD_OP_send_activation;
	case PD_TORCH_RECV_F: return PD_OP_recv_activation;
	case PD_TORCH_SEND_B: return PD_OP_send_gradient;
	case PD_TORCH_RECV_B: return PD_OP_recv_gradient;
	default: return PD_OP_KINDS;
	}
}

static void add_time(struct times *times, int64_t ns)
{
	times->ns = pd_grow(times->ns, &times->capacity, times->count + 1, sizeof(*times->ns));
	times->ns[times->count++] = ns;
}

static void add(struct pipeline *p, const struct pd_record *record)
{
	p->records = pd_grow(p->records, &p->record_capacity, p->record_count + 1, sizeof(*p->records));
	p->records[p->record_count++] = *record;
}

/* Returns when the message ends that the processor began within an action, or the action's own end. */
static int64_t message_end(const struct pd_kineto_file *file, size_t at)
{
	int64_t end_ns = file->events[at].end_ns;

	for (size_t i = at + 1; i < file->count && file->events[i].start_ns <= file->events[at].end_ns; i++)
		if (file->events[i].kind == PD_KINETO_MESSAGE && file->events[i].end_ns > end_ns)
			end_ns = file->events[i].end_ns;
	return end_ns;
}

/* A computation of the processor waits for its message before it begins; a GPU's begins behind it. */
static int64_t begin_of(const struct pipeline *p, const struct pd_kineto_event *event)
{
	bool forward = event->act.action == PD_TORCH_F;
	int64_t came_ns = p->received_ns[place(p, event->act.stage, forward ? PD_TORCH_RECV_F : PD_TORCH_RECV_B,
					       event->act.microbatch)];

	return came_ns > event->start_ns && came_ns <= event->end_ns ? came_ns : event->start_ns;
}

static void add_action(struct pipeline *p, const struct pd_kineto_file *file, size_t at)
{
	const struct pd_kineto_event *event = &file->events[at];
	size_t n = place(p, event->act.stage, event->act.action, event->act.microbatch);
	enum pd_op_kind kind = kind_of(event->act.action);
	int64_t step = p->seen[n]++;
	struct pd_record record = {
		.op = { .kind = kind, .rank = p->rank_of[event->act.stage], .stage = (int)event->act.stage, .peer = -1,
			.link = -1, .microbatch = step * p->microbatches + event->act.microbatch, .version = -1,
			.keep = -1, .seq = -1 },
		.start_ns = event->start_ns, .end_ns = event->end_ns,
	};

	if (kind == PD_OP_KINDS)
		return;
	if (pd_op_transfers(kind)) {
		bool up = kind == PD_OP_send_activation || kind == PD_OP_recv_gradient;
		int64_t peer = event->act.stage + (up ? 1 : -1);

		if (peer < 0 || peer >= p->stages)
			return;
		record.op.peer = p->rank_of[peer];
		record.op.link = (int)(up ? event->act.stage : peer);
		record.end_ns = file->gpu ? event->end_ns : message_end(file, at);
		p->received_ns[n] = record.end_ns;
	} else {
		record.op.version = step * p->microbatches;
		record.start_ns = file->gpu ? event->start_ns : begin_of(p, event);
		add_time(&p->times[event->act.stage * ACTIONS + event->act.action], record.end_ns - record.start_ns);
	}
	add(p, &record);
}

/* An update takes from its first optimizer's step to the end of its last, and each stage of the rank a part. */
static void add_updates(struct pipeline *p, int rank, int64_t start_ns, int64_t end_ns)
{
	int chunks = p->stages / p->ranks;
	int64_t step = p->seen[place(p, rank, PD_TORCH_F, 0)] - 1;

	for (int c = 0; c < chunks && step >= 0; c++) {
		int64_t each_ns = (end_ns - start_ns) / chunks, rest_ns = (end_ns - start_ns) % chunks;
		struct pd_record record = {
			.op = { .kind = PD_OP_step, .rank = rank, .stage = rank + c * p->ranks, .peer = -1, .link = -1,
				.microbatch = step * p->microbatches, .version = (step + 1) * p->microbatches,
				.keep = -1, .seq = -1 },
			.start_ns = start_ns + each_ns * c + rest_ns * c / chunks,
			.end_ns = start_ns + each_ns * (c + 1) + rest_ns * (c + 1) / chunks,
		};

		add(p, &record);
		add_time(&p->times[record.op.stage * ACTIONS + UPDATE], record.end_ns - record.start_ns);
	}
}

static void add_rank(struct pipeline *p, int rank)
{
	const struct pd_kineto_file *file = &p->files[rank];
	int64_t start_ns = -1, end_ns = -1;

	for (size_t i = 0; i < file->count; i++) {
		const struct pd_kineto_event *event = &file->events[i];

		if (event->kind == PD_KINETO_UPDATE) {
			start_ns = start_ns < 0 ? event->start_ns : start_ns;
			end_ns = event->end_ns > end_ns ? event->end_ns : end_ns;
			continue;
		}
		if (event->kind != PD_KINETO_ACTION)
			continue;
		if (start_ns >= 0)
			add_updates(p, rank, start_ns, end_ns);
		start_ns = end_ns = -1;
		add_action(p, file, i);
	}
	if (start_ns >= 0)
		add_updates(p, rank, start_ns, end_ns);
}

/* Checks that whole steps were recorded: every microbatch of every stage as often. */
static int check_complete(struct pipeline *p, struct pd_error *err)
{
	p->steps = p->seen[place(p, 0, PD_TORCH_F, 0)];
	for (int s = 0; s < p->stages; s++)
		for (int64_t m = 0; m < p->microbatches; m++) {
			int forwards = p->seen[place(p, s, PD_TORCH_F, m)];
			int whole = p->seen[place(p, s, PD_TORCH_B, m)];
			int input = p->seen[place(p, s, PD_TORCH_I, m)], weight = p->seen[place(p, s, PD_TORCH_W, m)];
			int backwards = whole + (input > weight ? input : weight);

			if (forwards != p->steps || backwards != p->steps || input != weight)
				return pd_error_input(err, "%s: stage %d, microbatch %" PRId64 ": %d forwards and %d "
						      "backwards, where there are %" PRId64 " steps: expected "
						      "whole steps, and each action by itself",
						      p->files[p->rank_of[s]].name, s, m, forwards, backwards,
						      p->steps);
		}
	return 0;
}

static int64_t median(const struct pipeline *p, int stage, int action)
{
	const struct times *times = &p->times[stage * ACTIONS + action];

	return times->count > 0 ? pd_median(times->ns, (int64_t)times->count) : 0;
}

static json_t *layer(const struct pipeline *p, int stage)
{
	char *name = pd_format("stage%d", stage), *before = pd_format("stage%d", stage - 1);
	int64_t input = median(p, stage, PD_TORCH_I), weight = median(p, stage, PD_TORCH_W);
	int64_t whole = median(p, stage, PD_TORCH_B);
	json_t *layer = json_pack("{ss s[s*] sI sI sI si si}", "name", name, "inputs", stage ? before : NULL,
				  "forward_ns", median(p, stage, PD_TORCH_F), "backward_ns",
				  whole > 0 ? whole : input + weight, "update_ns", median(p, stage, UPDATE),
				  "activation_bytes", 0, "parameter_bytes", 0);

	if (input + weight > 0) {
		pd_json_set(layer, "backward_input_ns", json_integer(input));
		pd_json_set(layer, "backward_weight_ns", json_integer(weight));
	}
	free(name);
	free(before);
	return layer;
}

static struct pd_trace *make_trace(struct pipeline *p, struct pd_error *err)
{
	int *ones = pd_calloc((size_t)p->stages, sizeof(*ones));
	struct pd_kineto_run run = {
		.file = p->files[0].name, .gpu = p->files[0].gpu, .layers = json_array(), .stage_count = p->stages,
		.rank_count = p->ranks, .layer_counts = ones, .rank_of = p->rank_of, .microbatches = p->microbatches,
		.records = p->records, .record_count = p->record_count,
	};
	struct pd_trace *trace;

	for (int s = 0; s < p->stages; s++) {
		pd_json_add(run.layers, layer(p, s));
		ones[s] = 1;
	}
	trace = pd_kineto_trace(&run, err);
	free(ones);
	return trace;
}

static void release(struct pipeline *p)
{
	for (int f = 0; f < p->ranks; f++)
		pd_kineto_file_release(&p->files[f]);
	for (int i = 0; p->times && i < p->stages * ACTIONS; i++)
		free(p->times[i].ns);
	free(p->files);
	free(p->rank_of);
	free(p->seen);
	free(p->received_ns);
	free(p->times);
	free(p->records);
}

static bool has_actions(const struct pipeline *p)
{
	for (int f = 0; f < p->ranks; f++)
		if (p->files[f].acts)
			return true;
	return false;
}

static int lacks_actions(const struct pd_kineto_file *file, struct pd_error *err)
{
	return pd_error_input(err, "%s: expected actions of a pipeline, such as \"PP:0F0\", found none: schedules of "
			      "torch.distributed.pipelining that follow a table have them", file->name);
}

static struct pd_trace *read_pipeline(struct pipeline *p, const char *blocks, struct pd_error *err)
{
	size_t cells;

	if (blocks) {
		pd_error_input(err, "--blocks does nothing with the actions of a pipeline, which are of stages");
		return NULL;
	}
	for (int f = 0; f < p->ranks; f++)
		if (!p->files[f].acts) {
			lacks_actions(&p->files[f], err);
			return NULL;
		}
	if (find_size(p, err) < 0)
		return NULL;
	p->rank_of = pd_calloc((size_t)p->stages, sizeof(*p->rank_of));
	if (find_ranks(p, err) < 0)
		return NULL;
	cells = (size_t)p->stages * ACTIONS * (size_t)p->microbatches;
	p->seen = pd_calloc(cells, sizeof(*p->seen));
	p->received_ns = pd_calloc(cells, sizeof(*p->received_ns));
	p->times = pd_calloc((size_t)p->stages * ACTIONS, sizeof(*p->times));
	for (int f = 0; f < p->ranks; f++)
		add_rank(p, f);
	return check_complete(p, err) == 0 ? make_trace(p, err) : NULL;
}

/* Modules say nothing of other ranks. */
static struct pd_trace *read_modules(struct pipeline *p, const char *blocks, struct pd_kineto_missing *missing,
				     struct pd_error *err)
{
	struct pd_trace *trace;
	regex_t pattern;

	if (p->ranks > 1) {
		pd_error_input(err, "%s: expected actions of a pipeline, such as \"PP:0F0\", found none: schedules of "
			       "torch.distributed.pipelining that follow a table have them, and of modules one process "
			       "is read, not %d", p->files[0].name, p->ranks);
		return NULL;
	}
	if (blocks && regcomp(&pattern, blocks, REG_EXTENDED) != 0) {
		pd_error_input(err, "--blocks: expected an extended regular expression, found \"%.60s\"", blocks);
		return NULL;
	}
	trace = pd_kineto_modules(&p->files[0].ops, blocks ? &pattern : NULL, missing, err);
	if (blocks)
		regfree(&pattern);
	return trace;
}

static void find_missing(const struct pipeline *p, struct pd_kineto_missing *missing)
{
	for (int f = 0; f < p->ranks; f++) {
		const struct pd_kineto_ops *ops = &p->files[f].ops;

		missing->device |= p->files[f].acts && ops->device && !p->files[f].gpu;
		if (ops->unread)
			snprintf(missing->unread, sizeof(missing->unread), "%s", ops->unread);
	}
}

struct pd_trace *pd_kineto_read(const char *const *files, int count, const char *blocks,
				struct pd_kineto_missing *missing_p, struct pd_error *err)
{
	struct pipeline p = { .ranks = count, .files = pd_calloc((size_t)count, sizeof(*p.files)) };
	struct pd_trace *trace = NULL;

	*missing_p = (struct pd_kineto_missing){ 0 };
	if (read_files(&p, files, err) == 0) {
		find_missing(&p, missing_p);
		trace = has_actions(&p) ? read_pipeline(&p, blocks, err)
					: read_modules(&p, blocks, missing_p, err);
	}
	release(&p);
	return trace;
}
