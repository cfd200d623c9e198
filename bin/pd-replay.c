/* SPDX-License-Identifier: Apache-2.0 */
/* plan or trace -> what happens when, in numbers or as a picture */
#include "base/opt.h"
#include "replay/replay.h"
#include "trace/report.h"
#include "trace/timeline.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LEAST_COLUMNS 40
#define MOST_COLUMNS 1000

enum format { REPORT, TEXT, SVG, CHROME };

static const char *const formats[] = { "report", "text", "svg", "chrome", NULL };
static int format;
static int64_t minibatches;

static const struct pd_opt options[] = {
	{ .name = "format", .letter = 'f', .kind = PD_OPT_CHOICE, .argument = "NAME",
	  .help = "report (default), text, svg, chrome", .value = &format, .choices = formats },
	{ .name = "minibatches", .letter = 'm', .kind = PD_OPT_COUNT, .argument = "N",
	  .help = "replay N minibatches of a plan; of a trace, show the first N",
	  .value = &minibatches, .min = 1, .max = 1e9 },
	{ .name = NULL }
};

static const struct pd_command command = {
	.name = "pd-replay",
	.synopsis = "[OPTION]... [plan.json | trace.jsonl]",
	.summary = "Runs a plan in virtual time, or reads a trace, and shows what happens when.",
	.options = options,
	.max_operands = 1,
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

/* A measured trace stands beside its plan's replay. */
static void print_report(const struct pd_timeline *timeline, bool measured)
{
	struct pd_report *report = pd_report_new(timeline), *beside = NULL;
	struct pd_timeline *other = NULL;
	struct pd_trace *replay = NULL;
	struct pd_error err;

	if (measured) {
		replay = pd_replay(timeline->trace->plan, NULL, &err);
		if (!replay)
			pd_say("no prediction: %s", err.text);
	}
	if (replay) {
		other = pd_timeline_new(replay);
		beside = pd_report_new(other);
	}
	pd_report_print(report, beside, stdout);
	pd_report_free(report);
	pd_report_free(beside);
	pd_timeline_free(other);
	pd_trace_free(replay);
}

int main(int argc, char **argv)
{
	struct pd_error err;
	struct pd_trace *trace = NULL;
	struct pd_plan *plan = NULL;
	struct pd_timeline *timeline;
	int first = pd_command_parse(&command, argc, argv);

	if (pd_trace_or_plan_read(pd_operand(argc, argv, first, 0), &trace, &plan, &err) < 0)
		return pd_command_fail(&err);
	if (plan) {
		struct pd_replay_options with = { .minibatches = minibatches };

		trace = pd_replay(plan, &with, &err);
		if (!trace) {
			pd_plan_free(plan);
			return pd_command_fail(&err);
		}
	} else if (minibatches) {
		pd_trace_limit(trace, minibatches);
	}
	timeline = pd_timeline_new(trace);
	switch ((enum format)format) {
	case REPORT:
		print_report(timeline, !plan);
		break;
	case TEXT:
		pd_timeline_text(timeline, columns(), colours(), stdout);
		break;
	case SVG:
		pd_timeline_svg(timeline, stdout);
		break;
	case CHROME:
		pd_timeline_chrome(timeline, stdout);
		break;
	}
	pd_timeline_free(timeline);
	pd_trace_free(trace);
	pd_plan_free(plan);
	return pd_command_end(PD_EXIT_YES);
}
