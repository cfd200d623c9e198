/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read-document KIND [FILE]...: reads one document as the programs do, writes it back if there is a
 * writer, and ends with their exit status.  With several files it ends at the first that is not refused
 * as bad input (status 2).  It is no test, but is run by tests.
 */
#include "read_plan.h"

#include "base/json.h"
#include "base/opt.h"
#include "plan/wiring.h"
#include "topology/topology.h"
#include "trace/trace.h"

#include <string.h>

static int write_out(json_t *value, struct pd_error *err)
{
	int result = pd_json_write(value, stdout, err);

	json_decref(value);
	return result;
}

static int read_model(const char *file, struct pd_error *err)
{
	struct pd_model *model = pd_model_read(file, err);
	int result = model ? write_out(json_incref(model->json), err) : -1;

	pd_model_free(model);
	return result;
}

static int read_profile(const char *file, struct pd_error *err)
{
	struct pd_profile *profile = pd_profile_read(file, 0, err);
	int result = profile ? write_out(pd_profile_json(profile), err) : -1;

	pd_profile_free(profile);
	return result;
}

static int read_topology(const char *file, struct pd_error *err)
{
	struct pd_topology topology;

	return pd_topology_read(file, &topology, err) < 0 ? -1
		: write_out(pd_topology_json(&topology), err);
}

static int read_plan(const char *file, struct pd_error *err)
{
	struct pd_plan *plan = read_plan_file(file, err);
	int result = plan ? write_out(pd_plan_json(plan), err) : -1;

	pd_plan_free(plan);
	return result;
}

static int read_trace(const char *file, struct pd_error *err)
{
	struct pd_trace *trace;
	struct pd_plan *plan;
	struct pd_lists *lists;
	int result = pd_trace_or_lists_read(file, NULL, &trace, &plan, &lists, err);

	if (lists) {
		result = pd_error_input(err, "%s: a schedule, expected a trace or a plan", file);
		pd_lists_free(lists);
	}
	if (trace)
		result = pd_trace_write(trace, stdout, err);
	else if (plan)
		result = write_out(pd_plan_json(plan), err);
	pd_trace_free(trace);
	pd_plan_free(plan);
	return result;
}

static int read_schedule(const char *file, struct pd_error *err)
{
	struct pd_lists *lists;
	struct pd_plan *plan;
	int result = pd_schedule_or_plan_read(file, NULL, &lists, &plan, err);

	if (lists)
		result = pd_lists_write(stdout, lists, false, err);
	else if (plan)
		result = write_out(pd_plan_json(plan), err);
	pd_lists_free(lists);
	pd_plan_free(plan);
	return result;
}

static const struct {
	const char *name;
	int (*read)(const char *file, struct pd_error *err);
} kinds[] = {
	{ "model", read_model }, { "profile", read_profile }, { "topology", read_topology },
	{ "plan", read_plan }, { "trace", read_trace }, { "schedule", read_schedule },
};

static int read_one(int (*read)(const char *file, struct pd_error *err), const char *file)
{
	struct pd_error err;

	return read(file, &err) < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}

int main(int argc, char **argv)
{
	pd_program = "read-document";
	for (size_t k = 0; argc > 1 && k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		int i = 2, status;

		if (strcmp(argv[1], kinds[k].name) != 0)
			continue;
		do
			status = read_one(kinds[k].read, i < argc ? argv[i] : NULL);
		while (status == PD_EXIT_USAGE && ++i < argc);
		if (argc > 3 && status != PD_EXIT_USAGE)
			pd_say("%s: not refused, status %d", argv[i], status);
		return status;
	}
	pd_say("expected a kind of document");
	return PD_EXIT_USAGE;
}
