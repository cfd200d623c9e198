/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/answer.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "estimate/cost.h"
#include "explain/usage.h"
#include "profile/device.h"

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

/* Returns the samples of an update, or 0 if stages update after different numbers. */
static int64_t global_batch(const struct pd_usage *usage)
{
	const struct pd_schedule *schedule = usage->schedule;

	for (int s = 1; s < usage->plan->stage_count; s++)
		if (schedule->group[s] != schedule->group[0])
			return 0;
	return pd_times(schedule->group[0], usage->plan->profile->batch_size);
}

/* A sample is tokens where an input is whole numbers in a row. */
static int64_t sample_tokens(const struct pd_model *model)
{
	for (int i = 0; model && i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_I32 && model->inputs[i].shape.dims == 1)
			return model->inputs[i].shape.size[0];
	return 0;
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

/* Returns the FLOPs of so many samples; 0: there is no model. */
static double flops_of(const struct pd_profile *profile, int64_t samples)
{
	double forward = 0;

	for (int l = 0; profile->model && l < profile->layer_count; l++) {
		struct pd_layer whole = profile->model->layers[l];
		struct pd_cost_layer layer = { .model = profile->model, .layer = &whole, .batch = 1,
					       .dtype = profile->dtype, .share = PD_SHARE_ALL };
		struct pd_cost cost;

		whole.causal = false;
		whole.window = 0;

		pd_cost_count(&layer, PD_COST_FORWARD, &cost);
		forward += pd_cost_operations(&cost);
	}
	return 3 * forward * (double)samples;
}

/* Returns what the specification says of dense products in the profile's dtype; 0: there is none. */
static double peak_of(const struct pd_profile *profile)
{
	struct pd_place place = pd_place_root("the device", profile->sheet);
	struct pd_error err;
	struct pd_sheet *sheet = profile->sheet ? pd_sheet_parse_at(&place, &err) : NULL;
	double peak = !sheet ? 0 : profile->tf32 && profile->dtype == PD_F32 ? sheet->tf32_per_s
								: sheet->products_per_s[profile->dtype];

	pd_sheet_free(sheet);
	return peak;
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

static void answer_from(const struct pd_usage *usage, int64_t memory_bytes, struct pd_answer *a)
{
	const struct pd_plan *plan = usage->plan;
	const struct pd_profile *profile = plan->profile;
	const struct pd_prediction *predicted = &plan->predicted;
	int64_t groups;

	*a = (struct pd_answer){ .global_batch = global_batch(usage), .sample_tokens = sample_tokens(profile->model),
				 .parameters = parameters_of(profile), .samples_per_s = predicted->samples_per_s,
				 .devices = pd_degrees_devices(&profile->group) * plan->rank_count,
				 .peak_flops_per_s = peak_of(profile), .fullest = fullest_stage(plan) };
	groups = a->global_batch > 0 ? a->global_batch / profile->batch_size : 1;
	a->step_ns = pd_times(predicted->period_ns, groups);
	a->step_low_ns = pd_times(predicted->period_low_ns, groups);
	a->step_high_ns = pd_times(predicted->period_high_ns, groups);
	a->step_flops = flops_of(profile, pd_times(groups, profile->batch_size));
	if (a->step_ns > 0)
		a->device_flops_per_s = a->step_flops * 1e9 / (double)a->step_ns / (double)a->devices;
	a->fullest_bytes = pd_degrees_each(&profile->group, plan->stages[a->fullest].memory_bytes);
	a->memory_bytes = memory_bytes > 0 ? memory_bytes : device_memory(plan, a->fullest);
}

void pd_answer_of(const struct pd_plan *plan, int64_t memory_bytes, struct pd_answer *answer_p)
{
	struct pd_usage *usage = pd_usage_new(plan);

	if (!usage)
		pd_bug("answer: a plan that has no schedule");
	answer_from(usage, memory_bytes, answer_p);
	pd_usage_free(usage);
}

/* Begins a line of the answer. */
static void print_noun(const char *noun, FILE *out)
{
	fprintf(out, "%-11s", noun);
}

static void print_model(const struct pd_plan *plan, const struct pd_answer *a, FILE *out)
{
	const struct pd_profile *profile = plan->profile;
	char text[COUNT_TEXT];

	print_noun("model", out);
	fprintf(out, "%s: %s parameters", profile->name ? profile->name : "no name",
		show_count((double)a->parameters, text));
	if (a->sample_tokens > 0)
		fprintf(out, ", %s tokens a sample", show_count((double)a->sample_tokens, text));
	fprintf(out, ", %s; ", pd_dtype_name[profile->dtype]);
	if (a->global_batch == 0) {
		fputs("each stage updates after one minibatch of each of its replicas\n", out);
		return;
	}
	fprintf(out, "global batch %s", show_count((double)a->global_batch, text));
	if (a->sample_tokens > 0)
		fprintf(out, " (%s tokens)", show_count((double)a->global_batch * (double)a->sample_tokens, text));
	fputc('\n', out);
}

static void print_machine(const struct pd_plan *plan, const struct pd_answer *a, FILE *out)
{
	int64_t each = pd_degrees_devices(&plan->profile->group), all = each * plan->topology.devices;
	char *devices = pd_show_devices(&plan->topology);

	print_noun("machine", out);
	fprintf(out, "%" PRId64 " of %" PRId64 " device%s", a->devices, all, all == 1 ? "" : "s");
	if (devices)
		fprintf(out, ": %s", devices);
	else if (plan->profile->device_name)
		fprintf(out, ", %s", plan->profile->device_name);
	free(devices);
	for (int k = 0; k < pd_plan_kinds(plan); k++) {
		const struct pd_profile *profile = pd_profile_of_kind(plan->profile, k);

		if (profile->estimated_from)
			fprintf(out, "; times of %s by its specification, off by up to %g %%", profile->estimated_from,
				100 * profile->estimated_spread);
	}
	fputc('\n', out);
}

static void print_part(const char *name, const struct pd_plan *plan, int64_t bytes, const char **before, FILE *out)
{
	char text[32];

	if (bytes == 0)
		return;
	fprintf(out, "%s%s %s", *before, name, pd_show_device_bytes(plan, bytes, text));
	*before = ", ";
}

static void print_memory(const struct pd_usage *usage, const struct pd_answer *a, FILE *out)
{
	const struct pd_memory *m = &usage->stages[a->fullest].memory;
	const struct pd_plan *plan = usage->plan;
	const char *before = ": ";
	char used[32], has[32];

	print_noun("fits", out);
	fputs(pd_show_bytes(a->fullest_bytes, used), out);
	if (a->memory_bytes > 0)
		fprintf(out, " of %s", pd_show_bytes(a->memory_bytes, has));
	fputs(" on the fullest device", out);
	if (plan->stage_count > 1)
		fprintf(out, ", of stage %d", a->fullest);
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

static bool has_equal_replicas(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (plan->stages[s].replicas != plan->stages[0].replicas)
			return false;
	return true;
}

/* Prints the degrees of parallelism. */
static void print_degrees(const struct pd_plan *plan, int chunks, FILE *out)
{
	const struct pd_degrees *group = &plan->profile->group;
	int positions = plan->stage_count / chunks;

	fprintf(out, "pp %d", positions);
	if (group->tensor > 1)
		fprintf(out, " x tp %" PRId64 "%s", group->tensor, group->sequence ? " with sequence parallelism" : "");
	fprintf(out, " x dp %d", plan->stages[0].replicas);
	for (int s = 1; s < plan->stage_count && !has_equal_replicas(plan); s++)
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
	if (plan->microbatches > 1 && has_equal_replicas(plan) && plan->microbatches % replicas == 0)
		fprintf(out, ", %" PRId64 " accumulated", plan->microbatches / replicas);
	else if (plan->microbatches > 1)
		fprintf(out, ", %" PRId64 " in an update", plan->microbatches);
	print_recomputed(plan, out);
	fputc('\n', out);
}

static void print_speed(const struct pd_plan *plan, const struct pd_answer *a, FILE *out)
{
	char time[32], low[32], high[32], text[COUNT_TEXT];
	double tokens_per_s = a->samples_per_s * (double)a->sample_tokens;

	print_noun("speed", out);
	fprintf(out, "%s a %s", pd_show_time(a->step_ns, time), a->global_batch > 0 ? "step" : "minibatch");
	if (plan->predicted.period_from == PD_PERIOD_ESTIMATE)
		fputs(" (an estimate)", out);
	if (a->step_high_ns > 0)
		fprintf(out, " (%s to %s in eight runs of ten)", pd_show_time(a->step_low_ns, low),
			pd_show_time(a->step_high_ns, high));
	fprintf(out, ": %.1f samples/s", a->samples_per_s);
	if (a->sample_tokens > 0) {
		fprintf(out, ", %s tokens/s", show_count(tokens_per_s, text));
		fprintf(out, ", %s tokens/s a device", show_count(tokens_per_s / (double)a->devices, text));
	}
	if (a->device_flops_per_s > 0)
		fprintf(out, ", %.3g TFLOP/s a device", a->device_flops_per_s / 1e12);
	if (a->device_flops_per_s > 0 && a->peak_flops_per_s > 0)
		fprintf(out, ", MFU %.1f %%", 100 * a->device_flops_per_s / a->peak_flops_per_s);
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
	fprintf(out, "%s (--stages=%s, %s, %s): %.0f %% %s, %s %s\n", pd_alternative_kind_name[best->kind],
		best->stages, pd_schedule_kind_name[best->schedule], pd_weight_kind_name[best->weights],
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
		fputs("launch: pd-plan --format=megatron, torchtitan or deepspeed; ", out);
	fputs("see: pd-replay PLAN; why: --explain\n", out);
}

void pd_answer_print(const struct pd_plan *plan, int64_t memory_bytes, FILE *out)
{
	struct pd_usage *usage = pd_usage_new(plan);
	struct pd_answer answer;

	if (!usage)             /* a plan of the planner has a schedule */
		pd_bug("answer: a plan that has no schedule");
	answer_from(usage, memory_bytes, &answer);
	print_model(plan, &answer, out);
	print_machine(plan, &answer, out);
	print_memory(usage, &answer, out);
	print_layout(usage, out);
	print_speed(plan, &answer, out);
	print_bottleneck(usage, out);
	print_next_best(plan, out);
	print_next(plan, out);
	pd_usage_free(usage);
}
