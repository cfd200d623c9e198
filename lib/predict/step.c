/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/step.h"

#include "base/mem.h"
#include "base/json.h"
#include "estimate/cost.h"
#include "profile/device.h"

/* Returns the microbatches of an update, or 0 if stages update after different numbers. */
static int64_t step_microbatches(const struct pd_plan *plan)
{
	for (int s = 1; s < plan->stage_count; s++)
		if (pd_plan_group(plan, s) != pd_plan_group(plan, 0))
			return 0;
	return pd_plan_group(plan, 0);
}

int64_t pd_sample_tokens(const struct pd_model *model)
{
	for (int i = 0; model && i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_I32 && model->inputs[i].shape.dims == 1)
			return model->inputs[i].shape.size[0];
	return 0;
}

/* Returns the FLOPs of a sample; 0: there is no model. */
static double sample_flops(const struct pd_profile *profile)
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
	return 3 * forward;
}

/* Returns what the data sheet says of dense products in the profile's dtype; 0: there is none. */
static double peak_flops_per_s(const struct pd_profile *profile)
{
	struct pd_place place = pd_place_root("the device", profile->sheet);
	struct pd_error err;
	struct pd_sheet *sheet = profile->sheet ? pd_sheet_parse_at(&place, &err) : NULL;
	double peak = !sheet ? 0 : profile->tf32 && profile->dtype == PD_F32 ? sheet->tf32_per_s
								: sheet->products_per_s[profile->dtype];

	pd_sheet_free(sheet);
	return peak;
}

struct pd_step pd_step_at(const struct pd_plan *plan, int64_t period_ns)
{
	const struct pd_profile *profile = plan->profile;
	int64_t microbatches = step_microbatches(plan);
	double peak = peak_flops_per_s(profile);
	double samples = period_ns > 0 ? (double)profile->batch_size * 1e9 / (double)period_ns : 0;
	struct pd_step step = { .global_batch = pd_times(microbatches, profile->batch_size),
				.ns = pd_times(microbatches, period_ns) };

	step.tokens_per_s = samples * (double)pd_sample_tokens(profile->model);
	step.device_flops_per_s = samples * sample_flops(profile) / (double)pd_plan_devices(plan);
	step.mfu = peak > 0 ? step.device_flops_per_s / peak : 0;
	return step;
}
