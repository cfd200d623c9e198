/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/trace.h"

#include "document.h"
#include "small_profile.h"
#include "tap.h"

#include <stdio.h>
#include <unistd.h>

/* Returns a plan of stages a, b, and c with d, in two, one and one replicas; a skip goes from a to d. */
static struct pd_plan *small_plan(void)
{
	struct pd_topology topology;

	pd_topology_parse_string("4@1GB/s", &topology, NULL);
	return pd_plan_new(small_profile("a<x b<a c<b d<ca"), &topology, 3, (int[]){ 1, 1, 2 },
			   (int[]){ 2, 1, 1 }, NULL);
}

static const struct pd_record records[] = {
	{ { PD_OP_forward, false, false, false, 0, 0, 0, -1, -1, 0, 0, -1 }, 5, 9, 0 },
	{ { PD_OP_send_activation, false, false, false, 0, 0, 0, 2, 0, 0, -1, 17 }, 9, 12, 100 },
	{ { PD_OP_recv_activation, false, false, false, 0, 2, 1, 0, 0, 0, -1, 17 }, 9, 12, 100 },
	{ { PD_OP_forward, true, false, false, 0, 2, 1, -1, -1, 0, 3, -1 }, 12, 14, 0 },
	{ { PD_OP_send_activation, false, false, false, 0, 2, 1, 3, 1, 0, -1, 18 }, 14, 15, 300 },
	{ { PD_OP_recv_gradient, false, false, false, 0, 2, 1, 3, 1, 0, -1, 19 }, 20, 22, 300 },
	{ { PD_OP_send_gradient, false, false, false, 0, 3, 2, 2, 1, 0, -1, 19 }, 20, 22, 300 },
	{ { PD_OP_allreduce, false, false, false, 0, 1, 0, -1, -1, 1, -1, 21 }, 30, 31, 1000 },
	{ { PD_OP_step, false, false, false, 0, 1, 0, -1, -1, 1, 2, -1 }, 31, PD_MAX_TIME_NS, 0 },
};

static char *write_file(const char *text)
{
	char *name = pd_strdup("/tmp/pd-trace.XXXXXX");
	int fd = mkstemp(name);
	FILE *out = fdopen(fd, "w");

	fputs(text, out);
	fclose(out);
	return name;
}

static int read_text(const char *text, struct pd_trace **trace_p, struct pd_plan **plan_p,
		     struct pd_error *err)
{
	char *name = write_file(text);
	struct pd_lists *lists;
	int result = pd_trace_or_lists_read(name, NULL, trace_p, plan_p, &lists, err);

	if (lists)
		pd_lists_free(lists);
	unlink(name);
	free(name);
	return result;
}

static char *trace_text(const struct pd_trace *trace)
{
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	pd_trace_write(trace, out, NULL);
	fclose(out);
	return text;
}

static bool same(const struct pd_record *a, const struct pd_record *b)
{
	return a->op.kind == b->op.kind && a->op.evaluate == b->op.evaluate &&
	       a->op.rank == b->op.rank && a->op.stage == b->op.stage && a->op.peer == b->op.peer &&
	       a->op.link == b->op.link && a->op.microbatch == b->op.microbatch &&
	       a->op.version == b->op.version && a->op.seq == b->op.seq &&
	       a->start_ns == b->start_ns && a->end_ns == b->end_ns && a->bytes == b->bytes;
}

static char *test_round_trip(void)
{
	struct pd_trace *trace = pd_trace_new(small_plan(), "sim", 4), *again;
	struct pd_error err = { 0 };
	struct pd_plan *plan;
	char *text, *text_again;

	trace->processors = 3;
	trace->threads = 2;
	trace->epoch_minibatches = 5;
	for (size_t i = 0; i < PD_COUNT(records); i++)
		pd_trace_add(trace, &records[i]);
	text = trace_text(trace);
	if (!ok(read_text(text, &again, &plan, &err) == 0 && again && !plan, "a trace is read"))
		diag("%s", err.text);
	is_str(again->device, "sim", "device");
	is_int(again->start_ns, 4, "start");
	is_int(again->processors, 3, "processors");
	is_int(again->threads, 2, "threads");
	is_int(again->epoch_minibatches, 5, "minibatches of an epoch");
	is_int((int64_t)again->count, PD_COUNT(records), "records");
	for (size_t i = 0; i < PD_COUNT(records) && i < again->count; i++)
		ok(same(&again->records[i], &records[i]), "record %zu", i);
	text_again = trace_text(again);
	is_str(text_again, text, "and written the same");
	pd_trace_free(trace);
	pd_trace_free(again);
	free(text_again);
	return text;
}

static void test_plan(void)
{
	struct pd_plan *plan = small_plan(), *again;
	json_t *value = pd_plan_json(plan);
	char *flat = json_dumps(value, JSON_INDENT(2)), *more = pd_format("%s {}", flat);
	struct pd_error err = { 0 };
	struct pd_trace *trace;

	ok(read_text(flat, &trace, &again, &err) == 0 && again && !trace, "a plan on many lines is "
	   "read");
	pd_plan_free(again);
	ok(read_text(more, &trace, &again, &err) < 0 && strstr(err.text, "text after the plan"),
	   "nothing may follow it");
	ok(!trace && !again, "neither is set then");
	json_decref(value);
	pd_plan_free(plan);
	free(flat);
	free(more);
}

static void test_sort(void)
{
	struct pd_trace *trace = pd_trace_new(small_plan(), "sim", 0);
	static const struct { int rank, start, end, seq; } in[] = {
		{ 1, 5, 6, 0 }, { 0, 5, 6, 1 }, { 0, 5, 5, 2 }, { 2, 1, 9, 3 }, { 0, 5, 6, 4 },
	};
	static const int expected[] = { 3, 2, 1, 4, 0 };
	bool sorted = true;

	for (size_t i = 0; i < PD_COUNT(in); i++)
		pd_trace_add(trace, &(struct pd_record){ .op = { .rank = in[i].rank,
								 .seq = in[i].seq },
				.start_ns = in[i].start, .end_ns = in[i].end });
	pd_trace_sort(trace);
	for (size_t i = 0; i < PD_COUNT(in); i++)
		sorted &= trace->records[i].op.seq == expected[i];
	ok(sorted, "by start, end, rank, and else as they came");
	pd_trace_add(trace, &records[0]);
	is_int((int64_t)trace->count, PD_COUNT(in) + 1, "more can be added after that");
	pd_trace_free(trace);
}

static void test_errors(const char *text)
{
	static const struct {
		const char *line, *message;
	} cases[] = {
		{ "{'rank': 4}", ":2: rank: expected a whole number from 0 to 3, found 4" },
		{ "{'rank': 0, 'op': 'jump'}", ":2: op: expected an operation" },
		{ "{'rank': 0, 'op': 'forward', 'stage': 1, 'microbatch': 0}",
		  ":2: rank 0 belongs to stage 0 in the plan, found stage 1" },
		{ "{'rank': 0, 'op': 'forward', 'stage': 0}", ":2: microbatch: expected" },
		{ "{'rank': 0, 'op': 'send_activation', 'stage': 0, 'microbatch': 0}",
		  ":2: expected a \"peer\" for send_activation" },
		{ "{'rank': 0, 'op': 'send_activation', 'stage': 0, 'microbatch': 0, 'peer': 3}",
		  ":2: nothing travels this way between rank 0 and its peer 3" },
		{ "{'rank': 2, 'op': 'send_activation', 'stage': 1, 'microbatch': 0, 'peer': 0}",
		  ":2: nothing travels this way between rank 2 and its peer 0" },
		{ "{'rank': 0, 'op': 'forward', 'stage': 0, 'microbatch': 0, 'start_ns': 5, "
		 "'end_ns': 4}",
		  ":2: end_ns: expected a whole number from 5 to 9007199254740991, found 4" },
		{ "{'rank': 0, 'speed': 0}", ":2: unknown key \"speed\"" },
		{ "{'rank': 0", ":2:" }, { "[7]", ":2: expected an object" },
		{ "{} {}", "not JSON: end of file expected" },
	};
	size_t header = strcspn(text, "\n") + 1;

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		char *line = quoted(cases[i].line);
		char *whole = pd_format("%.*s%s\n", (int)header, text, line);
		struct pd_error err = { .text = "it was read" };
		struct pd_trace *trace;
		struct pd_plan *plan;

		if (!ok(read_text(whole, &trace, &plan, &err) < 0 && err.status == PD_EXIT_USAGE &&
			strstr(err.text, cases[i].message), "refused: %s", cases[i].message))
			diag("%s", err.text);
		pd_trace_free(trace);
		pd_plan_free(plan);
		free(line);
		free(whole);
	}
}

/* Tests receives that are posted before or after the send, two evaluations, and one without a send. */
static void test_join_transfers(void)
{
	struct pd_trace *trace = pd_trace_new(small_plan(), "cpu", 0);
	static const struct { enum pd_op_kind kind; int rank, peer, b; bool evaluate;
			      int start, end, expected; } in[] = {
		{ PD_OP_recv_activation, 2, 0, 0, false, 1, 20, 10 },
		{ PD_OP_send_activation, 0, 2, 0, false, 10, 21, 10 },
		{ PD_OP_recv_gradient, 0, 2, 0, false, 50, 60, 50 },
		{ PD_OP_send_gradient, 2, 0, 0, false, 40, 60, 50 },
		{ PD_OP_recv_activation, 2, 0, 1, true, 70, 80, 75 },
		{ PD_OP_send_activation, 0, 2, 1, true, 75, 80, 75 },
		{ PD_OP_recv_activation, 2, 0, 1, true, 90, 99, 95 },
		{ PD_OP_send_activation, 0, 2, 1, true, 95, 98, 95 },
		{ PD_OP_recv_activation, 2, 0, 4, false, 100, 101, 100 },
		{ PD_OP_recv_activation, 2, 0, 5, false, 100, 101, 101 },
		{ PD_OP_send_activation, 0, 2, 5, false, 102, 103, 102 },
		{ PD_OP_forward, 2, -1, 0, false, 3, 9, 3 },
	};

	for (size_t i = 0; i < PD_COUNT(in); i++)
		pd_trace_add(trace, &(struct pd_record){
			.op = { .kind = in[i].kind, .rank = in[i].rank, .peer = in[i].peer,
				.microbatch = in[i].b, .evaluate = in[i].evaluate },
			.start_ns = in[i].start, .end_ns = in[i].end });
	pd_trace_join_transfers(trace);
	for (size_t i = 0; i < PD_COUNT(in); i++) {
		is_int(trace->records[i].start_ns, in[i].expected, "side %zu begins", i);
		is_int(trace->records[i].end_ns, in[i].end, "and ends when it did");
	}
	pd_trace_free(trace);
}

int main(void)
{
	char *text = test_round_trip();

	test_plan();
	test_sort();
	test_join_transfers();
	test_errors(text);
	free(text);
	return done_testing();
}
