/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/loader.h"

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/data/images.h"
#include "engine/data/order.h"
#include "small_model.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In sample s every pixel of channel c is s + 100 c, and its label is s % 10, so that a batch's samples
 * can be told. */
#define TRAIN 50
#define TEST 23
#define BATCH 4
#define CHANNELS 2
#define PLANE 6
#define PER_EPOCH (TRAIN / BATCH)

static struct small_model store;
static struct pd_dataset train, test;
static struct pd_gate gate;
static const int both[] = { 0, 1 };

static const float mean[] = { 0.25f, 0.5f }, deviation[] = { 0.5f, 2.0f };
static const struct pd_data_format images_format = { .read = pd_images_read, .close = pd_images_close };

static void make_set(struct pd_dataset *set, int samples)
{
	struct pd_images *images = pd_zalloc(sizeof(*images));

	*images = (struct pd_images){ .channels = CHANNELS, .height = 2, .width = 3, .classes = 10,
				      .label = 1 };
	*set = (struct pd_dataset){ .format = &images_format, .state = images, .samples = samples };
	images->pixels = malloc((size_t)samples * CHANNELS * PLANE);
	images->labels = malloc((size_t)samples);
	set->black = images->black;
	for (int c = 0; c < CHANNELS; c++) {
		for (int v = 0; v < 256; v++)
			images->table[c][v] = ((float)v / 255.0f - mean[c]) / deviation[c];
		images->black[c] = images->table[c][0];
	}
	for (int s = 0; s < samples; s++) {
		images->labels[s] = (uint8_t)(s % 10);
		for (int i = 0; i < CHANNELS * PLANE; i++)
			images->pixels[s * CHANNELS * PLANE + i] = (uint8_t)(s + 100 * (i / PLANE));
	}
}

static enum pd_dtype loader_dtype = PD_F32;
static struct pd_augment loader_augment;

static struct pd_loader *open_loader(uint64_t seed, int ahead)
{
	struct pd_loader_config config = {
		.model = small_model(&store, CHANNELS, 2, 3, 10), .train = &train, .test = &test,
		.batch_size = BATCH, .dtype = loader_dtype, .seed = seed, .augment = loader_augment, .input_count = 2,
		.inputs = both, .ahead = ahead, .gate = &gate,
	};
	struct pd_error err = { 0 };
	struct pd_loader *loader = pd_loader_open(&config, &err);

	if (!loader)
		diag("%s", err.text);
	return loader;
}

/* Returns the sample at place i of a batch, or -1 if pixels and label are not one sample's. */
static int sample_at(const struct pd_batch *batch, int i)
{
	const float *image = (const float *)batch->buffers[0] + i * CHANNELS * PLANE;
	int s = (int)lrintf((image[0] * 0.5f + 0.25f) * 255);

	for (int e = 0; e < CHANNELS * PLANE; e++) {
		int c = e / PLANE;
		float pixel = (float)(s + 100 * c) / 255.0f;
		float expected = (pixel - mean[c]) / deviation[c];

		if (fabsf(image[e] - expected) > 1e-6f)
			return -1;
	}
	return ((const int32_t *)batch->buffers[1])[i] == s % 10 ? s : -1;
}

static struct pd_batch *take(struct pd_loader *loader)
{
	struct pd_batch *batch = pd_loader_next(loader);

	if (batch)
		pd_event_wait(&batch->ready, &gate);
	return batch;
}

/* Stores the samples of minibatches first, first + stride ... < last at their place in out. */
static bool collect(uint64_t seed, int ahead, int64_t first, int64_t stride, int64_t last, int *out)
{
	struct pd_loader *loader = open_loader(seed, ahead);
	bool right = true;

	pd_loader_plan(loader, false, first, stride, last);
	for (int64_t m = first; m < last; m += stride) {
		struct pd_batch *batch = take(loader);

		right = right && batch->microbatch == m && !batch->evaluate &&
			batch->first_sample == m * BATCH && batch->valid == BATCH &&
			batch->ready.end_ns >= batch->ready.start_ns && batch->ready.start_ns > 0;
		for (int i = 0; i < BATCH; i++)
			out[m * BATCH + i] = sample_at(batch, i);
		pd_loader_release(loader, batch);
	}
	pd_loader_close(loader);
	return right;
}

static void test_epochs(void)
{
	static int order[3 * PER_EPOCH * BATCH], again[3 * PER_EPOCH * BATCH];
	bool once = true, moved = false;

	ok(collect(7, 3, 0, 1, 3 * PER_EPOCH, order), "numbers, times and sizes of minibatches");
	for (int epoch = 0; epoch < 3; epoch++) {
		int seen[TRAIN] = { 0 };

		for (int i = 0; i < PER_EPOCH * BATCH; i++) {
			int s = order[epoch * PER_EPOCH * BATCH + i];

			if (s < 0 || s >= TRAIN || seen[s]++)
				once = false;
			moved = moved || s != order[i];
		}
	}
	ok(once, "no sample comes twice in an epoch; contents are right");
	ok(moved, "epochs differ");
	collect(8, 3, 0, 1, 3 * PER_EPOCH, again);
	ok(memcmp(order, again, sizeof(order)) != 0, "seeds differ");

	memset(again, -1, sizeof(again));
	for (int k = 0; k < 3; k++)
		collect(7, 2 + k, k, 3, 3 * PER_EPOCH, again);
	ok(memcmp(order, again, sizeof(order)) == 0, "three loaders with stride 3: the same order");

	for (int from = 1; from < 3 * PER_EPOCH; from += 5) {
		memset(again, -1, sizeof(again));
		collect(7, 4, from, 1, 3 * PER_EPOCH, again);
		if (memcmp(order + from * BATCH, again + from * BATCH,
			   sizeof(order) - (size_t)from * BATCH * sizeof(int)) != 0)
			diag("from %d", from);
		else
			again[0] = 0;
		if (!ok(again[0] == 0, "resumed at minibatch %d: the same order", from))
			return;
	}
}

static void test_evaluate(void)
{
	struct pd_loader *loader = open_loader(7, 2);
	int64_t count = pd_loader_tests(&test, BATCH);
	int next = 0;
	bool in_order = true, padded = false;

	is_int(pd_loader_epoch(&train, BATCH, 1), 12, "microbatches of an epoch");
	is_int(count, 6, "minibatches of the test set");
	/* Two batches fill the slots first, so that a partial batch is not zero by chance. */
	pd_loader_plan(loader, false, 0, 1, 2);
	for (int i = 0; i < 2; i++)
		pd_loader_release(loader, take(loader));
	pd_loader_plan(loader, true, 0, 1, count);
	for (int64_t m = 0; m < count; m++) {
		struct pd_batch *batch = take(loader);
		int64_t left = TEST - m * BATCH;

		in_order = in_order && batch->evaluate && batch->microbatch == m &&
			   batch->valid == (left < BATCH ? left : BATCH);
		for (int i = 0; i < batch->valid; i++)
			in_order = in_order && sample_at(batch, i) == next++;
		if (batch->valid < BATCH) {
			const char *bytes = batch->buffers[0];

			padded = true;
			for (size_t i = (size_t)batch->valid * CHANNELS * PLANE * 4;
			     i < batch->bytes[0]; i++)
				padded = padded && bytes[i] == 0;
			for (int64_t i = batch->valid; i < BATCH; i++)
				padded = padded && ((int32_t *)batch->buffers[1])[i] == 0;
		}
		pd_loader_release(loader, batch);
	}
	ok(in_order && next == TEST, "the test set in its order");
	ok(padded, "its last batch is filled up with zeros");
	pd_loader_close(loader);
}

static void test_ahead(void)
{
	struct pd_loader *loader = open_loader(7, 3);
	struct pd_batch *out[3], *next;

	pd_loader_plan(loader, false, 0, 1, 100);
	for (int i = 0; i < 3; i++)
		out[i] = pd_loader_next(loader);
	ok(out[0] && out[1] && out[2] && !pd_loader_next(loader), "NULL when `ahead` are out");
	pd_event_wait(&out[1]->ready, &gate);
	pd_loader_release(loader, out[1]);
	next = pd_loader_next(loader);
	ok(next && next->microbatch == 3 && !pd_loader_next(loader),
	   "released out of order: its buffers serve the next");
	for (int i = 0; i < 3; i++) {
		struct pd_batch *batch = i == 1 ? next : out[i];

		pd_event_wait(&batch->ready, &gate);
		pd_loader_release(loader, batch);
	}

	/* After a new plan while the thread is at work, no batch of the old plan may come. */
	bool fresh = true;
	for (int i = 0; i < 300; i++) {
		struct pd_batch *batch;

		pd_loader_plan(loader, i % 3 == 0, i % 3 == 0 ? 0 : i, 1, i % 3 == 0 ? 6 : i + 9);
		if (i % 7 == 0)
			usleep(50);
		batch = take(loader);
		fresh = fresh && batch->evaluate == (i % 3 == 0) &&
			batch->microbatch == (i % 3 == 0 ? 0 : i);
		for (int k = 0; k < BATCH; k++)
			fresh = fresh && sample_at(batch, k) >= 0 &&
				(i % 3 != 0 || sample_at(batch, k) == k);
		pd_loader_release(loader, batch);
	}
	ok(fresh, "300 new plans, each obeyed at once");
	pd_loader_plan(loader, false, 0, 1, 100);
	pd_loader_next(loader);
	pd_loader_close(loader);
	ok(true, "closed while a minibatch is out and others are being made");
}

/* Tests a plan that comes while the thread is in the middle of a large minibatch. */
static void test_interrupted(void)
{
	enum { SIDE = 128, LARGE = 3 * SIDE * SIDE };
	const struct pd_model *model = small_model(&store, 3, SIDE, SIDE, 10);
	struct pd_dataset set;
	struct pd_loader_config config = {
		.model = model, .train = &set, .batch_size = BATCH,
		.seed = 9, .input_count = 2, .inputs = both, .ahead = 2, .gate = &gate,
	};
	float *expected = malloc(LARGE * sizeof(*expected));
	struct pd_loader *loader;
	bool right = true;

	/* The set has no whole number of minibatches, so that they are made when they are asked for. */
	pd_dataset_synthetic(model, 1001, 9, &set);
	loader = pd_loader_open(&config, NULL);
	for (int i = 0; i < 20; i++) {
		struct pd_batch *batch;

		pd_loader_plan(loader, false, 100, 1, 200);
		usleep(200);
		pd_loader_plan(loader, false, i, 1, 200);
		batch = take(loader);
		for (int k = 0; k < BATCH; k++) {
			pd_synthetic_f32(9, 0, i * BATCH + k, LARGE, expected);
			right = right && memcmp((float *)batch->buffers[0] + k * LARGE, expected,
						LARGE * sizeof(*expected)) == 0;
		}
		pd_loader_release(loader, batch);
	}
	ok(right, "new plans in the middle of a minibatch: the new one is whole");
	free(expected);
	pd_loader_close(loader);
	pd_dataset_release(&set);
}

/* Tests that samples in 16 bits are the same with pixels rounded to nearest, and labels as they are. */
static void test_rounded(enum pd_dtype dtype, uint16_t (*round)(float x))
{
	struct pd_loader *plain = open_loader(3, 2), *rounded;
	int wrong = 0, changed = 0;

	loader_dtype = dtype;
	rounded = open_loader(3, 2);
	loader_dtype = PD_F32;
	pd_loader_plan(plain, false, 0, 1, PER_EPOCH);
	pd_loader_plan(rounded, false, 0, 1, PER_EPOCH);
	for (int m = 0; m < PER_EPOCH; m++) {
		struct pd_batch *a = take(plain), *b = take(rounded);
		const float *from = a->buffers[0];
		const uint16_t *to = b->buffers[0];

		wrong += b->bytes[0] * 2 != a->bytes[0] || b->bytes[1] != a->bytes[1];
		wrong += memcmp(a->buffers[1], b->buffers[1], a->bytes[1]) != 0;
		for (int e = 0; e < BATCH * CHANNELS * PLANE; e++) {
			wrong += to[e] != round(from[e]);
			changed += round(from[e]) != pd_float_bits(from[e]) >> 16;
		}
		pd_loader_release(plain, a);
		pd_loader_release(rounded, b);
	}
	is_int(wrong, 0, "%s: pixels are rounded to nearest, labels are not", pd_dtype_name[dtype]);
	ok(changed > 0, "%s: which is another thing than to cut off", pd_dtype_name[dtype]);
	pd_loader_close(plain);
	pd_loader_close(rounded);
}

/* ---- images changed at random ---- */

#define CROP 2
#define SIDES (2 * CROP + 1)

/* Every pixel of these sets has a number of its own. */
static void number_pixels(const struct pd_dataset *set)
{
	struct pd_images *images = set->state;

	for (int64_t i = 0; i < set->samples * CHANNELS * PLANE; i++)
		images->pixels[i] = (uint8_t)(1 + i % (CHANNELS * PLANE) + i / (CHANNELS * PLANE) * 4);
}

/* Tells whether the image is that of a sample, moved down and to the right, and perhaps mirrored. */
static bool is_moved(const float *image, int s, int down, int right, bool flip)
{
	const struct pd_images *images = train.state;

	for (int e = 0; e < CHANNELS * PLANE; e++) {
		int c = e / PLANE, y = e % PLANE / 3 - down, x = e % 3;
		uint8_t pixel = 0;

		x = (flip ? 2 - x : x) - right;
		if (y >= 0 && y < 2 && x >= 0 && x < 3)
			pixel = images->pixels[s * CHANNELS * PLANE + c * PLANE + y * 3 + x];
		if (image[e] != images->table[c][pixel])
			return false;
	}
	return true;
}

/* Returns in which way a sample was changed, from 0, that can be told from the others; -1: in none. */
static int way_of(const float *image, int s, const struct pd_augment *how)
{
	for (int w = 0; w < SIDES * SIDES * 2; w++) {
		int down = w / 2 % SIDES - CROP, right = w / 2 / SIDES - CROP;

		if ((how->crop == 0 && (down || right)) || (!how->flip && w % 2))
			continue;
		if (is_moved(image, s, down, right, w % 2))
			return w;
	}
	return -1;
}

/* The samples of minibatches first, first + stride ... in the order of an epoch, as the loader changes them. */
static int collect_ways(uint64_t seed, int64_t first, int64_t stride, int64_t last, int *ways)
{
	struct pd_loader *loader = open_loader(seed, 3);
	static uint32_t order[TRAIN];
	int wrong = 0;

	pd_loader_plan(loader, false, first, stride, last);
	for (int64_t m = first; m < last; m += stride) {
		struct pd_batch *batch = take(loader);

		pd_order_shuffle(seed, m / PER_EPOCH, TRAIN, order);
		for (int i = 0; i < BATCH; i++) {
			int s = (int)order[m % PER_EPOCH * BATCH + i];
			const float *image = (const float *)batch->buffers[0] + i * CHANNELS * PLANE;

			ways[m * BATCH + i] = way_of(image, s, &loader_augment);
			wrong += ways[m * BATCH + i] < 0 ||
				 ((const int32_t *)batch->buffers[1])[i] != s % 10;
		}
		pd_loader_release(loader, batch);
	}
	pd_loader_close(loader);
	return wrong;
}

static void test_augmented(void)
{
	enum { EPOCHS = 40, COUNT = EPOCHS * PER_EPOCH * BATCH };
	static int ways[COUNT], again[COUNT];
	int seen[SIDES * SIDES * 2] = { 0 }, missing = 0;
	struct pd_loader *loader;
	struct pd_batch *batch;
	bool plain = true;

	number_pixels(&train);
	number_pixels(&test);
	loader_augment = (struct pd_augment){ .crop = CROP, .flip = true };
	is_int(collect_ways(7, 0, 1, EPOCHS * PER_EPOCH, ways), 0, "each image is its sample, moved or mirrored");
	for (int i = 0; i < COUNT; i++)
		seen[ways[i]]++;
	for (int w = 0; w < SIDES * SIDES * 2; w++)     /* what is moved out of sight is black, whichever way */
		missing += seen[w] == 0 && abs(w / 2 % SIDES - CROP) < 2;
	is_int(missing, 0, "in every way that can be told");
	for (int k = 0; k < 3; k++)
		collect_ways(7, k, 3, EPOCHS * PER_EPOCH, again);
	ok(memcmp(ways, again, sizeof(ways)) == 0, "three loaders with stride 3: the same images");
	memset(again, 0, sizeof(again));
	collect_ways(7, 100, 1, EPOCHS * PER_EPOCH, again);
	ok(memcmp(ways + 100 * BATCH, again + 100 * BATCH, sizeof(ways) - 100 * BATCH * sizeof(int)) == 0,
	   "resumed: the same images");
	collect_ways(8, 0, 1, EPOCHS * PER_EPOCH, again);
	ok(memcmp(ways, again, sizeof(ways)) != 0, "seeds differ");
	loader = open_loader(7, 2);
	pd_loader_plan(loader, true, 0, 1, 1);
	batch = take(loader);
	for (int i = 0; i < BATCH * CHANNELS * PLANE; i++)
		plain &= ((float *)batch->buffers[0])[i] ==
			 ((struct pd_images *)test.state)->table[i / PLANE % CHANNELS]
			 [((struct pd_images *)test.state)->pixels[i]];
	ok(plain, "what is evaluated stays as it is");
	pd_loader_release(loader, batch);
	pd_loader_close(loader);
	loader_augment = (struct pd_augment){ .flip = true };
	is_int(collect_ways(7, 0, 1, EPOCHS * PER_EPOCH, ways), 0, "only mirrored");
	loader_augment = (struct pd_augment){ .crop = CROP };
	is_int(collect_ways(7, 0, 1, EPOCHS * PER_EPOCH, ways), 0, "only moved");
	loader_augment = (struct pd_augment){ 0 };
}

/* Tests two rounds of three lanes through eleven samples. */
static void test_lanes(void)
{
	static const int64_t expected[] = { 0, 3, 6, 1, 4, 7, 2, 5, 8, 0, 3, 6, 1, 4, 7, 2, 5, 8 };
	bool right = true;

	for (int64_t n = 0; n < (int64_t)PD_COUNT(expected); n++)
		right &= pd_order_lane(3, 11, n) == expected[n];
	ok(right, "lanes read samples that follow one another");
}

static void test_synthetic(void)
{
	struct pd_dataset saved = train;
	struct pd_loader *loader;
	bool right = true;
	double sum = 0;
	int count = 0, labels[10] = { 0 };

	pd_dataset_synthetic(small_model(&store, CHANNELS, 2, 3, 10), 10, 5, &train);
	loader = open_loader(5, 2);
	pd_loader_plan(loader, false, 0, 1, 50);
	for (int m = 0; m < 50; m++) {
		struct pd_batch *batch = take(loader);
		float *values = batch->buffers[0];

		for (int i = 0; i < BATCH; i++) {
			uint32_t sample = (uint32_t)((m * BATCH + i) % 10);
			uint32_t draw = pd_random(5, PD_RNG_DATA + 1, sample, 0).v[0];

			for (uint32_t e = 0; e < CHANNELS * PLANE; e++, values++, count++) {
				struct pd_random4 r = pd_random(5, PD_RNG_DATA, sample, e / 4);

				right = right && *values == 2 * pd_unit(r.v[e % 4]) - 1;
				sum += *values;
			}
			right = right && ((int32_t *)batch->buffers[1])[i] ==
					 (int32_t)((uint64_t)draw * 10 >> 32);
		}
		pd_loader_release(loader, batch);
	}
	ok(right, "synthetic data: the numbers that the header promises, modulo the samples");
	ok(fabs(sum / count) < 0.2, "their mean is near zero (%g)", sum / count);
	pd_loader_close(loader);
	pd_dataset_release(&train);
	train = saved;
	for (int64_t s = 0; s < 1000; s++) {
		int32_t label;

		pd_synthetic_i32(5, 1, s, 1, 0, 10, &label);
		if (label < 0 || label > 9)
			labels[0] = -1000;
		else
			labels[label]++;
	}
	right = true;
	for (int i = 0; i < 10; i++)
		right = right && labels[i] > 60 && labels[i] < 140;
	ok(right, "synthetic labels: each class about as often");
}

/* Tests that five synthetic minibatches are made once and handed out repeatedly, several at a time. */
static void test_made(void)
{
	const struct pd_model *model = small_model(&store, CHANNELS, 2, 3, 10);
	struct pd_dataset set;
	struct pd_loader_config config = {
		.model = model, .train = &set,
		.batch_size = BATCH, .seed = 5, .input_count = 2, .inputs = both, .ahead = 7,
		.gate = &gate,
	};
	struct pd_loader *loader;
	const void *first[5];
	bool right = true, again = true;
	float expected[CHANNELS * PLANE];

	pd_dataset_synthetic(model, 5 * BATCH, 5, &set);
	loader = pd_loader_open(&config, NULL);
	pd_loader_plan(loader, false, 3, 1, 60);
	for (int m = 3; m < 60; m += 6) {
		struct pd_batch *out[6];

		for (int i = 0; i < 6 && m + i < 60; i++)
			out[i] = take(loader);
		for (int i = 0; i < 6 && m + i < 60; i++) {
			int n = (m + i) % 5;
			int32_t label;

			if (m + i < 8)
				first[n] = out[i]->buffers[0];
			again = again && out[i]->buffers[0] == first[n];
			for (int k = 0; k < BATCH; k++) {
				pd_synthetic_f32(5, 0, n * BATCH + k, CHANNELS * PLANE, expected);
				pd_synthetic_i32(5, 1, n * BATCH + k, 1, 0, 10, &label);
				right = right && out[i]->microbatch == m + i &&
					label == ((int32_t *)out[i]->buffers[1])[k] &&
					memcmp((float *)out[i]->buffers[0] + k * CHANNELS * PLANE,
					       expected, sizeof(expected)) == 0;
			}
			pd_loader_release(loader, out[i]);
		}
	}
	ok(right, "synthetic minibatches, begun in the middle: the same numbers");
	ok(again, "and the same memory, which nobody fills again");
	pd_loader_close(loader);
	pd_dataset_release(&set);
}

/* Tests labels of minibatches of 201 MB in f32: they repeat themselves as their inputs would. */
static void test_large(void)
{
	static const int labels[] = { 1 };
	const struct pd_model *model = small_model(&store, 3, 2048, 2048, 10);
	struct pd_dataset set;
	struct pd_loader_config config = {
		.model = model, .train = &set,
		.batch_size = BATCH, .seed = 5, .input_count = 1, .inputs = labels, .ahead = 2,
		.gate = &gate,
	};
	struct pd_loader *loader;
	bool right = true;

	pd_dataset_synthetic(model, 10 * BATCH, 5, &set);
	loader = pd_loader_open(&config, NULL);
	pd_loader_plan(loader, false, 0, 1, 20);
	for (int m = 0; m < 20; m++) {
		struct pd_batch *batch = take(loader);
		int32_t label;

		for (int k = 0; k < BATCH; k++) {
			pd_synthetic_i32(5, 1, m % 2 * BATCH + k, 1, 0, 10, &label);
			right = right && label == ((int32_t *)batch->buffers[0])[k];
		}
		pd_loader_release(loader, batch);
	}
	ok(right, "large minibatches: as many as PD_SYNTHETIC_BYTES hold, then the same again");
	pd_loader_close(loader);
	pd_dataset_release(&set);
}

/* Tests that each of the 24 permutations of four comes about 500 times in 12000 epochs (+- 5 sigma). */
static void test_unbiased(void)
{
	int count[256] = { 0 }, kinds = 0;
	bool even = true;

	for (int64_t epoch = 0; epoch < 12000; epoch++) {
		uint32_t order[4];

		pd_order_shuffle(3, epoch, 4, order);
		count[order[0] << 6 | order[1] << 4 | order[2] << 2 | order[3]]++;
	}
	for (int i = 0; i < 256; i++)
		if (count[i]) {
			kinds++;
			even = even && abs(count[i] - 500) < 110;
		}
	ok(kinds == 24 && even, "the shuffle is even");
}

static void test_refused(void)
{
	struct pd_loader_config config = {
		.model = small_model(&store, CHANNELS, 2, 3, 10), .train = &train, .batch_size = 51,
		.input_count = 2, .inputs = both, .ahead = 2, .gate = &gate,
	};
	struct pd_error err = { 0 };

	ok(!pd_loader_open(&config, &err) && err.status == PD_EXIT_USAGE &&
	   strstr(err.text, "only 50 samples"), "a batch larger than the training set");
}

int main(void)
{
	make_set(&train, TRAIN);
	make_set(&test, TEST);
	pd_gate_init(&gate, NULL);
	test_epochs();
	test_evaluate();
	test_ahead();
	test_interrupted();
	test_rounded(PD_BF16, pd_to_bf16);
	test_rounded(PD_F16, pd_to_f16);
	test_lanes();
	test_synthetic();
	test_made();
	test_large();
	test_unbiased();
	test_refused();
	test_augmented();
	pd_gate_release(&gate);
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	return done_testing();
}
