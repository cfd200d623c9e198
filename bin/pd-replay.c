/* SPDX-License-Identifier: Apache-2.0 */
/* plan, schedule or trace -> when each operation happens, as figures or a picture */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "doors/torch/torch.h"
#include "explain/top.h"
#include "plan/sparse.h"
#include "predict/judge.h"
#include "predict/range.h"
#include "predict/replay.h"
#include "predict/subject.h"
#include "trace/compare.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MOST_FILES 4096
#define LEAST_COLUMNS 40
#define MOST_COLUMNS 1000
#define MOST_OPERATIONS 100000  /* for viewers of traces: some 25 MB */

enum format { REPORT, JSON, CSV, TEXT, SVG, CHROME, TRACE, MARKDOWN, JSONL };

static const char *const formats[] = { "report", "json", "csv", "text", "svg", "chrome", "trace",
				       "markdown", "jsonl", NULL };
static int format;
static int64_t minibatches;
static bool all;
static const char *other_name;
static struct pd_what_if what = PD_WHAT_IF_NOTHING;

static const struct pd_opt options[] = {
	PD_OPT_GROUP("Output"),
	{ "format", 'f', PD_OPT_CHOICE, "NAME",
	  "report (default), json, csv, text, svg, chrome, trace; of several plans a table: "
	  "report, "
	  "markdown, csv, jsonl",
	  &format, .choices = formats },
	{ "minibatches", 'm', PD_OPT_COUNT, "N",
	  "replay N minibatches; of a trace as it is, show the first N", &minibatches, 1, 1 << 30 },
	{ "all", 'a', PD_OPT_FLAG, NULL,
	  "leave out nothing: draw every replica; all minibatches in chrome", &all,
	  .needs = "format=text format=svg format=chrome" },
	{ "compare", 'c', PD_OPT_STRING, "OTHER",
	  "compare with another, operation by operation, or draw both", &other_name,
	  .excludes = "format=json format=csv format=trace" },
	PD_OPT_GROUP("What if"),
	{ "topology", 't', PD_OPT_STRING, "FILE|STRING",
	  "what if: other links, such as 4@12GB/s,4@10Gbit/s", &what.topology },
	{ "device-speed", 0, PD_OPT_REAL, "FACTOR", "what if: every device FACTOR times as fast",
	  &what.device_speed, 1e-6, 1e6 },
	{ "faster", 0, PD_OPT_STRING, "WHAT:FACTOR,...",
	  "what if: a layer or a stage (by number) FACTOR times as fast", &what.faster },
	{ "schedule", 0, PD_OPT_STRING, "NAME|FILE.csv",
	  "what if: another schedule for the same stages, or the order of a table",
	  &what.schedule },
	{ "weights", 0, PD_OPT_STRING, "NAME", "what if: other weights", &what.weights },
	{ "all-reduce", 0, PD_OPT_STRING, "NAME",
	  "what if: replicas summed gradients by another reducer", &what.reducer },
	{ "gradient-dtype", 0, PD_OPT_STRING, "TYPE",
	  "what if: gradients travelled as f32, bf16 or f16", &what.gradient_dtype },
	{ "bucket", 0, PD_OPT_BYTES, "BYTES",
	  "what if: replicas summed gradients in buckets of more than BYTES", &what.bucket_bytes,
	  1 },
	{ "sparsity", 0, PD_OPT_REAL, "PART",
	  "what if: replicas kept PART of their chunks of gradients for later", &what.sparsity, 0,
	  PD_SPARSITY_MOST },
	{ "chunk", 0, PD_OPT_COUNT, "N",
	  "with --sparsity: gradients of a chunk (default: the plan's, or 32000)", &what.chunk, 1,
	  PD_MAX_EXTENT },
	{ "microbatches", 0, PD_OPT_COUNT, "M", "what if: M microbatches per update",
	  &what.microbatches, 1, 1 << 30 },
	{ "pairs", 0, PD_OPT_REAL, "PART",
	  "what if: a forward and a backward that may run together took PART of their time", &what.pairs,
	  PD_PAIRS_LEAST, 1 },
	{ "processors", 0, PD_OPT_COUNT, "N", "what if: all ranks shared N processors",
	  &what.processors, 1, 1 << 20 },
	{ 0 }
};

static const char *const elsewhere[][2] = {
	{ "gpus", "pd-plan" }, { "stages", "pd-plan" }, { "memory", "pd-plan" }, { "trace", "pd-run" }, { NULL }
};

static const struct pd_command command = {
	.name = "pd-replay",
	.synopsis = "[OPTION]... [plan.json | schedule.jsonl | trace.jsonl]...",
	.summary = "Show when each operation of a plan, a schedule or a trace happens.",
	.options = options,
	.elsewhere = elsewhere,
	.max_operands = MOST_FILES,
	.files = true,
};

static int columns(void)
{
	const char *wish = getenv("COLUMNS");
	struct winsize size;
	int n = wish ? atoi(wish) : 0;

	if (n <= 0)
		n = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 80;
	return n < LEAST_COLUMNS ? 80 : n > MOST_COLUMNS ? MOST_COLUMNS : n;
}

static bool colours(void)
{
	const char *no = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(no && *no);
}

static int write_report(const struct pd_report *report, const struct pd_report *beside,
			struct pd_error *err)
{
	json_t *json;
	int status = 0;

	if (format == REPORT) {
		pd_report_print(report, beside, stdout);
		return 0;
	}
	json = pd_report_json(report, beside);
	if (format == JSON)
		status = pd_json_write(json, stdout, err);
	else
		pd_report_csv(json, stdout);
	json_decref(json);
	return status;
}

/* Returns how far the period of a replay may be off. */
static struct pd_spread range_of(const struct pd_trace *replay, const struct pd_trace *like)
{
	return pd_plan_range(replay->plan, what.processors > 0 ? what.processors : like->processors, like->threads);
}

/*
 * Gives the report of a replay in the plan's own order the period of whole updates where it was too long for
 * them, and makes sure that no period is below what the busiest rank or link takes: of minibatches that are not
 * periodic the mean may be.
 */
static int complete(struct pd_report *report, const struct pd_trace *replay, struct pd_error *err)
{
	double least_ns = (double)pd_judge_least_ns(replay->plan);
	enum pd_period_kind from;
	int64_t period_ns;

	if (!report->has_steady && minibatches == 0 &&
	    pd_replay_length(replay->plan, PD_REPLAY_WORK) == 0) {
		if (pd_judge_period(replay->plan, &period_ns, &from, err) < 0 ||
		    pd_judge_whole(replay->plan, PD_REPLAY_WORK, &period_ns, &from, err) < 0)
			return -1;
		pd_report_estimate(report, (double)period_ns);
	}
	if (report->has_steady && report->steady.cycle == 0 && report->steady.period_ns < least_ns)
		report->steady.period_ns = least_ns;
	if (report->has_steady && report->steady.period_ns < least_ns)
		pd_bug("a period of %.3f ns is below what its busiest rank or link takes, %.0f ns",
		       report->steady.period_ns, least_ns);
	return 0;
}

/* Prints a trace beside the replay of its plan. */
static int print_report(const struct pd_timeline *timeline, const struct pd_subject *subject,
			struct pd_error *err)
{
	bool measured = subject->measured;
	struct pd_report *report = pd_report_new(timeline), *beside = NULL;
	struct pd_timeline *other = NULL;
	struct pd_trace *replay = NULL;
	int status;

	if (measured) {
		struct pd_replay_options with = { .processors = timeline->trace->processors,
						  .threads = timeline->trace->threads };

		replay = pd_replay(timeline->trace->plan, &with, err);
		if (!replay)
			pd_say("no prediction: %s", err->text);
	}
	if (replay) {
		other = pd_timeline_new(replay);
		beside = pd_report_new(other);
		beside->range = range_of(replay, timeline->trace);
	}
	if (!measured)
		report->range = range_of(timeline->trace, timeline->trace);
	status = beside ? complete(beside, replay, err)
	       : measured || subject->listed ? 0 : complete(report, timeline->trace, err);
	if (status == 0)
		status = write_report(report, beside, err);
	pd_report_free(report);
	pd_report_free(beside);
	pd_timeline_free(other);
	pd_trace_free(replay);
	return status;
}

/* Returns the name for drawings and comparisons; free() it. */
static char *name_of(const char *file, const struct pd_subject *subject)
{
	return pd_format("%s%s", pd_document_name(file),
			 subject->changed ? ", what if" : subject->measured ? "" : ", replayed");
}

/* Prints the differences; returns whether both do the same operations in the same order. */
static bool print_differences(const struct pd_view *views)
{
	struct pd_compare *compare = pd_compare_new(views[0].timeline, views[1].timeline);
	const char *const names[2] = { views[0].name, views[1].name };
	struct pd_time_spent *spent[2];
	bool same = pd_compare_same(compare);

	pd_compare_print(compare, names, stdout);
	for (int i = 0; i < 2; i++)
		spent[i] = pd_time_spent_new(views[i].timeline);
	pd_time_spent_print(views[0].timeline, spent[0], spent[1], stdout);
	for (int i = 0; i < 2; i++)
		pd_time_spent_free(spent[i]);
	pd_compare_free(compare);
	return same;
}

/* Keeps the first minibatches of a trace, and says so, if it has many operations. */
static void limit_operations(struct pd_trace *trace)
{
	size_t count = trace->count;
	int64_t kept = pd_trace_limit_operations(trace, MOST_OPERATIONS);

	if (trace->count < count)
		pd_say("%s: only the first %" PRId64 " minibatches, %zu of %zu operations; --all writes all",
		       formats[format], kept, trace->count, count);
}

/*
 * Makes a timeline for what was asked.  For viewers of traces it has the first minibatches alone if there
 * are more operations than viewers like; in pictures of many ranks a stage has one row.
 */
static struct pd_timeline *timeline_of(const struct pd_subject *subject)
{
	struct pd_timeline *timeline;

	if (format == CHROME && !all && !minibatches)
		limit_operations(subject->trace);
	timeline = pd_timeline_new(subject->trace);
	if ((format == TEXT || format == SVG) && !all && timeline->rank_count > PD_ROWS_UNFOLDED)
		pd_timeline_fold(timeline);
	return timeline;
}

static void draw(const struct pd_view *views, int count)
{
	switch ((enum format)format) {
	case TEXT:
		pd_timeline_text(views, count, columns(), colours(), stdout);
		break;
	case SVG:
		pd_timeline_svg(views, count, stdout);
		break;
	case CHROME:
		pd_timeline_chrome(views, count, stdout);
		break;
	case REPORT:
	case JSON:
	case CSV:
	case TRACE:
	case MARKDOWN:
	case JSONL:
		break;
	}
}

static int compare(const char *file, struct pd_error *err)
{
	const char *const files[2] = { file, other_name };
	struct pd_subject subjects[2];
	struct pd_timeline *timelines[2];
	struct pd_view views[2];
	char *names[2];
	bool same = true;

	if (pd_subject_read_two(files, &what, minibatches, subjects, err) < 0)
		return -1;
	if (format == REPORT && !pd_subject_same_model(subjects)) {
		for (int i = 0; i < 2; i++)
			pd_subject_release(&subjects[i]);
		return pd_error_input(err, "--compare: the two are of different models, whose layers have "
				      "other names: expected plans, schedules or traces of one model");
	}
	pd_mem_for("the report or drawing");
	for (int i = 0; i < 2; i++) {
		pd_trace_join_transfers(subjects[i].trace);
		timelines[i] = timeline_of(&subjects[i]);
		names[i] = name_of(files[i], &subjects[i]);
		views[i] = (struct pd_view){ timelines[i], names[i] };
	}
	if (format == REPORT)
		same = print_differences(views);
	else
		draw(views, 2);
	for (int i = 0; i < 2; i++) {
		pd_timeline_free(timelines[i]);
		free(names[i]);
		pd_subject_release(&subjects[i]);
	}
	return same ? PD_EXIT_YES : PD_EXIT_NO;
}

static int show(const char *file, struct pd_error *err)
{
	struct pd_subject subject;
	struct pd_timeline *timeline;
	int result = 0;

	if (pd_subject_read(file, &what, minibatches, &subject, err) < 0)
		return -1;
	if (format != TRACE)
		pd_trace_join_transfers(subject.trace);
	pd_mem_for("the report or drawing");
	timeline = timeline_of(&subject);
	if (format == REPORT)
		pd_subject_print_change(&subject, &what, stdout);
	if (format == REPORT || format == JSON || format == CSV) {
		result = print_report(timeline, &subject, err);
	} else if (format == TRACE) {
		result = pd_trace_write(subject.trace, stdout, err);
	} else {
		draw(&(struct pd_view){ timeline, NULL }, 1);
	}
	pd_timeline_free(timeline);
	pd_subject_release(&subject);
	return result;
}

/* Makes the row of a plan, a schedule or a trace; the name is the file's. */
static int make_row(const char *file, struct pd_top_row *row_p, struct pd_error *err)
{
	struct pd_subject subject;
	struct pd_timeline *timeline;
	struct pd_report *report;
	int status = 0;

	if (pd_subject_read(file, &what, minibatches, &subject, err) < 0)
		return -1;
	pd_trace_join_transfers(subject.trace);
	timeline = pd_timeline_new(subject.trace);
	report = pd_report_new(timeline);
	if (!subject.measured && !subject.listed)
		status = complete(report, subject.trace, err);
	if (status == 0 && !report->has_steady)
		status = pd_error_input(err, "%s: is too short for the time of a microbatch: "
					"expected more "
					"--minibatches", pd_document_name(file));
	if (status == 0) {
		int64_t period_ns = (int64_t)(report->steady.period_ns + 0.5);

		*row_p = pd_top_row_of(subject.trace->plan, period_ns);
		row_p->name = pd_document_name(file);
		row_p->bubble_percent = report->end_ns > report->begin_ns ? pd_report_bubble(report)
			: -1;
		row_p->period_from = subject.measured ? PD_PERIOD_UNSAID
				   : report->estimated ? PD_PERIOD_ESTIMATE : PD_PERIOD_REPLAY;
	}
	pd_report_free(report);
	pd_timeline_free(timeline);
	pd_subject_release(&subject);
	return status;
}

/* Writes a row for each of several plans. */
static int tabulate(int argc, char **argv, int first, struct pd_error *err)
{
	static const struct { bool may; enum pd_table_format table; } tables[] = {
		[REPORT] = { true, PD_TABLE_TEXT }, [MARKDOWN] = { true, PD_TABLE_MARKDOWN },
		[CSV] = { true, PD_TABLE_CSV }, [JSONL] = { true, PD_TABLE_JSONL }
	};
	struct pd_top table = { .count = 0 };
	int count = argc > first ? argc - first : 1, status = 0;

	if (!tables[format].may)
		return pd_error_input(err, "--format=%s: expected one plan; a table of several is "
				      "a report, "
				      "markdown, csv or jsonl", formats[format]);
	table.rows = pd_calloc((size_t)count, sizeof(*table.rows));
	for (int i = 0; i < count && status == 0; i++) {
		status = make_row(pd_operand(argc, argv, first, i), &table.rows[i], err);
		table.count += status == 0;
	}
	if (status == 0)
		status = pd_top_write(&table, tables[format].table, stdout, err);
	pd_top_release(&table);
	return status;
}

/* Compares, shows or tabulates what is named. */
static int answer(int argc, char **argv, int first, struct pd_error *err)
{
	const char *file = pd_operand(argc, argv, first, 0);
	bool several = argc > first + 1;

	if (other_name && several)
		return pd_error_input(err, "--compare: expected one file, found %d", argc - first);
	if (other_name)
		return compare(file, err);
	if (several || format == MARKDOWN || format == JSONL)
		return tabulate(argc, argv, first, err);
	return show(file, err);
}

int main(int argc, char **argv)
{
	struct pd_error err;
	int first = pd_command_parse(&command, argc, argv), status;

	if (pd_output_check(&err) < 0)
		return pd_command_fail(&err);
	what.tables = pd_table_doors;
	pd_mem_for("what is replayed");
	status = answer(argc, argv, first, &err);
	return status < 0 ? pd_command_fail(&err) : pd_command_end(status);
}
