/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes events for chrome://tracing and Perfetto (the Trace Event Format): M is a name, X an
 * operation, s and f are the ends of an arrow, C is a counter.
 */
#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "trace/timeline.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define ROWS_PER_LANE 1000      /* tid = lane x this + depth */

struct writer {
	FILE *out;
	bool begun;
	int64_t zero_ns;
	const char *name;               /* name of the view, or NULL */
	int views, view;                /* how many views; the current one */
	size_t arrows;
};

/* Returns a process per rank; those of a rank in several views follow one another. */
static int pid_of(const struct writer *w, int rank)
{
	return rank * w->views + w->view;
}

/* Begins an event; the caller writes its other members and the closing brace. */
static FILE *event(struct writer *w, char phase, int pid, int tid)
{
	fprintf(w->out, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", w->begun ? ",\n" : "", phase,
		pid, tid);
	w->begun = true;
	return w->out;
}

static void put_us(struct writer *w, const char *key, int64_t ns)
{
	fprintf(w->out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static int tid_of(enum pd_lane_kind lane, int depth)
{
	return (int)lane * ROWS_PER_LANE + depth;
}

#define LISTED 4                /* most numbers in a row's name */

static int stage_of(const struct pd_op *op)
{
	return op->stage;
}

static int peer_of(const struct pd_op *op)
{
	return op->peer;
}

/* Writes " 0, 2": the different numbers that operations in a row of a lane have, or "". */
static void list_numbers(const struct pd_lane *lane, int depth, int (*number)(const struct pd_op *),
			 char *text, size_t size)
{
	int found[LISTED], count = 0, n;
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < lane->count; i++) {
		int one = number(&lane->bars[i].record->op), k = 0;

		while (k < count && found[k] != one)
			k++;
		if (lane->bars[i].depth != depth || one < 0 || k < count)
			continue;
		n = snprintf(text + used, size - used, count == LISTED ? ", ..." : "%s %d",
			     count ? "," : "", one);
		used += (size_t)n;
		if (count == LISTED)
			break;
		found[count++] = one;
	}
}

/* Writes "stage 1: activations in, rank 0"; no two rows of a rank have the same name. */
static void put_row_name(struct writer *w, const struct pd_lane *lane, int kind, int depth)
{
	static const char *const way[PD_TRACK_LANES] = {
		[PD_LANE_ACTIVATIONS_IN] = " from rank", [PD_LANE_ACTIVATIONS_OUT] = " to rank",
		[PD_LANE_GRADIENTS_IN] = " from rank", [PD_LANE_GRADIENTS_OUT] = " to rank",
	};
	char stages[80], peers[80] = "";

	list_numbers(lane, depth, stage_of, stages, sizeof(stages));
	if (way[kind])
		list_numbers(lane, depth, peer_of, peers, sizeof(peers));
	fprintf(w->out, "%s%s%s%s%s%s", *stages ? "stage" : "", stages, *stages ? ": " : "",
		pd_lane_name[kind], *peers ? way[kind] : "", peers);
	if (depth > 0)
		fprintf(w->out, " (%d)", depth + 1);
}

static void put_names(struct writer *w, const struct pd_timeline *timeline, int rank)
{
	int pid = pid_of(w, rank);
	char stages[64], *text;
	json_t *name;

	pd_timeline_stages(timeline, rank, ", ", stages, sizeof(stages));
	text = pd_format("rank %d: stage%s %s, replica %d%s%s", rank,
			 timeline->stage_counts[rank] > 1 ? "s" : "", stages,
			 timeline->replicas[rank], w->name ? "; " : "", w->name ? w->name : "");
	name = pd_json_shown(text);
	free(text);
	fputs(",\"name\":\"process_name\",\"args\":{\"name\":", event(w, 'M', pid, 0));
	json_dumpf(name, w->out, JSON_COMPACT | JSON_ENCODE_ANY);
	fputs("}}", w->out);
	json_decref(name);
	fprintf(event(w, 'M', pid, 0),
		",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", pid);
	for (int l = 0; l < PD_TRACK_LANES; l++)
		for (int d = 0; d < pd_timeline_lane(timeline, rank, l)->depth; d++) {
			int tid = tid_of(l, d);

			fputs(",\"name\":\"thread_name\",\"args\":{\"name\":\"",
			      event(w, 'M', pid, tid));
			put_row_name(w, pd_timeline_lane(timeline, rank, l), l, d);
			fputs("\"}}", w->out);
			fprintf(event(w, 'M', pid, tid),
				",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}",
				tid);
		}
}

static void put_bars(struct writer *w, const struct pd_timeline *timeline, int rank)
{
	for (int l = 0; l < PD_TRACK_LANES; l++) {
		const struct pd_lane *lane = pd_timeline_lane(timeline, rank, l);

		for (size_t i = 0; i < lane->count; i++) {
			const struct pd_record *record = lane->bars[i].record;
			const struct pd_op *op = &record->op;
			char name[40];

			pd_op_short(op, name);
			if (op->evaluate && op->kind == PD_OP_forward)  /* as in a terminal */
				snprintf(name, sizeof(name), "%dE%" PRId64, op->stage, op->microbatch);
			event(w, 'X', pid_of(w, rank), tid_of(l, lane->bars[i].depth));
			put_us(w, "ts", record->start_ns - w->zero_ns);
			put_us(w, "dur", record->end_ns - record->start_ns);
			fprintf(w->out, ",\"name\":\"%s\",\"cat\":\"%s\",\"args\":{\"stage\":%d,"
				"\"microbatch\":%" PRId64, name,
				pd_op_kind_name[op->kind], op->stage, op->microbatch);
			if (op->version >= 0)
				fprintf(w->out, ",\"version\":%" PRId64, op->version);
			if (record->bytes > 0)
				fprintf(w->out, ",\"bytes\":%" PRId64, record->bytes);
			if (op->evaluate)
				fputs(",\"evaluate\":true", w->out);
			fputs("}}", w->out);
		}
	}
}

struct end {                            /* one side of a transfer */
	const struct pd_bar *bar;
	bool gradient, send;
	int from, to;
};

static int by_transfer(const void *a, const void *b)
{
	const struct end *x = a, *y = b;
	const struct pd_op *p = &x->bar->record->op, *q = &y->bar->record->op;

	PD_ORDER(x->from, y->from);
	PD_ORDER(x->to, y->to);
	PD_ORDER(x->gradient, y->gradient);
	PD_ORDER(p->link, q->link);
	PD_ORDER(p->evaluate, q->evaluate);
	PD_ORDER(p->microbatch, q->microbatch);
	/*
	 * Several evaluations have the same minibatch: take them in order, the send before the
	 * receive.
	 */
	PD_ORDER(p->seq, q->seq);
	return (int)y->send - (int)x->send;
}

static struct end *ends_of(const struct pd_timeline *timeline, size_t *count_p)
{
	struct end *ends = pd_calloc(timeline->trace->count, sizeof(*ends));
	size_t n = 0;

	for (size_t i = 0; i < timeline->trace->count; i++) {
		const struct pd_bar *bar = &timeline->bars[i];
		const struct pd_op *op = &bar->record->op;
		struct end end = { .bar = bar };

		if (op->peer < 0 || op->peer >= timeline->rank_count)
			continue;
		end.send = pd_op_sends(op->kind);
		end.gradient = pd_op_of_gradient(op->kind);
		if (!pd_op_transfers(op->kind))
			continue;
		end.from = end.send ? op->rank : op->peer;
		end.to = end.send ? op->peer : op->rank;
		ends[n++] = end;
	}
	qsort(ends, n, sizeof(*ends), by_transfer);
	*count_p = n;
	return ends;
}

/*
 * Draws an arrow from each send to its receive.  A transfer with only one side in the trace (of an
 * interrupted run) has none.  An arrow must not point back in time; the clocks of two ranks can
 * differ a little.
 */
static void put_arrows(struct writer *w, const struct pd_timeline *timeline)
{
	size_t count;
	struct end *ends = ends_of(timeline, &count);

	for (size_t i = 0; i + 1 < count; i++) {
		const struct end *send = &ends[i], *recv = &ends[i + 1];
		const struct pd_record *s = send->bar->record, *r = recv->bar->record;
		const char *what = send->gradient ? "gradient" : "activation";

		if (!send->send || recv->send || send->from != recv->from || send->to != recv->to
		    || send->gradient != recv->gradient || s->op.microbatch != r->op.microbatch
		    || s->op.link != r->op.link || s->op.seq != r->op.seq)
			continue;
		i++;
		event(w, 's', pid_of(w, s->op.rank),
		      tid_of(pd_lane_of(s->op.kind), send->bar->depth));
		put_us(w, "ts", s->start_ns - w->zero_ns);
		fprintf(w->out, ",\"id\":%zu,\"name\":\"%s\",\"cat\":\"transfer\"}", w->arrows,
			what);
		event(w, 'f', pid_of(w, r->op.rank),
		      tid_of(pd_lane_of(r->op.kind), recv->bar->depth));
		put_us(w, "ts", (r->end_ns > s->start_ns ? r->end_ns : s->start_ns) - w->zero_ns);
		fprintf(w->out, ",\"bp\":\"e\",\"id\":%zu,\"name\":\"%s\",\"cat\":\"transfer\"}",
			w->arrows++, what);
	}
	free(ends);
}

struct change {
	int64_t when_ns;
	int by;
};

static int by_when(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	PD_ORDER(x->when_ns, y->when_ns);
	return x->by - y->by;
}

/*
 * Counts the minibatches between the start of their forward and the end of their backward on a
 * rank.
 */
static void put_in_flight(struct writer *w, const struct pd_timeline *timeline, int rank)
{
	const struct pd_lane *lane = pd_timeline_lane(timeline, rank, PD_LANE_COMPUTE);
	struct change *changes = pd_calloc(lane->count, sizeof(*changes));
	size_t n = 0;
	int in_flight = 0;

	for (size_t i = 0; i < lane->count; i++) {
		const struct pd_record *record = lane->bars[i].record;

		if (record->op.evaluate)
			continue;
		if (record->op.kind == PD_OP_forward)
			changes[n++] = (struct change){ record->start_ns, 1 };
		else if ((record->op.kind == PD_OP_backward || record->op.kind == PD_OP_backward_weight) &&
			 !record->op.more)
			changes[n++] = (struct change){ record->end_ns, -1 };
	}
	qsort(changes, n, sizeof(*changes), by_when);
	for (size_t i = 0; i < n; i++) {
		in_flight += changes[i].by;
		event(w, 'C', pid_of(w, rank), 0);
		put_us(w, "ts", changes[i].when_ns - w->zero_ns);
		fprintf(w->out, ",\"name\":\"in flight\",\"args\":{\"%ses\":%d}}",
			pd_plan_unit(timeline->trace->plan), in_flight);
	}
	free(changes);
}

static void put_memory(struct writer *w, const struct pd_timeline *timeline, int rank)
{
	const struct pd_degrees *group = &timeline->trace->plan->profile->group;
	struct pd_memory_point *points;
	size_t n = pd_timeline_memory(timeline, rank, &points);

	for (size_t i = 0; i < n; i++) {
		event(w, 'C', pid_of(w, rank), 0);
		put_us(w, "ts", points[i].when_ns - w->zero_ns);
		fprintf(w->out, ",\"name\":\"memory\",\"args\":{\"bytes\":%" PRId64 "}}",
			pd_degrees_each(group, points[i].bytes));
	}
	free(points);
}

static void put_about(const struct pd_view *views, int count, FILE *out)
{
	json_t *all = json_array();

	for (int v = 0; v < count; v++) {
		const struct pd_trace *trace = views[v].timeline->trace;
		const struct pd_plan *plan = trace->plan;
		json_t *about = json_pack("{s:s?, s:s?, s:s, s:s}", "name", plan->profile->name,
					  "device", trace->device,
					  "schedule", pd_schedule_kind_name[plan->schedule],
					  "weights", pd_weight_kind_name[plan->weights]);

		if (views[v].name)
			pd_json_set(about, "of", pd_json_shown(views[v].name));
		pd_json_add(all, about);
	}
	fputs("\"otherData\":", out);
	if (count == 1)
		json_dumpf(json_array_get(all, 0), out, JSON_COMPACT);
	else
		fputs("{\"views\":", out), json_dumpf(all, out, JSON_COMPACT), fputs("}", out);
	json_decref(all);
}

void pd_timeline_chrome(const struct pd_view *views, int count, FILE *out)
{
	struct writer w = { .out = out, .views = count };

	fputs("{\"displayTimeUnit\":\"ms\",", out);
	put_about(views, count, out);
	fputs(",\"traceEvents\":[\n", out);
	for (int v = 0; v < count; v++) {
		const struct pd_timeline *timeline = views[v].timeline;

		w.view = v;
		w.name = views[v].name;
		w.zero_ns = timeline->begin_ns;
		for (int rank = 0; rank < timeline->rank_count; rank++) {
			put_names(&w, timeline, rank);
			put_bars(&w, timeline, rank);
			put_in_flight(&w, timeline, rank);
			put_memory(&w, timeline, rank);
		}
		put_arrows(&w, timeline);
	}
	fputs("\n]}\n", out);
}
