/* SPDX-License-Identifier: Apache-2.0 */
/* plan -> the operations of every rank; schedule -> is it right? */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "schedule/torch.h"
#include "trace/steady.h"

#include <inttypes.h>
#include <stdio.h>

enum { JSON, TORCH, TORCH_COMMS };
static const char *const formats[] = { "json", "torch", "torch-comms", NULL };

static bool check, compact;
static int format;
static int64_t minibatches;

static const struct pd_opt options[] = {
	{ "check", 'c', PD_OPT_FLAG, NULL, "say whether the schedule is right, and write nothing",
	  &check },
	{ "compact", 0, PD_OPT_FLAG, NULL, "write what repeats itself once", &compact },
	{ "format", 'f', PD_OPT_CHOICE, "NAME",
	  "json (default); PyTorch's table: torch, or torch-comms with transfers", &format,
	  .choices = formats },
	{ "minibatches", 'm', PD_OPT_COUNT, "N", "of a plan: train N minibatches", &minibatches, 1,
	  1 << 30 },
	{ 0 }
};

static const struct pd_command command = {
	.name = "pd-schedule",
	.synopsis = "[OPTION]... [plan.json | schedule.jsonl]",
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

static int from_plan(const char *file, const struct pd_plan *plan, struct pd_error *err)
{
	struct pd_schedule *schedule = pd_schedule_new(plan, err);
	const char *name = pd_document_name(file);
	int64_t n = minibatches ? minibatches : pd_steady_minibatches(plan), count;
	int result = -1;

	if (schedule && format != JSON)
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
			: write_torch(lists->name, lists->plan, NULL, lists, lists->minibatches, err);
	if (!check)
		return pd_lists_write(stdout, lists, compact, err);
	return pd_check(lists, err) < 0 ? -1 : correct(pd_lists_count(lists), lists->rank_count);
}

int main(int argc, char **argv)
{
	int first = pd_command_parse(&command, argc, argv), result;
	const char *file = pd_operand(argc, argv, first, 0);
	struct pd_error err;
	struct pd_lists *lists;
	struct pd_plan *plan;

	if (format != JSON && (check || compact)) {
		pd_error_input(&err, "--format: \"%s\" is one whole table, which --%s has nothing to do with",
			       formats[format], check ? "check" : "compact");
		return pd_command_fail(&err);
	}
	if (!check && pd_output_check(&err) < 0)
		return pd_command_fail(&err);
	pd_mem_for("the plan or schedule that is read");
	if (pd_schedule_or_plan_read(file, &lists, &plan, &err) < 0)
		return pd_command_fail(&err);
	pd_mem_for("the operations of every rank");
	result = plan ? from_plan(file, plan, &err) : from_lists(lists, &err);
	pd_lists_free(lists);
	pd_plan_free(plan);
	return result < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}
