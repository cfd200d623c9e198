/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay-speed [STAGESxREPLICAS[:MINIBATCHES[:SCHEDULE]]]...: prints how many operations a replay of
 * such a straight plan retires on one core per second of processor time (the best of three), and its
 * peak memory per rank.  Each stage has one layer, and devices are in servers of eight.
 */
#include "base/json.h"
#include "base/mem.h"
#include "predict/replay.h"
#include "schedule/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REPETITIONS 3

static struct pd_profile *make_profile(int layers)
{
	json_t *list = json_array(), *document;
	struct pd_profile *profile;
	struct pd_place root;
	struct pd_error err;

	for (int l = 0; l < layers; l++) {
		char name[16], before[16];

		snprintf(name, sizeof(name), "l%d", l);
		snprintf(before, sizeof(before), "l%d", l - 1);
		json_array_append_new(list, json_pack("{ss so si si si si}", "name", name, "inputs",
				l ? json_pack("[s]", before) : json_array(),
				"forward_ns", 100000 + 37 * (l % 101), "backward_ns",
				200000 + 53 * (l % 97),
				"activation_bytes", 100000, "parameter_bytes", 400000));
	}
	document = json_pack("{ss si ss si s{ss} so}", "format", "pd-profile", "version", 1,
			     "name", "made", "batch_size", 8, "device", "kind", "cpu",
			     "layers", list);
	root = pd_place_root("made", document);
	profile = pd_profile_parse_at(&root, &err);
	if (!profile)
		pd_bug("%s", err.text);
	json_decref(document);
	return profile;
}

static struct pd_plan *make_plan(int stages, int replicas)
{
	int *layers = pd_calloc((size_t)stages, sizeof(int));
	int *counts = pd_calloc((size_t)stages, sizeof(int));
	struct pd_topology topology;
	struct pd_plan *plan;
	struct pd_error err;

	for (int s = 0; s < stages; s++) {
		layers[s] = 1;
		counts[s] = replicas;
	}
	if (pd_topology_parse_string(stages * replicas >= 16 ? "8@100GB/s+2us,65536@12GB/s+5us"
						       : "64@12GB/s+5us", &topology, &err) < 0)
		pd_bug("%s", err.text);
	plan = pd_plan_new(make_profile(stages), &topology, stages, layers, counts, &err);
	if (!plan)
		pd_bug("%s", err.text);
	free(layers);
	free(counts);
	return plan;
}

static void count_one(void *context, const struct pd_record *record)
{
	++*(int64_t *)context;
}

static int64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void measure(const char *what)
{
	int stages = 4, replicas = 1, fields;
	long long minibatches = 0;
	struct pd_replay_options options = { .retired = count_one };
	int64_t best_ns = INT64_MAX, count = 0;
	struct pd_plan *plan;
	struct rusage usage;
	struct pd_error err;
	char schedule[32] = "";

	fields = sscanf(what, "%dx%d:%lld:%31s", &stages, &replicas, &minibatches, schedule);
	if (fields < 2 || stages < 1 || replicas < 1) {
		fprintf(stderr, "replay-speed: expected STAGESxREPLICAS[:MINIBATCHES], found %s\n",
			what);
		exit(2);
	}
	plan = make_plan(stages, replicas);
	if (strcmp(schedule, "flush") == 0) {   /* 8 microbatches per replica between flushes */
		plan->weights = PD_WEIGHTS_FLUSH;
		plan->microbatches = 8 * replicas;
	}
	options.minibatches = minibatches ? minibatches : 50000;
	options.context = &count;
	for (int i = 0; i < REPETITIONS; i++) {
		int64_t begun_ns = cpu_ns(), ns;

		count = 0;
		if (pd_replay_run(plan, &options, &err) < 0)
			pd_bug("%s", err.text);
		ns = cpu_ns() - begun_ns;
		best_ns = ns < best_ns ? ns : best_ns;
	}
	getrusage(RUSAGE_SELF, &usage);
	printf("%s: %" PRId64 " operations, %.2f million/s, %ld KiB, %.0f bytes per rank\n", what,
	       count, (double)count * 1e3 / (double)best_ns, usage.ru_maxrss,
	       (double)usage.ru_maxrss * 1024 / plan->rank_count);
	fflush(stdout);
	pd_plan_free(plan);
}

int main(int argc, char **argv)
{
	static char *all[] = { "4x1", "16384x1:64:flush", "4096x4:256:flush", NULL };

	for (char **what = argc > 1 ? argv + 1 : all; *what; what++) {
		pid_t child = fork();   /* a process of its own, for its peak memory */
		int status = 0;

		if (child == 0) {
			measure(*what);
			exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
			return 1;
	}
	return 0;
}
