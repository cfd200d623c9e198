/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/images.h"

#include "engine/data/order.h"
#include "scratch.h"
#include "small_model.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define HEIGHT 4
#define WIDTH 5
#define TRAIN 7
#define TEST 3
#define RECORD 3073

static struct small_model store;

static uint8_t pixel(int set, int i)
{
	return (uint8_t)(i * 37 + set * 11);
}

static void big_endian(uint8_t *out, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		out[i] = (uint8_t)(v >> (24 - 8 * i));
}

static size_t idx_images(int set, uint32_t count, uint8_t *out)
{
	big_endian(out, 0x803);
	big_endian(out + 4, count);
	big_endian(out + 8, HEIGHT);
	big_endian(out + 12, WIDTH);
	for (uint32_t i = 0; i < count * HEIGHT * WIDTH; i++)
		out[16 + i] = pixel(set, (int)i);
	return 16 + count * HEIGHT * WIDTH;
}

static size_t idx_labels(uint32_t count, uint8_t *out)
{
	big_endian(out, 0x801);
	big_endian(out + 4, count);
	for (uint32_t i = 0; i < count; i++)
		out[8 + i] = (uint8_t)(i % 10);
	return 8 + count;
}

static void put(const char *path, const uint8_t *bytes, size_t count, bool gzip)
{
	if (gzip) {
		gzFile out = gzopen(path, "wb");

		gzwrite(out, bytes, (unsigned int)count);
		gzclose(out);
	} else {
		scratch_write(path, bytes, count);
	}
}

/* Writes the four files; gzip is a set of bits for images, labels, test images and test labels. */
static void put_idx(const char *folder, int gzip)
{
	uint8_t bytes[512];

	mkdir(scratch_path("%s", folder), 0777);
	put(scratch_path("%s/train-images-idx3-ubyte%s", folder, gzip & 1 ? ".gz" : ""), bytes,
	    idx_images(0, TRAIN, bytes), gzip & 1);
	put(scratch_path("%s/train-labels-idx1-ubyte%s", folder, gzip & 2 ? ".gz" : ""), bytes,
	    idx_labels(TRAIN, bytes), gzip & 2);
	put(scratch_path("%s/t10k-images-idx3-ubyte%s", folder, gzip & 4 ? ".gz" : ""), bytes,
	    idx_images(1, TEST, bytes), gzip & 4);
	put(scratch_path("%s/t10k-labels-idx1-ubyte%s", folder, gzip & 8 ? ".gz" : ""), bytes,
	    idx_labels(TEST, bytes), gzip & 8);
}

static bool idx_right(const struct pd_dataset *train, const struct pd_dataset *test)
{
	const struct pd_images *a = train->state, *b = test->state;
	bool right = train->samples == TRAIN && test->samples == TEST && a->channels == 1 &&
		     a->height == HEIGHT && a->width == WIDTH && a->classes == 10;

	for (int i = 0; right && i < TRAIN * HEIGHT * WIDTH; i++)
		right = a->pixels[i] == pixel(0, i);
	for (int i = 0; right && i < TEST * HEIGHT * WIDTH; i++)
		right = b->pixels[i] == pixel(1, i);
	for (int i = 0; right && i < TRAIN; i++)
		right = a->labels[i] == i;
	for (int i = 0; right && i < TEST; i++)
		right = b->labels[i] == i;
	return right;
}

/* Tells whether each sample is read as a loader reads it: scaled, with the label as it is. */
static bool idx_reads(const struct pd_dataset *set, int number)
{
	const struct pd_images *images = set->state;
	float values[HEIGHT * WIDTH];
	bool right = true;
	int32_t label;

	for (int s = 0; s < (number ? TEST : TRAIN); s++) {
		set->format->read(set, 0, s, values);
		set->format->read(set, 1, s, &label);
		right = right && label == s;
		for (int i = 0; i < HEIGHT * WIDTH; i++) {
			float plain = (float)pixel(number, s * HEIGHT * WIDTH + i) / 255.0f;

			right = right && values[i] == (plain - images->mean[0]) /
						      images->deviation[0];
		}
	}
	return right;
}

static void test_idx(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	struct pd_dataset train, test;
	struct pd_error err = { 0 };
	double mean = 0, variance = 0;

	for (int gzip = 0; gzip < 16; gzip += 5) {
		char folder[32];

		snprintf(folder, sizeof(folder), "idx%d", gzip);
		put_idx(folder, gzip);
		if (!ok(pd_dataset_open(scratch_path("%s", folder), model, &train, &test,
					&err) == 0 &&
			idx_right(&train, &test), "IDX files, gzip %d: every byte", gzip)) {
			diag("%s", err.text);
			continue;
		}
		ok(idx_reads(&train, 0) && idx_reads(&test, 1), "read: scaled, and labels");
		if (gzip == 15) {
			const struct pd_images *a = train.state, *b = test.state;

			for (int i = 0; i < TRAIN * HEIGHT * WIDTH; i++)
				mean += pixel(0, i) / 255.0 / (TRAIN * HEIGHT * WIDTH);
			for (int i = 0; i < TRAIN * HEIGHT * WIDTH; i++)
				variance += pow(pixel(0, i) / 255.0 - mean, 2) /
					    (TRAIN * HEIGHT * WIDTH);
			ok(fabs(a->mean[0] - mean) < 1e-6 &&
			   fabs(a->deviation[0] - sqrt(variance)) < 1e-6, "mean and deviation");
			ok(b->mean[0] == a->mean[0] && b->deviation[0] == a->deviation[0],
			   "a test set has its training set's");
		}
		pd_dataset_release(&train);
		pd_dataset_release(&test);
	}
}

static void test_idx_refused(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	static const struct {
		const char *file;
		int offset;
		uint32_t value;
		const char *says;
	} cases[] = {
		{ "train-images-idx3-ubyte", 0, 0x801, "begins with 0x00000801" },
		{ "train-images-idx3-ubyte", 0, 0x903, "begins with 0x00000903" },
		{ "train-images-idx3-ubyte", 4, 0, "found none" },
		{ "train-images-idx3-ubyte", 4, TRAIN + 1, "truncated" },
		{ "train-images-idx3-ubyte", 4, TRAIN - 1, "found more bytes" },
		{ "train-images-idx3-ubyte", 4, UINT32_MAX, "truncated" },
		{ "train-images-idx3-ubyte", 8, HEIGHT + 1, "images of 1x5x5: expected 1x4x5" },
		{ "train-images-idx3-ubyte", 12, UINT32_MAX, "expected 1x4x5" },
		{ "train-labels-idx1-ubyte", 0, 0x803, "begins with 0x00000803" },
		{ "train-labels-idx1-ubyte", 4, TRAIN - 1, "6 labels: expected 7" },
		{ "train-labels-idx1-ubyte", 8, 0x000A0000, "label 10 of sample 1" },
		{ "t10k-images-idx3-ubyte", 4, TEST + 5, "truncated" },
		{ "t10k-labels-idx1-ubyte", 4, TEST + 5, "8 labels: expected 3" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t *bytes;
		size_t count;

		put_idx("bad", 0);
		bytes = scratch_read(scratch_path("bad/%s", cases[i].file), &count);
		big_endian(bytes + cases[i].offset, cases[i].value);
		scratch_write(scratch_path("bad/%s", cases[i].file), bytes, count);
		free(bytes);
		ok(refuses("bad", model, cases[i].file, cases[i].says), "%s: %s", cases[i].file,
		   cases[i].says);
	}
	put_idx("bad", 0);
	unlink(scratch_path("bad/t10k-labels-idx1-ubyte"));
	ok(refuses("bad", model, "t10k-labels-idx1-ubyte", "No such file"), "a file is missing");
	mkdir(scratch_path("bad/t10k-labels-idx1-ubyte"), 0777);
	ok(refuses("bad", model, "t10k-labels-idx1-ubyte", "expected a file"),
	   "a directory instead");
	mkdir(scratch_path("empty"), 0777);
	ok(refuses("empty", model, "empty", "no data set found"), "an empty directory");
	ok(refuses("missing", model, "missing", "cannot open"), "a missing directory");
	scratch_write(scratch_path("file"), "x", 1);
	ok(refuses("file", model, "file", "expected a directory"), "a file instead of a directory");
}

static void test_models(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	struct pd_dataset train, test;
	struct pd_error err = { 0 };

	put_idx("models", 0);
	store.inputs[0].shape = (struct pd_shape){ .dims = 1, .size = { HEIGHT * WIDTH } };
	ok(pd_dataset_open(scratch_path("models"), model, &train, &test, &err) == 0,
	   "a model that takes the image flat");
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	model = small_model(&store, 3, HEIGHT, WIDTH, 10);
	ok(refuses("models", model, "train-images-idx3-ubyte", "expected 3x4x5"), "channels");
	model = small_model(&store, 1, HEIGHT, WIDTH, 4);
	ok(refuses("models", model, "train-labels-idx1-ubyte",
		   "label 4 of sample 4: expected one below 4"),
	   "fewer classes than labels");
	model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	store.model.input_count = 1;
	ok(refuses("models", model, "models", "expected a model whose inputs"),
	   "a model without labels");
}

/* Tests that every proper prefix of every file is refused. */
static void test_truncated(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	static const char *const names[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
					     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };

	for (int i = 0; i < 8; i++) {
		bool gzip = i & 4, all = true;
		const char *suffix = gzip ? ".gz" : "";
		char folder[32];
		uint8_t *bytes;
		size_t count;

		snprintf(folder, sizeof(folder), "cut%d", i);
		put_idx(folder, gzip ? 15 : 0);
		bytes = scratch_read(scratch_path("%s/%s%s", folder, names[i & 3], suffix), &count);
		for (size_t n = 0; n < count; n++) {
			scratch_write(scratch_path("%s/%s%s", folder, names[i & 3], suffix), bytes,
				      n);
			if (!refuses(folder, model, names[i & 3], "")) {
				diag("%s%s: the first %zu bytes of %zu", names[i & 3], suffix, n,
				     count);
				all = false;
			}
		}
		ok(all, "%s%s: no prefix is taken for the whole", names[i & 3], suffix);
		free(bytes);
	}
}

/* Tests that files with random bytes changed are refused in one sentence, or their data are the same. */
static void test_corrupt(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	static const char *const names[] = { "train-images-idx3-ubyte.gz",
					     "train-labels-idx1-ubyte.gz",
					     "t10k-images-idx3-ubyte.gz",
					     "t10k-labels-idx1-ubyte.gz" };
	int refusals = 0;
	bool all = true;

	srand(1);
	for (int i = 0; i < 100; i++) {
		struct pd_dataset train = { 0 }, test = { 0 };
		struct pd_error err = { 0 };
		const char *name = names[rand() % 4];
		uint8_t *bytes;
		size_t count, at;

		put_idx("corrupt", 15);
		bytes = scratch_read(scratch_path("corrupt/%s", name), &count);
		at = (size_t)rand() % count;
		bytes[at] ^= (uint8_t)(1 + rand() % 255);
		scratch_write(scratch_path("corrupt/%s", name), bytes, count);
		free(bytes);
		if (pd_dataset_open(scratch_path("corrupt"), model, &train, &test, &err) == 0) {
			all = all && idx_right(&train, &test);
		} else {
			refusals++;
			/* A file that no longer looks like gzip is read without decompression. */
			all = all && one_sentence(&err, PD_EXIT_USAGE, scratch(), "-ubyte") &&
				!strstr(err.text, "<fd:");
		}
		pd_dataset_release(&train);
		pd_dataset_release(&test);
	}
	ok(all, "100 corrupted gzip files: refused, or the data are the same");
	ok(refusals > 50, "most are refused (%d)", refusals);
}

static uint8_t cifar_pixel(int sample, int p)
{
	return (uint8_t)(sample * 3 + p / 1024 * 50 + p % 1024 % 7);
}

static void put_cifar(const char *folder, const int *counts)
{
	static uint8_t bytes[4 * RECORD];
	int sample = 0;

	mkdir(scratch_path("%s", folder), 0777);
	for (int f = 0; f < 6; f++) {
		for (int i = 0; i < counts[f]; i++, sample++) {
			bytes[i * RECORD] = (uint8_t)(sample % 10);
			for (int p = 0; p < 3072; p++)
				bytes[i * RECORD + 1 + p] = cifar_pixel(sample, p);
		}
		if (f < 5)
			scratch_write(scratch_path("%s/data_batch_%d.bin", folder, f + 1), bytes,
				      (size_t)counts[f] * RECORD);
		else
			scratch_write(scratch_path("%s/test_batch.bin", folder), bytes,
				      (size_t)counts[f] * RECORD);
	}
}

static void test_cifar(void)
{
	static const int counts[] = { 2, 1, 3, 1, 4, 2 };
	const struct pd_model *model = small_model(&store, 3, 32, 32, 10);
	struct pd_dataset train, test;
	struct pd_error err = { 0 };
	const struct pd_images *a, *b;
	bool right = true, all = true;
	uint8_t *bytes;
	size_t count;

	put_cifar("cifar", counts);
	if (!ok(pd_dataset_open(scratch_path("cifar"), model, &train, &test, &err) == 0 &&
		train.samples == 11 && test.samples == 2, "CIFAR-10 files")) {
		diag("%s", err.text);
		return;
	}
	a = train.state;
	b = test.state;
	for (int64_t s = 0; s < 13; s++) {
		const struct pd_images *set = s < 11 ? a : b;
		int64_t n = s < 11 ? s : s - 11;

		right = right && set->labels[n] == s % 10;
		for (int p = 0; p < 3072; p++)
			right = right && set->pixels[n * 3072 + p] == cifar_pixel((int)s, p);
	}
	ok(right, "CIFAR-10: every byte");
	ok(fabsf(a->mean[1] - a->mean[0] - 50 / 255.0f) < 1e-5f &&
	   fabsf(a->deviation[1] - a->deviation[0]) < 1e-5f, "statistics per channel");
	pd_dataset_release(&train);
	pd_dataset_release(&test);

	bytes = scratch_read(scratch_path("cifar/data_batch_3.bin"), &count);
	for (size_t n = 0; n < count; n += 97) {
		if (n % RECORD == 0 && n)
			continue;
		scratch_write(scratch_path("cifar/data_batch_3.bin"), bytes, n);
		all = all && refuses("cifar", model, "data_batch_3.bin",
				     n ? "truncated" : "found none");
	}
	ok(all, "CIFAR-10: truncated files are refused");
	scratch_write(scratch_path("cifar/data_batch_3.bin"), bytes, 2 * (RECORD + 1));
	ok(refuses("cifar", model, "data_batch_3.bin", "as in CIFAR-100"), "CIFAR-100's are named");
	bytes[RECORD] = 10;
	scratch_write(scratch_path("cifar/data_batch_3.bin"), bytes, count);
	ok(refuses("cifar", model, "data_batch_3.bin", "label 10 of sample 4"),
	   "a label out of range");
	free(bytes);
	unlink(scratch_path("cifar/data_batch_3.bin"));
	ok(refuses("cifar", model, "data_batch_3.bin", "No such file"), "a batch is missing");
	model = small_model(&store, 1, 28, 28, 10);
	ok(refuses("cifar", model, "data_batch_1.bin", "expected 1x28x28"), "another shape");
}

static void test_synthetic(void)
{
	const struct pd_model *model = small_model(&store, 3, 24, 16, 1000);
	float values[3 * 24 * 16], expected[3 * 24 * 16];
	int32_t label, expected_label;
	struct pd_dataset set;
	bool right = true;

	pd_dataset_synthetic(model, 4096, 7, &set);
	for (int s = 0; s < 20; s++) {
		set.format->read(&set, 0, s, values);
		set.format->read(&set, 1, s, &label);
		pd_synthetic_f32(7, 0, s, 3 * 24 * 16, expected);
		pd_synthetic_i32(7, 1, s, 1, 0, 1000, &expected_label);
		right = right && memcmp(values, expected, sizeof(values)) == 0 &&
			label == expected_label;
	}
	ok(set.synthetic && set.samples == 4096 && right, "synthetic: of the model's inputs, by seed");
	pd_dataset_release(&set);
	is_int(pd_dataset_range(model, 1).limit, 1000, "labels are below the classes of their loss");
	is_int(pd_dataset_range(model, 0).limit, INT64_C(1) << 31, "nothing limits what no loss takes");
}

/* Tests that the test set is not read if it is not asked for. */
static void test_train_alone(void)
{
	const struct pd_model *model = small_model(&store, 1, HEIGHT, WIDTH, 10);
	struct pd_dataset train;

	put_idx("alone", 0);
	unlink(scratch_path("alone/t10k-labels-idx1-ubyte"));
	ok(pd_dataset_open(scratch_path("alone"), model, &train, NULL, NULL) == 0 &&
	   train.samples == TRAIN, "a training set without its test set, where that is not asked for");
	pd_dataset_release(&train);
}

int main(void)
{
	test_idx();
	test_idx_refused();
	test_models();
	test_train_alone();
	test_truncated();
	test_corrupt();
	test_cifar();
	test_synthetic();
	return done_testing();
}
