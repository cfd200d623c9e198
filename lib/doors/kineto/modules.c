/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/kineto/modules.h"

#include "base/mem.h"
#include "base/sort.h"
#include "doors/kineto/blocks.h"
#include "doors/kineto/passes.h"
#include "doors/kineto/trace.h"
#include "profile/rounds.h"

#include <stdlib.h>

struct modules {
	const struct pd_kineto_passes *passes;
	int64_t *values;                /* of all whole passes, or updates */
	struct pd_record *records;
	size_t count, capacity;
};

static bool is_empty(const struct pd_kineto_span *span)
{
	return span->start_ns > span->end_ns;
}

/* Returns the median over the passes of a time: of forward and, of backward, of the parts that are asked for. */
static int64_t median(struct modules *m, int layer, bool forward, bool input, bool weight)
{
	for (size_t p = 0; p < m->passes->whole_count; p++) {
		const struct pd_kineto_times *times =
			&m->passes->times[p * (size_t)m->passes->layer_count + (size_t)layer];

		m->values[p] = pd_plus(forward ? times->forward_ns : 0,
				       pd_plus(input ? times->input_ns : 0, weight ? times->weight_ns : 0));
	}
	return pd_median(m->values, (int64_t)m->passes->whole_count);
}

/* Returns how far a layer's times vary: the range of the middle half over the median. */
static double spread(struct modules *m, int layer)
{
	int64_t middle = median(m, layer, true, true, true);    /* sorts the values */
	size_t n = m->passes->whole_count;

	return middle > 0 ? (double)(m->values[n * 3 / 4] - m->values[n / 4]) / (double)middle : 0;
}

static int64_t update_ns(struct modules *m)
{
	int64_t count = 0, *values = pd_calloc(m->passes->update_count + 1, sizeof(*values)), ns;

	for (size_t u = 0; u < m->passes->update_count; u++)
		if (!is_empty(&m->passes->updates[u]))
			values[count++] = m->passes->updates[u].end_ns - m->passes->updates[u].start_ns;
	ns = count > 0 ? pd_median(values, count) : 0;
	free(values);
	return ns;
}

/* Returns a layer's part of the update: that of its parameters, or an equal one of those that learn. */
static double update_part(const struct modules *m, int layer)
{
	double all = 0, learning = 0;

	for (int l = 0; l < m->passes->layer_count; l++) {
		all += (double)m->passes->layers[l].parameters;
		learning += m->passes->layers[l].learns;
	}
	if (all > 0)
		return (double)m->passes->layers[layer].parameters / all;
	return m->passes->layers[layer].learns ? 1 / learning : 0;
}

/* Returns the layer whose parameters a call of a module reads that was called before, or NULL. */
static const char *shares(const struct modules *m, int layer)
{
	const struct pd_kineto_layer *mine = &m->passes->layers[layer];

	for (int l = 0; l < layer && mine->parameters == 0; l++)
		if (m->passes->layers[l].call == mine->call && m->passes->layers[l].parameters > 0)
			return m->passes->layers[l].name;
	return NULL;
}

static json_t *describe_layer(struct modules *m, int layer, int64_t all_updates_ns)
{
	const struct pd_kineto_layer *it = &m->passes->layers[layer];
	const char *before = layer > 0 ? it[-1].name : NULL;
	int64_t input = median(m, layer, false, true, false), weight = median(m, layer, false, false, true);
	int64_t whole = it->apart ? pd_plus(input, weight) : median(m, layer, false, true, true);
	json_t *json = json_pack("{ss s[s*] sI sI sI sI sI}", "name", it->name, "inputs", before, "forward_ns",
				 median(m, layer, true, false, false), "backward_ns", whole, "update_ns",
				 (int64_t)((double)all_updates_ns * update_part(m, layer)), "activation_bytes",
				 it->bytes > 0 ? it->bytes : 0, "parameter_bytes", pd_times(it->parameters, 4));

	if (it->apart && whole > 0) {
		pd_json_set(json, "backward_input_ns", json_integer(input));
		pd_json_set(json, "backward_weight_ns", json_integer(weight));
	}
	if (shares(m, layer))
		pd_json_set(json, "shares", json_string(shares(m, layer)));
	pd_json_set(json, "spread", json_real(spread(m, layer)));
	return json;
}

static void add(struct modules *m, enum pd_op_kind kind, int64_t microbatch, int64_t version,
		const struct pd_kineto_span *span)
{
	if (is_empty(span))
		return;
	m->records = pd_grow(m->records, &m->capacity, m->count + 1, sizeof(*m->records));
	m->records[m->count++] = (struct pd_record){
		.op = { .kind = kind, .peer = -1, .link = -1, .microbatch = microbatch, .version = version, .keep = -1,
			.seq = -1 },
		.start_ns = span->start_ns, .end_ns = span->end_ns,
	};
}

/* Returns the pass behind those that the update behind pass p is of; without any update each is for itself. */
static size_t group_end(const struct pd_kineto_passes *passes, size_t p)
{
	size_t end = p + 1;

	while (passes->update_count > 0 && end < passes->pass_count &&
	       passes->passes[end].updates == passes->passes[p].updates)
		end++;
	return end;
}

/* Tells whether these passes are a step: they are whole, and an update follows, if there are any. */
static bool is_step(const struct pd_kineto_passes *passes, size_t p, size_t end)
{
	if (passes->update_count > 0 && passes->passes[p].updates >= (int64_t)passes->update_count)
		return false;
	while (p < end && passes->passes[p].whole)
		p++;
	return p == end;
}

/* Returns of how many microbatches a step is in the median. */
static int64_t find_microbatches(struct modules *m)
{
	const struct pd_kineto_passes *passes = m->passes;
	int64_t steps = 0, *sizes = pd_calloc(passes->pass_count + 1, sizeof(*sizes)), microbatches = 1;

	for (size_t p = 0, end; p < passes->pass_count; p = end) {
		end = group_end(passes, p);
		if (is_step(passes, p, end))
			sizes[steps++] = (int64_t)(end - p);
	}
	if (steps > 0) {
		qsort(sizes, (size_t)steps, sizeof(*sizes), pd_by_value);
		microbatches = sizes[steps / 2];
	}
	free(sizes);
	return microbatches;
}

/* Adds the operations of the steps of so many microbatches; returns the median of their times, 0: there is one. */
static int64_t add_steps(struct modules *m, int64_t microbatches)
{
	const struct pd_kineto_passes *passes = m->passes;
	int64_t microbatch = 0, steps = 0, before_ns = 0, *spans = pd_calloc(passes->pass_count + 1, sizeof(*spans));
	int64_t step_ns;

	for (size_t p = 0, end; p < passes->pass_count; p = end) {
		int64_t version = microbatch;

		end = group_end(passes, p);
		if (!is_step(passes, p, end) || (int64_t)(end - p) != microbatches)
			continue;
		if (version > 0)
			spans[steps++] = passes->passes[p].forward.start_ns - before_ns;
		before_ns = passes->passes[p].forward.start_ns;
		for (size_t n = p; n < end; n++, microbatch++) {
			add(m, PD_OP_load, microbatch, -1, &passes->passes[n].load);
			add(m, PD_OP_forward, microbatch, version, &passes->passes[n].forward);
			add(m, PD_OP_backward, microbatch, version, &passes->passes[n].backward);
		}
		if (passes->update_count > 0)
			add(m, PD_OP_step, version, microbatch, &passes->updates[passes->passes[p].updates]);
	}
	step_ns = steps > 0 ? pd_median(spans, steps) : 0;
	free(spans);
	return step_ns;
}

static struct pd_trace *make_trace(struct modules *m, const char *file, struct pd_error *err)
{
	const int on_rank = 0;
	int64_t updates_ns = update_ns(m);
	struct pd_kineto_run run = {
		.file = file, .gpu = m->passes->gpu, .dtype = m->passes->dtype, .layers = json_array(), .stage_count = 1,
		.rank_count = 1, .layer_counts = &m->passes->layer_count, .rank_of = &on_rank,
		.microbatches = find_microbatches(m),
	};

	for (int l = 0; l < m->passes->layer_count; l++)
		pd_json_add(run.layers, describe_layer(m, l, updates_ns));
	run.step_ns = add_steps(m, run.microbatches);
	run.records = m->records;
	run.record_count = m->count;
	return pd_kineto_trace(&run, err);
}

/* Returns the part of the time of all nodes that belongs to no call. */
static double unknown_backward(const struct pd_kineto_walk *walk)
{
	double all = 0, unknown = 0;

	for (size_t n = 0; n < walk->node_count; n++)
		for (int part = 0; part < PD_KINETO_PARTS; part++) {
			all += (double)walk->nodes[n].ns[part];
			unknown += walk->nodes[n].call < 0 ? (double)walk->nodes[n].ns[part] : 0;
		}
	return all > 0 ? unknown / all : 0;
}

struct pd_trace *pd_kineto_modules(struct pd_kineto_ops *ops, const regex_t *blocks,
				   struct pd_kineto_missing *missing_p, struct pd_error *err)
{
	struct pd_kineto_walk walk;
	struct pd_kineto_passes passes;
	struct modules m = { .passes = &passes };
	struct pd_trace *trace = NULL;

	pd_kineto_walk(ops, blocks, &walk);
	if (!pd_kineto_has_labels(&walk)) {
		pd_kineto_walk_release(&walk);
		missing_p->blocks = pd_kineto_blocks(ops);
		pd_kineto_walk(ops, blocks, &walk);
	}
	if (pd_kineto_passes(&walk, &passes, err) == 0) {
		missing_p->passes = passes.left_out;
		missing_p->device = ops->device && !walk.gpu;
		missing_p->compiled = ops->compiled ? passes.layer_count : 0;
		missing_p->backward = unknown_backward(&walk);
		m.values = pd_calloc(passes.whole_count + 1, sizeof(*m.values));
		trace = make_trace(&m, ops->file, err);
	}
	free(m.values);
	free(m.records);
	pd_kineto_passes_release(&passes);
	pd_kineto_walk_release(&walk);
	return trace;
}
