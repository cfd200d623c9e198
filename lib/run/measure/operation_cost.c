/* SPDX-License-Identifier: Apache-2.0 */
#include "run/measure/operation_cost.h"

#include "base/json.h"
#include "base/mem.h"
#include "profile/rounds.h"
#include "run/measure/in_child.h"
#include "run/supervisor/supervisor.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#define FEW 50                  /* minibatches of the shorter run; the difference of two counts */
#define MANY 1050
#define PAIRS 3
#define OPERATIONS 12           /* per minibatch: load, forward, backward, step and two transfers of
				   each of two workers */
#define TIMEOUT_S 30

/* Single quotes stand for double ones. */
static const char plan_text[] =
	"{'format': 'pd-plan', 'version': 1, 'schedule': '1f1b', 'weights': 'stash',"
	" 'microbatches': 1, 'topology': {'format': 'pd-topology', 'version': 1,"
	"  'levels': [{'count': 2, 'bandwidth_bytes_per_s': 1000000000}]},"
	" 'stages': ["
	"  {'layers': ['a'], 'replicas': 1, 'ranks': [0], 'warmup': 1, 'recompute': false},"
	"  {'layers': ['b', 'loss'], 'replicas': 1, 'ranks': [1], 'warmup': 0,"
	"   'recompute': false}],"
	" 'profile': {'format': 'pd-profile', 'version': 1, 'name': 'tiny', 'batch_size': 1,"
	"  'device': {'kind': 'cpu'},"
	"  'model': {'format': 'pd-model', 'version': 1, 'name': 'tiny', 'inputs': ["
	"    {'name': 'x', 'dtype': 'f32', 'shape': [4]},"
	"    {'name': 'y', 'dtype': 'i32', 'shape': []}],"
	"   'layers': ["
	"    {'name': 'a', 'kind': 'linear', 'inputs': ['x'], 'out_features': 4},"
	"    {'name': 'b', 'kind': 'linear', 'inputs': ['a'], 'out_features': 4},"
	"    {'name': 'loss', 'kind': 'softmax_cross_entropy', 'inputs': ['b', 'y']}]},"
	"  'layers': ["
	"   {'name': 'a', 'inputs': ['x'], 'forward_ns': 1, 'backward_ns': 1,"
	"    'activation_bytes': 16, 'parameter_bytes': 80},"
	"   {'name': 'b', 'inputs': ['a'], 'forward_ns': 1, 'backward_ns': 1,"
	"    'activation_bytes': 16, 'parameter_bytes': 80},"
	"   {'name': 'loss', 'inputs': ['b', 'y'], 'forward_ns': 1, 'backward_ns': 1,"
	"    'activation_bytes': 4, 'parameter_bytes': 0}]}}";

static struct pd_plan *tiny_plan(struct pd_error *err)
{
	char *text = pd_strdup(plan_text);
	struct pd_plan *plan;
	struct pd_place root;
	json_t *json;

	for (char *c = text; *c; c++)
		if (*c == '\'')
			*c = '"';
	json = json_loads(text, 0, NULL);
	free(text);
	root = pd_place_root("measure", json);
	plan = pd_plan_parse_at(&root, err);
	json_decref(json);
	return plan;
}

static int64_t microseconds(const struct timeval *t)
{
	return (int64_t)t->tv_sec * 1000000 + t->tv_usec;
}

/* Returns the processor time of this process and of children that have ended. */
static int64_t spent_ns(void)
{
	struct rusage self, children;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	return 1000 * (microseconds(&self.ru_utime) + microseconds(&self.ru_stime) +
		       microseconds(&children.ru_utime) + microseconds(&children.ru_stime));
}

static int train(const char *device, int64_t minibatches, int64_t *spent_ns_p,
		 struct pd_error *err)
{
	const struct pd_supervision how = { .launcher = &pd_launcher_fork, .timeout_s = TIMEOUT_S,
					    .silence_s = TIMEOUT_S, .report_every = MANY, .keep = 1 };
	struct pd_job job = {
		.device = device, .epochs = -1, .minibatches = minibatches, .seed = 1, .threads = 1,
		.synthetic_epoch = minibatches, .resume_step = -1,
		.optimizer = { .rate = 0.01, .hyper.momentum = 0.9, .discrepancy = -1 },
	};
	int64_t before_ns = spent_ns();
	int status = -1;

	job.plan = tiny_plan(err);
	if (job.plan && pd_job_check(&job, false, err) == 0)
		status = pd_supervise(&job, &how, err);
	if (status > 0)
		status = pd_error_failed(err, "interrupted");
	pd_plan_free(job.plan);
	*spent_ns_p = spent_ns() - before_ns;
	return status;
}

static int measure(const void *device, double *operation_ns_p, struct pd_error *err)
{
	int64_t figures[PAIRS], few_ns, many_ns;

	for (int i = 0; i < PAIRS; i++) {
		if (train(device, FEW, &few_ns, err) < 0 || train(device, MANY, &many_ns, err) < 0)
			return -1;
		figures[i] = (many_ns - few_ns) / (OPERATIONS * (MANY - FEW));
	}
	*operation_ns_p = fmax(0, (double)pd_median(figures, PAIRS));
	return 0;
}

int pd_measure_operation_cost(const char *device, int64_t *operation_ns_p, struct pd_error *err)
{
	double ns;

	if (pd_measure_in_child("two workers that were to be timed", measure, device, &ns, err) < 0)
		return -1;
	*operation_ns_p = llround(ns);
	return 0;
}
