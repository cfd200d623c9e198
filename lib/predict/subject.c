/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/subject.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "predict/replay.h"
#include "schedule/check.h"
#include "trace/compare.h"
#include "trace/whole.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct pd_lists *read_table(const struct pd_what_if *what, const struct pd_plan *plan,
				   struct pd_error *err)
{
	FILE *in = pd_document_open(what->schedule, err);
	const char *name = pd_document_name(what->schedule);
	const struct pd_table_door *door;
	struct pd_lists *lists = NULL;

	if (!in)
		return NULL;
	door = pd_table_door_of(what->tables, in);
	if (door)
		lists = door->read(in, name, plan, err);
	else
		pd_error_input(err, "%s: expected a table, such as pd-schedule --format=torch writes", name);
	pd_document_close(in);
	return lists;
}

/* Replays the stages of a plan in the order of a table. */
static int replay_table(const struct pd_plan *plan, const struct pd_what_if *what,
			const struct pd_replay_options *with, struct pd_subject *out_p, struct pd_error *err)
{
	struct pd_replay_options options = { .processors = with->processors, .threads = with->threads };
	struct pd_lists *lists;
	int64_t minibatches = with->minibatches;

	if (what->weights || what->microbatches || what->bucket_bytes || what->sparsity >= 0 || what->reducer ||
	    what->gradient_dtype)
		return pd_error_input(err, "--schedule: a table says itself what is done: expected none of --weights, "
				      "--microbatches, --bucket, --sparsity, --all-reduce and --gradient-dtype");
	lists = read_table(what, plan, err);
	if (!lists)
		return -1;
	if (with->phase_count > 0)
		minibatches = with->bounds[with->phase_count] / plan->microbatches;
	pd_lists_do_again(lists, minibatches > 0 ? minibatches : pd_steady_minibatches(lists->plan));
	options.lists = lists;
	out_p->listed = true;
	out_p->trace = pd_replay(lists->plan, &options, err);
	pd_lists_free(lists);
	return out_p->trace ? 0 : -1;
}

/* Replays the plan as it is, and under the other conditions; changes it. */
static int replay_changed(struct pd_plan *plan, const struct pd_what_if *what,
			  const struct pd_replay_options *with, struct pd_subject *out_p,
			  struct pd_error *err)
{
	struct pd_replay_options changed = *with;
	struct pd_trace *before;

	if (!out_p->changed) {
		out_p->trace = pd_replay(plan, with, err);
		return out_p->trace ? 0 : -1;
	}
	before = pd_replay(plan, with, err);
	if (!before)
		return -1;
	out_p->before_ns = pd_replay_period_ns(before);
	pd_trace_free(before);
	if (pd_what_if_apply(what, plan, err) < 0)
		return -1;
	if (what->processors)
		changed.processors = what->processors;
	if (pd_what_if_table(what))
		return replay_table(plan, what, &changed, out_p, err);
	out_p->trace = pd_replay(plan, &changed, err);
	return out_p->trace ? 0 : -1;
}

/*
 * Returns the plan of a trace with the durations that were measured.  If ranks took turns on a
 * processor, these contain the turns of others, so processors cannot be shared once more.
 */
static struct pd_plan *measured_plan(const char *file, const struct pd_trace *trace,
				     const struct pd_what_if *what, struct pd_error *err)
{
	int64_t threads = trace->plan->rank_count * (trace->threads > 0 ? trace->threads : 1);
	bool shared = trace->processors > 0 && threads > trace->processors;
	struct pd_plan *plan;

	if (what->processors && shared) {
		pd_error_input(err, "%s: --processors: its %d ranks of %" PRId64 " threads shared "
			       "%" PRId64 " processors when it was measured: expected its plan",
			       pd_document_name(file), trace->plan->rank_count,
			       threads / trace->plan->rank_count, trace->processors);
		return NULL;
	}
	plan = pd_plan_measured(trace, err);
	if (plan && shared)
		plan->topology.processors = 0;
	return plan;
}

/* Replays lists, whose order is given: only links and times can be changed.  Takes them over. */
static int replay_lists(struct pd_lists *lists, const struct pd_what_if *what,
			int64_t minibatches, struct pd_subject *out_p, struct pd_error *err)
{
	struct pd_replay_options with = { .lists = lists };
	struct pd_subject subject = { .changed = pd_what_if_any(what), .listed = true };
	int result;

	if (what->schedule || what->weights || what->microbatches || what->bucket_bytes ||
	    what->sparsity >= 0 || minibatches)
		result = pd_error_input(err, "%s: a schedule says itself what is done: expected "
					"none of --schedule, --weights, --microbatches, "
					"--bucket, --sparsity and --minibatches", lists->name);
	else
		result = pd_check(lists, err);
	if (result == 0)
		result = replay_changed(lists->owned, what, &with, &subject, err);
	pd_lists_free(lists);
	if (result == 0)
		*out_p = subject;
	return result;
}

/* What a file holds: one of the three. */
struct document {
	const char *file;
	struct pd_trace *trace;
	struct pd_plan *plan;
	struct pd_lists *lists;
};

static int read_document(const char *file, const struct pd_table_door *const *tables,
			 struct document *out_p, struct pd_error *err)
{
	struct document doc = { .file = file };

	if (pd_trace_or_lists_read(file, tables, &doc.trace, &doc.plan, &doc.lists, err) < 0)
		return -1;
	if (doc.trace)
		pd_trace_tell_faults(doc.trace, pd_document_name(file));
	*out_p = doc;
	return 0;
}

static void release_document(struct document *doc)
{
	pd_trace_free(doc->trace);
	pd_plan_free(doc->plan);
	pd_lists_free(doc->lists);
}

/*
 * Makes a subject of a document and takes that over, also when it fails.  A plan is replayed with
 * the processors of `like`, if that is not NULL, and for its microbatches and in its phases, if no
 * minibatches are given.
 */
static int subject_of(struct document *doc, const struct pd_what_if *what, int64_t minibatches,
		      const struct pd_trace *like, struct pd_subject *out_p, struct pd_error *err)
{
	struct pd_replay_options with = { .minibatches = minibatches };
	struct pd_subject subject = { .changed = pd_what_if_any(what) };
	struct pd_plan *plan = doc->plan;
	int64_t *bounds = NULL;
	int result;

	if (doc->lists)
		return replay_lists(doc->lists, what, minibatches, out_p, err);
	if (doc->trace && !subject.changed) {
		subject.trace = doc->trace;
		subject.measured = true;
		if (minibatches)
			pd_trace_limit(subject.trace, minibatches);
		*out_p = subject;
		return 0;
	}
	if (doc->trace) {
		subject.measured_ns = pd_trace_period_ns(doc->trace);
		plan = measured_plan(doc->file, doc->trace, what, err);
		pd_trace_free(doc->trace);
		if (!plan)
			return -1;
	} else if (like) {
		with.processors = like->processors;
		with.threads = like->threads;
		if (!minibatches)
			with.phase_count = pd_trace_phases(like, &bounds);
		with.bounds = bounds;
	}
	result = replay_changed(plan, what, &with, &subject, err);
	free(bounds);
	pd_plan_free(plan);
	if (result == 0)
		*out_p = subject;
	return result;
}

int pd_subject_read(const char *file, const struct pd_what_if *what, int64_t minibatches,
		    struct pd_subject *out_p, struct pd_error *err)
{
	struct document doc;

	if (read_document(file, what->tables, &doc, err) < 0)
		return -1;
	return subject_of(&doc, what, minibatches, NULL, out_p, err);
}

int pd_subject_read_two(const char *const files[2], const struct pd_what_if *what,
			int64_t minibatches, struct pd_subject subjects[2], struct pd_error *err)
{
	static const struct pd_what_if nothing = PD_WHAT_IF_NOTHING;
	struct document docs[2];
	const struct pd_trace *like = NULL;
	int k;

	if (read_document(files[0], what->tables, &docs[0], err) < 0)
		return -1;
	if (read_document(files[1], what->tables, &docs[1], err) < 0) {
		release_document(&docs[0]);
		return -1;
	}
	k = docs[0].plan && !docs[1].plan;      /* the one that the other is replayed like */
	for (int i = 0; i < 2; i++, k = 1 - k) {
		if (subject_of(&docs[k], k == 0 ? what : &nothing, k == 0 ? minibatches : 0, like,
			       &subjects[k], err) == 0) {
			like = subjects[k].trace;
			continue;
		}
		if (like)
			pd_subject_release(&subjects[1 - k]);
		else
			release_document(&docs[1 - k]);
		return -1;
	}
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the layers' names, sorted; the caller frees the array. */
static const char **names_of(const struct pd_profile *profile)
{
	size_t count = (size_t)profile->layer_count;
	const char **names = pd_calloc(count, sizeof(*names));

	for (size_t l = 0; l < count; l++)
		names[l] = profile->layers[l].name;
	qsort(names, count, sizeof(*names), by_name);
	return names;
}

bool pd_subject_same_model(const struct pd_subject subjects[2])
{
	const struct pd_profile *a = subjects[0].trace->plan->profile, *b = subjects[1].trace->plan->profile;
	const char **x = names_of(a), **y = names_of(b);
	bool same = a->layer_count == b->layer_count;

	for (int l = 0; same && l < a->layer_count; l++)
		same = strcmp(x[l], y[l]) == 0;
	free(x);
	free(y);
	return same;
}

void pd_subject_release(struct pd_subject *subject)
{
	pd_trace_free(subject->trace);
	*subject = (struct pd_subject){ 0 };
}

static void print_line(const char *what, double ns, double before_ns, FILE *out)
{
	char text[32];

	fprintf(out, "  %-36s %10s", what, ns > 0 ? pd_show_time((int64_t)(ns + 0.5), text) : "-");
	if (ns > 0 && before_ns > 0)
		fprintf(out, "  %+.1f %%, %.2f x as fast", 100 * (ns / before_ns - 1),
			before_ns / ns);
	putc('\n', out);
}

void pd_subject_print_change(const struct pd_subject *subject, const struct pd_what_if *what,
			     FILE *out)
{
	bool trace = subject->measured_ns > 0;

	if (!subject->changed)
		return;
	fputs("what if: ", out);
	pd_what_if_print(what, out);
	fprintf(out, "\ntime per %s in steady state\n", pd_plan_unit(subject->trace->plan));
	if (trace)
		print_line("measured", subject->measured_ns, 0, out);
	print_line(trace ? "replayed with the measured durations" : "as planned, replayed",
		   subject->before_ns, subject->measured_ns, out);
	print_line("what if, replayed", pd_trace_period_ns(subject->trace), subject->before_ns,
		   out);
	putc('\n', out);
}
