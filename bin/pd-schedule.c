/* SPDX-License-Identifier: Apache-2.0 */
/* plan -> the operations of every rank; schedule -> is it right? */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "doors/torch/torch.h"
#include "plan/show.h"
#include "predict/replay.h"
#include "schedule/as_order.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "schedule/peaks.h"
#include "trace/steady.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { JSON, TORCH, TORCH_COMMS, PLAN };
static const char *const formats[] = { "json", "torch", "torch-comms", "plan", NULL };
#define MINIBATCHES "format=torch format=torch-comms format=plan" /* which write one minibatch */

static bool check, compact;
static int format;
static int64_t minibatches;
static const char *plan_name;

static const struct pd_opt options[] = {
	{ "check", 'c', PD_OPT_FLAG, NULL, "say whether the schedule is right, and write nothing",
	  &check, .excludes = "compact " MINIBATCHES, .why = "nothing is written" },
	{ "compact", 0, PD_OPT_FLAG, NULL, "write what repeats itself once", &compact,
	  .excludes = MINIBATCHES, .why = "that is one whole minibatch" },
	{ "format", 'f', PD_OPT_CHOICE, "NAME",
	  "json (default); PyTorch's table: torch, or torch-comms with transfers; plan: a plan with this order",
	  &format,
	  .choices = formats },
	{ "minibatches", 'm', PD_OPT_COUNT, "N", "of a plan: train N minibatches", &minibatches, 1,
	  1 << 30 },
	{ "plan", 'p', PD_OPT_STRING, "FILE", "of a table: the plan that has its stages, times and machine",
	  &plan_name },
	{ 0 }
};

static const struct pd_command command = {
	.name = "pd-schedule",
	.synopsis = "[OPTION]... [plan.json | schedule.jsonl | table.csv]",
	.summary = "Write or check the operations of every rank, in order.",
	.options = options,
	.max_operands = 1,
	.files = true,
};

static int correct(int64_t count, int ranks)
{
	pd_say("%" PRId64 " operations of %d ranks: correct", count, ranks);
	return 0;
}

/* Writes one minibatch, of lists or of what the schedule makes. */
static int write_torch(const char *name, const struct pd_plan *plan, const struct pd_schedule *schedule,
		       const struct pd_lists *lists, int64_t n, struct pd_error *err)
{
	struct pd_lists *none = NULL;
	int result = -1;

	if (n > 1)
		return pd_error_input(err, "%s: a table of PyTorch has one minibatch, which each step() does "
				      "again: expected %s, found %" PRId64, name,
				      lists ? "a schedule of one" : "--minibatches=1", n);
	if (!lists)
		lists = none = pd_lists_new(name, plan, NULL, 1, err);
	if (lists && pd_torch_sayable(plan, lists->wiring, err) == 0 &&
	    (!schedule || pd_schedule_fits(schedule, lists->microbatches, err) == 0))
		result = pd_torch_write(stdout, lists, schedule, format == TORCH_COMMS, err);
	pd_lists_free(none);
	return result;
}

/* Writes the plan with the order that the schedule, or lists of one minibatch, have. */
static int write_plan(const struct pd_plan *plan, const struct pd_schedule *schedule, const struct pd_lists *lists,
		      int64_t n, struct pd_error *err)
{
	json_t *json;
	int result;

	if (n > 1)
		return pd_error_input(err, "%s: the order in a plan is that of one minibatch, found %" PRId64,
				      lists ? lists->name : "--minibatches", n);
	json = pd_plan_as_ordered(plan, schedule, lists, err);
	result = json ? pd_json_write(json, stdout, err) : -1;
	json_decref(json);
	return result;
}

/* Says of each rank how many activations it holds at most, and with a plan how many bytes. */
static void say_peaks(const struct pd_lists *lists, bool planned)
{
	char *activations = pd_strdup(""), *bytes = pd_strdup(""), size[32];
	struct pd_prices prices;
	struct pd_peaks peaks;

	pd_prices_init(&prices, lists->plan, lists->wiring);
	for (int r = 0; r < lists->rank_count; r++) {
		char *before = activations, *before_bytes = bytes;

		pd_peaks_of_rank(lists, &prices, r, &peaks);
		activations = pd_format("%s %" PRId64, before, peaks.activations);
		bytes = pd_format("%s%s%s", before_bytes, r > 0 ? ", " : " ", pd_show_device_bytes(lists->plan, peaks.bytes, size));
		free(before);
		free(before_bytes);
	}
	pd_prices_release(&prices);
	pd_say("activations that ranks hold at most:%s", activations);
	if (planned)
		pd_say("memory that ranks hold at most:%s", bytes);
	free(activations);
	free(bytes);
}

/* Says how long a minibatch takes if the table is done again and again. */
static int say_time(struct pd_lists *lists, const struct pd_plan *plan, struct pd_error *err)
{
	struct pd_replay_options with = { .lists = lists };
	struct pd_trace *trace;
	char time[32], planned[32];
	double period_ns;

	pd_lists_do_again(lists, pd_steady_minibatches(lists->plan));
	trace = pd_replay(lists->plan, &with, err);
	if (!trace)
		return -1;
	period_ns = pd_replay_period_ns(trace) * (double)lists->plan->microbatches;
	pd_trace_free(trace);
	pd_show_time((int64_t)(period_ns + 0.5), time);
	if (plan->predicted.period_ns > 0)
		pd_say("a minibatch takes %s, and %s by the plan's own schedule", time,
		       pd_show_time(plan->predicted.period_ns * plan->microbatches, planned));
	else
		pd_say("a minibatch takes %s", time);
	return 0;
}

/* Says that a table is right, which reading it has found out, and what it takes. */
static int describe_table(struct pd_lists *lists, const struct pd_plan *plan, struct pd_error *err)
{
	correct(pd_lists_count(lists), lists->rank_count);
	say_peaks(lists, plan != NULL);
	return plan ? say_time(lists, plan, err) : 0;
}

static int from_table(struct pd_lists *lists, const struct pd_plan *plan, struct pd_error *err)
{
	if (check)
		return describe_table(lists, plan, err);
	if (format != JSON && format != PLAN)
		return write_torch(lists->name, lists->plan, NULL, lists, minibatches, err);
	if (!plan)
		return pd_error_input(err, "%s: a table says nothing of layers: expected --check, or the --plan that "
				      "has its stages", lists->name);
	if (format == PLAN)
		return write_plan(lists->plan, NULL, lists, minibatches, err);
	if (minibatches > 1)
		pd_lists_do_again(lists, minibatches);
	return pd_lists_write(stdout, lists, compact, err);
}

static int from_plan(const char *file, const struct pd_plan *plan, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);
	const char *name = pd_document_name(file);
	int64_t n = minibatches ? minibatches : pd_steady_minibatches(plan), count;
	int result = -1;

	if (schedule && format == PLAN)
		result = write_plan(plan, schedule, NULL, minibatches, err);
	else if (schedule && format != JSON)
		result = write_torch(name, plan, schedule, NULL, minibatches, err);
	else if (schedule && !check)
		result = pd_schedule_write(stdout, schedule, n, compact, err);
	else if (schedule && pd_check_schedule(name, schedule, n, &count, err) == 0)
		result = correct(count, plan->rank_count);
	pd_schedule_free(schedule);
	return result;
}

static int from_lists(const struct pd_lists *lists, struct pd_error *err)
{
	if (minibatches && minibatches != lists->minibatches)
		return pd_error_input(err, "%s: the schedule has %" PRId64 " minibatches; "
				      "--minibatches is for plans", lists->name,
				      lists->minibatches);
	if (format != JSON)
		return pd_check(lists, err) < 0 ? -1
			: format == PLAN ? write_plan(lists->plan, NULL, lists, lists->minibatches, err)
			: write_torch(lists->name, lists->plan, NULL, lists, lists->minibatches, err);
	if (!check)
		return pd_lists_write(stdout, lists, compact, err);
	return pd_check(lists, err) < 0 ? -1 : correct(pd_lists_count(lists), lists->rank_count);
}

/* Reads the plan of --plan. */
static int read_plan(struct pd_plan **plan_p, struct pd_error *err)
{
	struct pd_lists *lists;

	if (pd_schedule_or_plan_read(plan_name, pd_table_doors, &lists, plan_p, err) < 0)
		return -1;
	pd_lists_free(lists);
	return lists ? pd_error_input(err, "--plan: %s: expected a plan, found a schedule", plan_name) : 0;
}

int main(int argc, char **argv)
{
	int first = pd_command_parse(&command, argc, argv), result;
	const char *file = pd_operand(argc, argv, first, 0);
	struct pd_error err;
	struct pd_lists *lists;
	struct pd_plan *plan, *of_table = NULL;

	if (!check && pd_output_check(&err) < 0)
		return pd_command_fail(&err);
	pd_mem_for("the plan or schedule that is read");
	if ((plan_name && read_plan(&of_table, &err) < 0) ||
	    pd_schedule_table_or_plan_read(file, pd_table_doors, of_table, &lists, &plan, &err) < 0) {
		pd_plan_free(of_table);
		return pd_command_fail(&err);
	}
	pd_mem_for("the operations of every rank");
	if (plan_name && (plan || !lists->any_wait))
		result = pd_error_input(&err, "%s: --plan is for tables of PyTorch: this has its plan",
					pd_document_name(file));
	else if (lists && lists->any_wait)
		result = from_table(lists, of_table, &err);
	else
		result = plan ? from_plan(file, plan, &err) : from_lists(lists, &err);
	pd_plan_free(of_table);
	pd_lists_free(lists);
	pd_plan_free(plan);
	return result < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}
