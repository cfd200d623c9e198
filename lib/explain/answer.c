/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/answer.h"

#include "base/mem.h"
#include "base/opt.h"
#include "explain/usage.h"
#include "predict/step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_TEXT 32

/* Writes 70600000000 as "70.6 billion", and 8192 as "8,192". */
static const char *show_count(double count, char text[COUNT_TEXT])
{
	static const struct { double least; const char *word; } scales[] = {
		{ 1e12, "trillion" }, { 1e9, "billion" }, { 1e6, "million" }
	};

	for (size_t i = 0; i < PD_COUNT(scales); i++)
		if (count >= scales[i].least) {
			snprintf(text, COUNT_TEXT, "%.3g %s", count / scales[i].least, scales[i].word);
			return text;
		}
	if (count >= 1e3)
		snprintf(text, COUNT_TEXT, "%d,%03d", (int)(count + 0.5) / 1000, (int)(count + 0.5) % 1000);
	else
		snprintf(text, COUNT_TEXT, count < 10 ? "%.3g" : "%.0f", count);
	return text;
}

static int64_t parameters_of(const struct pd_profile *profile)
{
	int64_t bytes = 0;

	if (profile->model)
		return pd_model_parameters(profile->model);
	for (int l = 0; l < profile->layer_count; l++)
		if (pd_profile_owner(profile, l) == l)
			bytes = pd_plus(bytes, profile->layers[l].parameter_bytes);
	return bytes / 4;
}

static int fullest_stage(const struct pd_plan *plan)
{
	int fullest = 0;

	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].memory_bytes > plan->stages[fullest].memory_bytes)
			fullest = s;
	return fullest;
}

/* Returns what a device of that stage has; 0: not known. */
static int64_t device_memory(const struct pd_plan *plan, int stage)
{
	int64_t bytes = pd_topology_memory_of(&plan->topology, plan->stages[stage].ranks[0]);

	if (bytes == 0)
		bytes = plan->profile->device_memory_bytes;
	return bytes > 0 ? pd_degrees_each(&plan->profile->group, bytes) : 0;
}

/* Begins a line of the answer. */
static void print_noun(const char *noun, FILE *out)
{
	fprintf(out, "%-11s", noun);
}

static void print_model(const struct pd_plan *plan, FILE *out)
{
	const struct pd_profile *profile = plan->profile;
	int64_t batch = plan->predicted.step.global_batch, tokens = pd_sample_tokens(profile->model);
	char text[COUNT_TEXT];

	print_noun("model", out);
	fprintf(out, "%s: %s parameters", profile->name ? profile->name : "no name",
		show_count((double)parameters_of(profile), text));
	if (tokens > 0)
		fprintf(out, ", %s tokens a sample", show_count((double)tokens, text));
	fprintf(out, ", %s, %s; ", pd_dtype_name[profile->dtype],
		profile->memory.model == PD_MEMORY_OWN ? "SGD with momentum" : "Adam");
	if (batch == 0) {
		fputs("each stage updates after one minibatch of each of its replicas\n", out);
		return;
	}
	fprintf(out, "global batch %s", show_count((double)batch, text));
	if (tokens > 0)
		fprintf(out, " (%s tokens)", show_count((double)batch * (double)tokens, text));
	fputc('\n', out);
}

/* Says how many devices share a link of the outermost level, such as the adapters of a server. */
static void print_shared(const struct pd_plan *plan, int64_t each, FILE *out)
{
	const struct pd_topology *topology = &plan->topology;
	const struct pd_level *level = &topology->level[topology->levels - 1];
	int64_t sharing = each * (topology->devices / level->count);
	char rate[32];

	if (sharing > 1 && level->count > 1 && topology->level[0].count < topology->devices * each)
		fprintf(out, "; %" PRId64 " devices share %s", sharing,
			pd_show_rate(level->bandwidth_bytes_per_s, rate));
}

static void print_machine(const struct pd_plan *plan, FILE *out)
{
	int64_t each = pd_degrees_devices(&plan->profile->group), all = each * plan->topology.devices;
	char *devices = pd_show_devices(&plan->topology);

	print_noun("machine", out);
	fprintf(out, "%" PRId64 " of %" PRId64 " device%s", pd_plan_devices(plan), all,
		all == 1 ? "" : "s");
	if (devices)
		fprintf(out, ": %s", devices);
	else if (plan->profile->device_name)
		fprintf(out, ", %s", plan->profile->device_name);
	free(devices);
	print_shared(plan, each, out);
	for (int k = 0; k < pd_plan_kinds(plan); k++) {
		const struct pd_profile *profile = pd_profile_of_kind(plan->profile, k);

		if (profile->estimated_from)
			fprintf(out, "; times of %s by its specification, off by up to %g %%", profile->estimated_from,
				100 * profile->estimated_spread);
	}
	fputc('\n', out);
}

/* Says how many devices stay idle, and what the rest would bring, as far as it is known. */
static void print_idle(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	int64_t all = pd_degrees_devices(&plan->profile->group) * plan->topology.devices;
	int64_t idle = all - pd_plan_devices(plan);
	double gain;

	if (idle <= 0)
		return;
	print_noun("idle", out);
	fprintf(out, "%" PRId64 " of %" PRId64 " device%s", idle, all, all == 1 ? "" : "s");
	if (predicted->more.devices > 0 && predicted->samples_per_s > 0) {
		fprintf(out, ": the fastest plan found on more, on %" PRId64 ", trains ",
			predicted->more.devices);
		gain = 100 * (predicted->more.samples_per_s / predicted->samples_per_s - 1);
		if (gain >= 0.05)
			fprintf(out, "%.1f %% more samples/s (--min-gain=0)", gain);
		else if (gain <= -0.05)
			fprintf(out, "%.1f %% fewer samples/s", -gain);
		else
			fputs("as many samples/s", out);
	}
	fputc('\n', out);
}

static void print_part(const char *name, const struct pd_plan *plan, int64_t bytes,
		       const char **before, FILE *out)
{
	char text[32];

	if (bytes == 0)
		return;
	fprintf(out, "%s%s %s", *before, name, pd_show_device_bytes(plan, bytes, text));
	*before = ", ";
}

static void print_memory(const struct pd_usage *usage, int64_t memory_bytes, FILE *out)
{
	const struct pd_plan *plan = usage->plan;
	int fullest = fullest_stage(plan);
	const struct pd_memory *m = &usage->stages[fullest].memory;
	const char *before = ": ";
	char used[32], has[32];

	if (memory_bytes == 0)
		memory_bytes = device_memory(plan, fullest);
	print_noun("fits", out);
	fputs(pd_show_device_bytes(plan, plan->stages[fullest].memory_bytes, used), out);
	if (memory_bytes > 0)
		fprintf(out, " of %s", pd_show_bytes(memory_bytes, has));
	fputs(" on the fullest device", out);
	if (plan->stage_count > 1)
		fprintf(out, ", of stage %d", fullest);
	print_part("weights", plan, m->weights_bytes, &before, out);
	print_part("gradients", plan, m->gradient_bytes, &before, out);
	print_part("optimizer", plan, m->optimizer_bytes, &before, out);
	print_part("saved activations", plan, m->stash_bytes, &before, out);
	print_part("buffers", plan, m->state_bytes + m->transfer_bytes + m->scratch_bytes, &before, out);
	print_part("allocator", plan, m->margin_bytes, &before, out);
	if (plan->profile->memory.model != PD_MEMORY_OWN)
		fprintf(out, " (as %s)", pd_memory_model_name[plan->profile->memory.model]);
	fputc('\n', out);
}

/* Prints the degrees of parallelism. */
static void print_degrees(const struct pd_plan *plan, int chunks, FILE *out)
{
	const struct pd_degrees *group = &plan->profile->group;
	int positions = plan->stage_count / chunks;

	fprintf(out, "pp %d", positions);
	if (group->tensor > 1)
		fprintf(out, " x tp %" PRId64 "%s", group->tensor,
			group->sequence ? " with sequence parallelism" : "");
	fprintf(out, " x dp %d", plan->stages[0].replicas);
	for (int s = 1; s < plan->stage_count && !pd_plan_has_equal_replicas(plan); s++)
		fprintf(out, "-%d", plan->stages[s].replicas);
	if (group->sharded > 1)
		fprintf(out, " x fully sharded %" PRId64, group->sharded);
	if (plan->profile->memory.sharded)
		fputs(" (optimizer sharded)", out);
	if (chunks > 1)
		fprintf(out, ", %d virtual stages a rank", chunks);
}

/* Prints which stages recompute. */
static void print_recomputed(const struct pd_plan *plan, FILE *out)
{
	int count = 0, first = 0;
	char text[PD_RECOMPUTED_TEXT];

	for (int s = plan->stage_count - 1; s >= 0; s--)
		if (plan->stages[s].recompute) {
			count++;
			first = s;
		}
	if (count == 0)
		fputs("; nothing is recomputed", out);
	else if (count < plan->stage_count)
		fprintf(out, "; %d of %d stages recompute", count, plan->stage_count);
	else
		fprintf(out, "; every stage: %s", pd_show_recomputed(plan, first, "", text));
}

static void print_layout(const struct pd_usage *usage, FILE *out)
{
	const struct pd_plan *plan = usage->plan;
	int64_t replicas = plan->stages[0].replicas;

	print_noun("layout", out);
	print_degrees(plan, usage->schedule->chunks, out);
	fprintf(out, ", %s with weights %s; microbatch %" PRId64, pd_schedule_kind_name[plan->schedule],
		pd_weight_kind_name[plan->weights], plan->profile->batch_size);
	if (plan->microbatches > 1 && pd_plan_has_equal_replicas(plan) && plan->microbatches % replicas == 0)
		fprintf(out, ", %" PRId64 " accumulated", plan->microbatches / replicas);
	else if (plan->microbatches > 1)
		fprintf(out, ", %" PRId64 " in an update", plan->microbatches);
	print_recomputed(plan, out);
	fputc('\n', out);
}

static void print_speed(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	const struct pd_step *step = &predicted->step;
	int64_t microbatches = step->ns > 0 ? step->ns / predicted->period_ns : 1;
	char time[32], low[32], high[32], text[COUNT_TEXT];

	print_noun("speed", out);
	fprintf(out, "%s a %s", pd_show_time(pd_times(microbatches, predicted->period_ns), time),
		step->ns > 0 ? "step" : "minibatch");
	if (predicted->period_from == PD_PERIOD_ESTIMATE)
		fputs(" (an estimate)", out);
	if (predicted->period_high_ns > 0)
		fprintf(out, " (%s to %s in eight runs of ten)",
			pd_show_time(pd_times(microbatches, predicted->period_low_ns), low),
			pd_show_time(pd_times(microbatches, predicted->period_high_ns), high));
	fprintf(out, ": %.1f samples/s", predicted->samples_per_s);
	if (step->tokens_per_s > 0) {
		fprintf(out, ", %s tokens/s", show_count(step->tokens_per_s, text));
		fprintf(out, ", %s tokens/s a device",
			show_count(step->tokens_per_s / (double)pd_plan_devices(plan), text));
	}
	if (step->device_flops_per_s > 0)
		fprintf(out, ", %.3g TFLOP/s a device", step->device_flops_per_s / 1e12);
	if (step->mfu > 0)
		fprintf(out, ", MFU %.1f %%", 100 * step->mfu);
	fputc('\n', out);
}

static void print_bottleneck(const struct pd_usage *usage, FILE *out)
{
	print_noun("bottleneck", out);
	pd_usage_put_limit(usage, out);
	if (usage->plan->predicted.ended_early)
		fputs("; the search ended early, with the best so far (--effort)", out);
	fputc('\n', out);
}

static bool is_the_plan(const struct pd_alternative *one, const struct pd_plan *plan)
{
	return one->period_ns == plan->predicted.period_ns && one->schedule == plan->schedule &&
	       one->weights == plan->weights;
}

/* Prints the degrees of an alternative whose ranks have a stage each, with as many replicas of all. */
static void print_other_degrees(const struct pd_alternative *one, const struct pd_plan *plan, FILE *out)
{
	int64_t tensor = one->tensor > 0 ? one->tensor : plan->profile->group.tensor;
	int stages = 0;
	long replicas = 0;

	for (const char *at = one->stages; *at; stages++) {
		long r = 1;
		char *end;

		strtol(at, &end, 10);
		if (*end == 'x')
			r = strtol(end + 1, &end, 10);
		if ((replicas && r != replicas) || (*end && *end != ','))
			return;
		replicas = r;
		at = *end ? end + 1 : end;
	}
	if (pd_schedule_has(one->schedule, PD_FACT_SHARES))
		return;
	fprintf(out, ", pp %d", stages);
	if (tensor > 1)
		fprintf(out, " x tp %" PRId64, tensor);
	fprintf(out, " x dp %ld", replicas);
}

/* Prints the fastest other plan that was looked at and fits. */
static void print_next_best(const struct pd_plan *plan, FILE *out)
{
	const struct pd_prediction *predicted = &plan->predicted;
	const struct pd_alternative *best = NULL;
	char bytes[32];
	double slower;
	int64_t each, ours = pd_degrees_each(&plan->profile->group, predicted->memory_bytes);

	for (int i = 0; i < predicted->alternative_count; i++) {
		const struct pd_alternative *one = &predicted->alternatives[i];

		if (one->fits && one->period_ns > 0 && !is_the_plan(one, plan) &&
		    (!best || one->period_ns < best->period_ns))
			best = one;
	}
	if (!best || predicted->period_ns == 0)
		return;
	each = best->tensor > 0 ? (best->memory_bytes - 1) / best->tensor + 1
				: pd_degrees_each(&plan->profile->group, best->memory_bytes);
	print_noun("next best", out);
	slower = 100 * ((double)best->period_ns / (double)predicted->period_ns - 1);
	fputs(pd_alternative_kind_name[best->kind], out);
	print_other_degrees(best, plan, out);
	fprintf(out, " (--stages=%.48s%s, %s, %s): %.0f %% %s, %s %s\n", best->stages,
		strlen(best->stages) > 48 ? "..." : "", pd_schedule_kind_name[best->schedule],
		pd_weight_kind_name[best->weights],
		slower < 0 ? -slower : slower, slower < 0 ? "faster" : "slower",
		pd_show_bytes(each < ours ? ours - each : each - ours, bytes), each < ours ? "less" : "more");
}

static void print_next(const struct pd_plan *plan, FILE *out)
{
	bool ours = pd_degrees_devices(&plan->profile->group) == 1 && plan->profile->model &&
		    plan->profile->memory.model == PD_MEMORY_OWN;

	print_noun("next", out);
	if (ours)
		fputs("train: pd-run PLAN --data=DIR; ", out);
	else
		fputs("launch: plan with --for=megatron, torchtitan or deepspeed, and pd-plan --format=NAME "
		      "PLAN; ", out);
	fputs("see: pd-replay PLAN; why: --explain\n", out);
}

void pd_answer_print(const struct pd_plan *plan, int64_t memory_bytes, FILE *out)
{
	struct pd_usage *usage = pd_usage_new(plan);

	if (!usage)             /* a plan of the planner has a schedule */
		pd_bug("answer: a plan that has no schedule");
	print_model(plan, out);
	print_machine(plan, out);
	print_idle(plan, out);
	print_memory(usage, memory_bytes, out);
	print_layout(usage, out);
	print_speed(plan, out);
	print_bottleneck(usage, out);
	print_next_best(plan, out);
	print_next(plan, out);
	pd_usage_free(usage);
}
