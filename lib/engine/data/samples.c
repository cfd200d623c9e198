/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/samples.h"

#include "base/finite.h"
#include "base/half.h"
#include "base/mem.h"
#include "engine/data/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct pd_dataset *dataset(const struct pd_samples *samples, bool evaluate)
{
	return evaluate ? samples->config->test : samples->config->train;
}

static const struct pd_input *input_of(const struct pd_samples *samples, int k)
{
	return &samples->config->model->inputs[samples->config->inputs[k]];
}

void pd_samples_init(struct pd_samples *samples, const struct pd_loader_config *config)
{
	const struct pd_dataset *set = config->train;

	*samples = (struct pd_samples){ .config = config, .order_epoch = -1,
					.lanes = pd_model_lanes(config->model) };
	samples->elements = pd_calloc((size_t)config->input_count, sizeof(*samples->elements));
	samples->bytes = pd_calloc((size_t)config->input_count, sizeof(*samples->bytes));
	if (set && !set->synthetic && samples->lanes == 0)
		samples->order = pd_calloc((size_t)set->samples, sizeof(*samples->order));
}

void pd_samples_release(struct pd_samples *samples)
{
	free(samples->elements);
	free(samples->bytes);
	free(samples->order);
	free(samples->unrounded);
	free(samples->unchanged);
}

/*
 * A synthetic set repeats itself after all its samples, or after as many whole minibatches as are
 * PD_SYNTHETIC_BYTES of all the model's inputs, in f32: the same for every rank, whatever inputs it
 * has.
 */
static int64_t distinct_samples(const struct pd_loader_config *config)
{
	const struct pd_model *model = config->model;
	double bytes = 0;
	int64_t minibatches;

	for (int i = 0; i < model->input_count; i++)
		bytes += (double)sizeof(float) * (double)config->batch_size *
			 (double)pd_shape_elements(&model->inputs[i].shape);
	minibatches = bytes < PD_SYNTHETIC_BYTES ? (int64_t)(PD_SYNTHETIC_BYTES / bytes) : 1;
	return minibatches < config->train->samples / config->batch_size
		? minibatches * config->batch_size : config->train->samples;
}

/* Returns the bytes of an element of input number k. */
static size_t element_bytes(const struct pd_samples *samples, int k)
{
	enum pd_dtype dtype = input_of(samples, k)->dtype;

	return pd_dtype_bytes(dtype == PD_I32 ? dtype : samples->config->dtype);
}

int pd_samples_measure(struct pd_samples *samples, struct pd_error *err)
{
	const struct pd_loader_config *config = samples->config;
	const struct pd_dataset *set = config->train;
	int64_t most = 0;

	for (int e = 0; e < 2; e++) {
		const struct pd_dataset *one = dataset(samples, e == 1);

		if (one && !one->synthetic && one->samples < samples->lanes)
			return pd_error_input(err, "the data set has %" PRId64 " samples%s: expected one "
					      "for each of the model's %" PRId64 " lanes, or more",
					      one->samples, e ? " for evaluation" : "", samples->lanes);
	}
	if (set && set->synthetic)
		samples->distinct = distinct_samples(config);
	for (int k = 0; k < config->input_count; k++) {
		const struct pd_input *input = input_of(samples, k);
		int64_t total;

		samples->elements[k] = pd_shape_elements(&input->shape);
		if (!pd_mul(samples->elements[k], config->batch_size, &total) ||
		    !pd_mul(total, (int64_t)element_bytes(samples, k), &total))
			return pd_error_input(err, "batch size %" PRId64
					      ": too large for input \"%s\"", config->batch_size,
					      input->name);
		samples->bytes[k] = (size_t)total;
		if (samples->elements[k] > most)
			most = samples->elements[k];
	}
	if (config->dtype != PD_F32)
		samples->unrounded = pd_calloc((size_t)most, sizeof(*samples->unrounded));
	if (pd_augments(&config->augment))
		samples->unchanged = pd_calloc((size_t)most, sizeof(*samples->unchanged));
	return 0;
}

/* Tells whether no lane comes to the sample.  An evaluation has those last. */
static bool left_over(const struct pd_samples *samples, const struct pd_dataset *set,
		      const struct pd_batch *batch, int64_t i)
{
	return batch->first_sample + i >= set->samples - set->samples % samples->lanes;
}

/* Returns sample number i of a microbatch, as an index into the data set. */
static int64_t sample_index(const struct pd_samples *samples, const struct pd_batch *batch,
			    int64_t i)
{
	const struct pd_dataset *set = dataset(samples, batch->evaluate);
	int64_t epoch;

	if (set->synthetic)
		return (batch->first_sample + i) % samples->distinct;
	if (samples->lanes > 0 && !(batch->evaluate && left_over(samples, set, batch, i)))
		return pd_order_lane(samples->lanes, set->samples, batch->first_sample + i);
	if (batch->evaluate)
		return batch->first_sample + i;
	epoch = pd_loader_epoch(set, samples->config->batch_size, samples->config->microbatches);
	return samples->order[batch->microbatch % epoch * samples->config->batch_size + i];
}

static void round_sample(const struct pd_samples *samples, uint16_t *out, int64_t elements)
{
	const float *values = samples->unrounded;

	if (samples->config->dtype == PD_BF16)
		for (int64_t i = 0; i < elements; i++)
			out[i] = pd_to_bf16(values[i]);
	else
		for (int64_t i = 0; i < elements; i++)
			out[i] = pd_to_f16(values[i]);
}

/* Tells whether elements of a buffer are finite, as the network takes them. */
static bool is_finite(const struct pd_samples *samples, const void *buffer, int64_t first, int64_t count)
{
	enum pd_dtype dtype = samples->config->dtype;

	return dtype == PD_F32
		? pd_all_finite((const float *)buffer + first, (size_t)count)
		: pd_all_finite_narrow((const uint16_t *)buffer + first,
				       dtype == PD_BF16 ? PD_BF16_LAST_BIT : PD_F16_LAST_BIT,
				       (size_t)count);
}

static void normalize(const struct pd_input *input, float *values)
{
	int64_t each = input->channels ? pd_shape_elements(&input->shape) / input->channels : 0;

	for (int64_t c = 0; c < input->channels; c++, values += each)
		for (int64_t i = 0; i < each; i++)
			values[i] = (values[i] - input->mean[c]) / input->deviation[c];
}

/* Reads a sample of an f32 input, changed and normalised. */
static void read_floats(const struct pd_samples *samples, const struct pd_batch *batch, int k,
			int64_t index, float *values)
{
	const struct pd_loader_config *config = samples->config;
	const struct pd_dataset *set = dataset(samples, batch->evaluate);
	bool augments = samples->unchanged && !batch->evaluate && !set->synthetic;

	set->format->read(set, config->inputs[k], index, augments ? samples->unchanged : values);
	if (augments)
		pd_augment_image(&config->augment, config->seed,
				 batch->microbatch / pd_loader_epoch(set, config->batch_size,
								     config->microbatches),
				 index, &input_of(samples, k)->shape, set->black, samples->unchanged, values);
	if (!set->synthetic)
		normalize(input_of(samples, k), values);
}

static void fill_sample(struct pd_samples *samples, const struct pd_batch *batch, int k,
			int64_t i)
{
	const struct pd_loader_config *config = samples->config;
	const struct pd_dataset *set = dataset(samples, batch->evaluate);
	int64_t index = sample_index(samples, batch, i), elements = samples->elements[k];
	bool rounds = samples->unrounded && input_of(samples, k)->dtype != PD_I32;
	void *values = rounds ? (void *)samples->unrounded
			      : (char *)batch->buffers[k] + i * elements * (int64_t)sizeof(float);

	if (input_of(samples, k)->dtype == PD_F32)
		read_floats(samples, batch, k, index, values);
	else
		set->format->read(set, config->inputs[k], index, values);
	if (rounds)
		round_sample(samples, (uint16_t *)batch->buffers[k] + i * elements, elements);
	if (set->format->file && !samples->not_finite.file && input_of(samples, k)->dtype != PD_I32 &&
	    !is_finite(samples, batch->buffers[k], i * elements, elements))
		samples->not_finite = (struct pd_not_finite){
			set->format->file(set, config->inputs[k]), index };
}

/* Makes the order of the training samples in the epoch of a microbatch, unless it is there. */
static void bring_order(struct pd_samples *samples, const struct pd_batch *batch)
{
	const struct pd_loader_config *config = samples->config;
	const struct pd_dataset *set = config->train;
	int64_t epoch = batch->microbatch / pd_loader_epoch(set, config->batch_size,
							    config->microbatches);

	if (epoch != samples->order_epoch)
		pd_order_shuffle(config->seed, epoch, set->samples, samples->order);
	samples->order_epoch = epoch;
}

void pd_samples_fill(struct pd_samples *samples, const struct pd_batch *batch)
{
	if (!batch->evaluate && samples->order)
		bring_order(samples, batch);
	for (int k = 0; k < samples->config->input_count; k++) {
		size_t used = (size_t)(batch->valid * samples->elements[k]) *
			      element_bytes(samples, k);

		for (int64_t i = 0; i < batch->valid; i++)
			fill_sample(samples, batch, k, i);
		memset((char *)batch->buffers[k] + used, 0, batch->bytes[k] - used);
	}
}
