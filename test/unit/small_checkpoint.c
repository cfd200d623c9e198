/* SPDX-License-Identifier: Apache-2.0 */
#include "small_checkpoint.h"

#include <stdio.h>
#include <string.h>

static char *layers0[] = { "conv1", "bn1" }, *layers1[] = { "block.0.fc", "loss" };
static int64_t versions0[] = { 0, 0 }, versions1[] = { 0 };
static struct pd_checkpoint_stage stages[SMALL_STAGES] = {
	{ .layer_count = 2, .layers = layers0, .warmup = 2, .replicas = 3, .version_count = 2,
	  .versions = versions0 },
	{ .layer_count = 2, .layers = layers1, .warmup = 1, .replicas = 1, .version_count = 1,
	  .versions = versions1 },
};
static struct pd_checkpoint_file small_files[SMALL_STAGES] = { { .stage = 0 }, { .stage = 1 } };

struct pd_checkpoint_info small_info(int64_t step)
{
	versions0[0] = step - 1;
	versions0[1] = versions1[0] = step;
	return (struct pd_checkpoint_info){
		.step = step, .epoch = 3, .minibatch = 41, .seed = INT64_MAX, .batch_size = 64,
		.name = "small", .dtype = "f32", .stage_count = SMALL_STAGES, .stages = stages,
		.file_count = SMALL_STAGES, .files = small_files,
		.optimizer = json_pack("{s:s, s:f, s:f, s:[i, i]}", "kind", "sgd", "lr", 0.1,
				       "momentum", 0.9, "list", 1, 2),
	};
}

float small_value(int64_t step, const char *name, int i)
{
	return (float)(step * 100 + (int64_t)strlen(name) * 10 + i);
}

int small_write_stage(const char *directory, int64_t step, int stage, struct pd_error *err)
{
	char old[64];
	const struct pd_tensor tensors[SMALL_STAGES][SMALL_TENSORS] = {
		{ { .name = "conv1.weight", .dims = 2, .size = { 2, 3 }, .elements = 6 },
		  { .name = old, .dims = 2, .size = { 2, 3 }, .elements = 6 },
		  { .name = "conv1.weight.velocity", .dims = 2, .size = { 2, 3 }, .elements = 6 },
		  { .name = "bn1.running_mean", .dims = 1, .size = { 6 }, .elements = 6 } },
		{ { .name = "block.0.fc.weight", .dims = 1, .size = { 6 }, .elements = 6 },
		  { .name = "block.0.fc.weight.velocity", .dims = 1, .size = { 6 }, .elements = 6 },
		  { .name = "block.0.fc.bias", .dims = 1, .size = { 6 }, .elements = 6 },
		  { .name = "block.0.fc.bias.velocity", .dims = 1, .size = { 6 }, .elements = 6 } },
	};
	float values[SMALL_TENSORS][SMALL_ELEMENTS];
	const float *data[SMALL_TENSORS];

	snprintf(old, sizeof(old), "conv1.weight@%d", (int)step - 1);
	for (int t = 0; t < SMALL_TENSORS; t++) {
		for (int i = 0; i < SMALL_ELEMENTS; i++)
			values[t][i] = small_value(step, tensors[stage][t].name, i);
		data[t] = values[t];
	}
	return pd_checkpoint_write(directory, step, &small_files[stage], tensors[stage], data,
				   SMALL_TENSORS, err);
}

int small_save(const char *directory, int64_t step, int keep, struct pd_error *err)
{
	int status = pd_checkpoint_begin(directory, step, err);
	struct pd_checkpoint_info info;

	for (int i = 0; i < SMALL_STAGES && status == 0; i++) {
		status = small_write_stage(directory, step, i, err);
		if (status < 0)
			pd_checkpoint_abandon(directory, step);
	}
	if (status < 0)
		return -1;
	info = small_info(step);
	status = pd_checkpoint_finish(directory, &info, keep, err);
	json_decref(info.optimizer);
	return status;
}
