/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fits a device to what was measured.  Each time belongs to what limits it: products, attention, convolutions by
 * Winograd's algorithm, bytes, or the kernel itself.  The factor of a class is the median of measured over estimated times, where each counts as much
 * as it takes; classes change with the factors, so this is done several times.
 */
#include "estimate/estimate.h"

#include "base/mem.h"
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS 8
#define LEAST 3                 /* times of which a class is fitted */

enum class { PRODUCTS, ATTENTION, WINOGRAD, MEMORY, KERNEL, CLASSES };

struct sample {
	struct pd_cost cost;
	struct pd_estimate how;
	double measured_ns;
};

struct samples {
	struct sample *list;
	size_t count, capacity;
};

static void add(struct samples *samples, struct pd_estimate how, const struct pd_profile *profile, int l,
		enum pd_cost_part part, int64_t ns)
{
	const struct pd_cost_layer of = pd_estimate_layer(&how, profile->model, l);
	struct sample sample = { .how = how, .measured_ns = (double)ns };

	pd_cost_count(&of, part, &sample.cost);
	if (ns <= 0 || (sample.cost.bytes == 0 && sample.cost.product_count == 0))
		return;
	samples->list = pd_grow(samples->list, &samples->capacity, samples->count + 1, sizeof(*samples->list));
	samples->list[samples->count++] = sample;
}

static void add_profile(struct samples *samples, const struct pd_sheet *sheet, const struct pd_profile *profile)
{
	struct pd_estimate how = { .sheet = sheet, .batch_size = profile->batch_size, .dtype = profile->dtype };

	for (int l = 0; l < profile->layer_count; l++) {
		const struct pd_profile_layer *layer = &profile->layers[l];

		add(samples, how, profile, l, PD_COST_FORWARD, layer->forward_ns);
		if (layer->backward_input_ns < 0)
			continue;
		add(samples, how, profile, l, PD_COST_INPUT, layer->backward_input_ns);
		add(samples, how, profile, l, PD_COST_WEIGHT, layer->backward_weight_ns);
	}
}

/* Returns what takes most of the time that is estimated. */
static enum class class_of(const struct sample *sample)
{
	struct pd_cost bytes = sample->cost, products = sample->cost;
	double kernel_ns = (double)sample->how.sheet->kernel_ns, moved_ns, products_ns;

	bytes.product_count = 0;
	products.bytes = products.apart_bytes = 0;
	moved_ns = pd_estimate_ns(&sample->how, &bytes) - kernel_ns;
	products_ns = pd_estimate_ns(&sample->how, &products) - kernel_ns;
	if (kernel_ns > moved_ns && kernel_ns > products_ns)
		return KERNEL;
	if (moved_ns >= products_ns)
		return MEMORY;
	if (products.products[0].winograd > 0 && sample->how.sheet->efficiency.winograd > 0)
		return WINOGRAD;
	return products.products[0].attention ? ATTENTION : PRODUCTS;
}

/* How many times as long as estimated something took, and its weight: the time that was measured. */
struct ratio {
	double value, weight_ns;
};

static int by_value(const void *a, const void *b)
{
	const struct ratio *x = a, *y = b;

	PD_ORDER(x->value, y->value);
	return 0;
}

/* Lists the ratios of a class, or of all if that is CLASSES, ascending; returns how many there are. */
static size_t list_ratios(const struct samples *samples, enum class class, struct ratio *list)
{
	size_t count = 0;

	for (size_t i = 0; i < samples->count; i++) {
		const struct sample *sample = &samples->list[i];

		if (class == CLASSES || class_of(sample) == class)
			list[count++] = (struct ratio){ sample->measured_ns /
							pd_estimate_ns(&sample->how, &sample->cost),
							sample->measured_ns };
	}
	qsort(list, count, sizeof(*list), by_value);
	return count;
}

/* Returns the ratio below which a part of the measured time lies. */
static double at(const struct ratio *list, size_t count, double part)
{
	double sum_ns = 0, before_ns = 0;
	size_t i = 0;

	for (size_t k = 0; k < count; k++)
		sum_ns += list[k].weight_ns;
	for (; i + 1 < count && before_ns + list[i].weight_ns < part * sum_ns; i++)
		before_ns += list[i].weight_ns;
	return list[i].value;
}

/* Returns the median of measured over estimated times of a class, by time; 1: there are too few. */
static double factor_of(const struct samples *samples, enum class class)
{
	struct ratio *list = pd_calloc(samples->count, sizeof(*list));
	size_t count = list_ratios(samples, class, list);
	double factor = count >= LEAST ? at(list, count, 0.5) : 1;

	free(list);
	return factor;
}

/* Returns how far the middle half of the time lies apart, over the median. */
static double spread_of(const struct samples *samples)
{
	struct ratio *list = pd_calloc(samples->count, sizeof(*list));
	size_t count = list_ratios(samples, CLASSES, list);
	double spread = (at(list, count, 0.75) - at(list, count, 0.25)) / at(list, count, 0.5);

	free(list);
	return spread;
}

/* Raises the rates of the sheet where kernels do more than these, so that no efficiency is above its most. */
static void raise(struct pd_sheet *sheet)
{
	struct pd_efficiency *e = &sheet->efficiency;
	double products = fmax(1, fmax(e->products, fmax(e->attention, e->winograd))), memory = fmax(1, e->memory / 2);

	for (int d = 0; d < PD_DTYPES; d++)
		sheet->products_per_s[d] *= products;
	sheet->tf32_per_s *= products;
	sheet->bandwidth_bytes_per_s *= memory;
	*e = (struct pd_efficiency){ e->products / products, e->memory / memory, e->attention / products,
				     e->winograd / products };
}

static void fit(struct pd_sheet *sheet, const struct samples *samples)
{
	double products = factor_of(samples, PRODUCTS), memory = factor_of(samples, MEMORY);
	double attention = factor_of(samples, ATTENTION), kernel = factor_of(samples, KERNEL);

	sheet->efficiency.products /= products;
	sheet->efficiency.attention /= attention == 1 ? products : attention;
	sheet->efficiency.winograd /= factor_of(samples, WINOGRAD);
	sheet->efficiency.memory /= memory;
	sheet->kernel_ns = (int64_t)round((double)sheet->kernel_ns * kernel);
}

int pd_estimate_fit(struct pd_sheet *sheet, struct pd_profile *const *profiles, int count, struct pd_error *err)
{
	struct samples samples = { .list = NULL };

	for (int p = 0; p < count; p++)
		if (sheet->products_per_s[profiles[p]->dtype] > 0 && profiles[p]->model)
			add_profile(&samples, sheet, profiles[p]);
	if (samples.count < LEAST) {
		free(samples.list);
		return pd_error_input(err, "--fit: %zu measured times: expected profiles with a model, in types that "
				      "device \"%.60s\" has, of %d layers or more", samples.count, sheet->name, LEAST);
	}
	for (int round = 0; round < ROUNDS; round++)
		fit(sheet, &samples);
	sheet->spread = spread_of(&samples);
	raise(sheet);
	free(samples.list);
	return 0;
}
