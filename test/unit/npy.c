/* SPDX-License-Identifier: Apache-2.0 */
#include "run/data/npy.h"

#include "base/half.h"
#include "base/mem.h"
#include "engine/data/dataset.h"
#include "scratch.h"
#include "small_model.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES 3
#define PIXELS 6                        /* pixels of a sample: 1 x 2 x 3 */
#define CLASSES 10

static struct small_model store;

/* Writes a file of a header with this text, and the data behind it. */
static void put(const char *name, int version, const char *text, const void *data, size_t bytes)
{
	static uint8_t file[4096];
	size_t length = strlen(text), at = version == 1 ? 10 : 12;

	memcpy(file, "\x93NUMPY", 6);
	file[6] = (uint8_t)version;
	file[7] = 0;
	for (size_t i = 8; i < at; i++)
		file[i] = (uint8_t)(length >> (8 * (i - 8)));
	memcpy(file + at, text, length);
	if (bytes)
		memcpy(file + at + length, data, bytes);
	scratch_write(scratch_path("%s", name), file, at + length + bytes);
}

static const char *header(const char *type, const char *shape)
{
	static char text[256];

	snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': %s, }   \n",
		 type, shape);
	return text;
}

static float pixel(int set, int i)
{
	return (float)(i - 7) * 0.25f + (float)set;
}

/* Writes train/ and test/ with image.npy, of f32, and label.npy, of bytes. */
static void put_sets(const char *folder)
{
	mkdir(scratch_path("%s", folder), 0777);
	for (int set = 0; set < 2; set++) {
		const char *part = set ? "test" : "train";
		float image[SAMPLES * PIXELS];
		uint8_t label[SAMPLES];
		char name[64];

		mkdir(scratch_path("%s/%s", folder, part), 0777);
		for (int i = 0; i < SAMPLES * PIXELS; i++)
			image[i] = pixel(set, i);
		for (int i = 0; i < SAMPLES; i++)
			label[i] = (uint8_t)(i + set);
		snprintf(name, sizeof(name), "%s/%s/image.npy", folder, part);
		put(name, 1, header("<f4", "(3, 1, 2, 3)"), image, sizeof(image));
		snprintf(name, sizeof(name), "%s/%s/label.npy", folder, part);
		put(name, 1, header("|u1", "(3,)"), label, sizeof(label));
	}
}

static const struct pd_model *model_of_images(void)
{
	return small_model(&store, 1, 2, 3, CLASSES);
}

static void test_read(void)
{
	struct pd_dataset train, test;
	struct pd_error err = { .text = "" };
	bool right = true;

	put_sets("plain");
	if (!ok(pd_dataset_open(scratch_path("plain"), model_of_images(), &train, &test, &err) == 0,
		"two sets of an image and a label")) {
		diag("%s", err.text);
		return;
	}
	for (int set = 0; set < 2; set++)
		for (int s = 0; s < SAMPLES; s++) {
			const struct pd_dataset *from = set ? &test : &train;
			float values[PIXELS];
			int32_t label;

			from->format->read(from, 0, s, values);
			from->format->read(from, 1, s, &label);
			right = right && label == s + set && from->samples == SAMPLES;
			for (int i = 0; i < PIXELS; i++)
				right = right && values[i] == pixel(set, s * PIXELS + i);
		}
	ok(right, "every sample of both");
	pd_dataset_release(&train);
	pd_dataset_release(&test);
}

/* Tests three numbers of each type: the f32 and, for whole numbers, the i32 that they are read as. */
static void test_types(void)
{
	static const struct {
		const char *type;
		const char *bytes;
		float f32[SAMPLES];
		int32_t i32[SAMPLES];
	} cases[] = {
		{ "|b1", "\0\1\0", { 0, 1, 0 }, { 0, 1, 0 } },
		{ "|u1", "\0\1\377", { 0, 1, 255 }, { 0, 1, 255 } },
		{ "|i1", "\0\1\177", { 0, 1, 127 }, { 0, 1, 127 } },
		{ "<u2", "\1\0\0\1\377\377", { 1, 256, 65535 }, { 1, 256, 65535 } },
		{ "<i2", "\1\0\0\1\377\177", { 1, 256, 32767 }, { 1, 256, 32767 } },
		{ "<u4", "\1\0\0\0\0\0\1\0\377\377\377\177", { 1, 65536, 2147483648.0f },
		  { 1, 65536, 2147483647 } },
		{ "<i4", "\1\0\0\0\0\0\1\0\377\377\377\177", { 1, 65536, 2147483648.0f },
		  { 1, 65536, 2147483647 } },
		{ "<u8", "\1\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\377\377\377\177\0\0\0\0",
		  { 1, 65536, 2147483648.0f }, { 1, 65536, 2147483647 } },
		{ "<i8", "\1\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\377\377\377\177\0\0\0\0",
		  { 1, 65536, 2147483648.0f }, { 1, 65536, 2147483647 } },
		/* The numbers are 1.5, -2, 65504. */
		{ "<f2", "\0\76\0\300\377\173", { 1.5f, -2, 65504 } },
		{ "<f4", "\0\0\300\77\0\0\0\300\0\340\177\107", { 1.5f, -2, 65504 } },
		{ "<f8", "\0\0\0\0\0\0\370\77\0\0\0\0\0\0\0\300\0\0\0\0\0\374\357\100",
		  { 1.5f, -2, 65504 } },
	};

	for (size_t n = 0; n < PD_COUNT(cases); n++) {
		const struct pd_npy_type *type = pd_npy_type_find(cases[n].type);
		float f32[SAMPLES];
		int32_t i32[SAMPLES];
		const uint8_t *bytes = (const uint8_t *)cases[n].bytes;
		struct pd_dataset_range range = { 0, 0, -1000 };

		if (!ok(type != NULL, "%s is read", cases[n].type))
			continue;
		type->to_f32(bytes, SAMPLES, f32);
		ok(memcmp(f32, cases[n].f32, sizeof(f32)) == 0, "%s as f32", cases[n].type);
		if (type->to_i32) {
			type->to_i32(bytes, SAMPLES, i32);
			ok(memcmp(i32, cases[n].i32, sizeof(i32)) == 0, "%s as i32", cases[n].type);
			range.limit = cases[n].i32[2];
			is_int(type->find_outside(bytes, SAMPLES, &range),
			       cases[n].i32[2] == 0 ? 0 : 2, "%s: the first that is too large",
			       cases[n].type);
			range = (struct pd_dataset_range){ cases[n].i32[0] + 1, 1 << 30, -1000 };
			is_int(type->find_outside(bytes, SAMPLES, &range), 0,
			       "%s: one that is too small", cases[n].type);
		}
	}
	ok(!pd_npy_type_find("<f4 ") && !pd_npy_type_find(">f4") && !pd_npy_type_find(""),
	   "no other type");
}

static void test_headers(void)
{
	static const struct {
		int version;
		const char *text;
	} cases[] = {
		{ 1, "{'descr': '<i8', 'fortran_order': True, 'shape': (5, 7), }\n" },
		{ 2, "{'descr': '<i8', 'fortran_order': True, 'shape': (5, 7), }          \n" },
		{ 3, "{\"shape\": (5, 7), \"fortran_order\": True, \"descr\": \"<i8\"}" },
		{ 1, "{ 'shape' : ( 5 , 7 , ) , 'descr':'<i8','fortran_order':True}" },
	};

	for (size_t n = 0; n < PD_COUNT(cases); n++) {
		struct pd_error err = { .text = "" };
		struct pd_npy_header h = { .dims = -1 };
		uint8_t *bytes;
		size_t count;

		put("header.npy", cases[n].version, cases[n].text, "abc", 3);
		bytes = scratch_read(scratch_path("header.npy"), &count);
		ok(pd_npy_header_read("header.npy", bytes, (int64_t)count, &h, &err) == 0 &&
		   strcmp(h.type, "<i8") == 0 && h.fortran_order && h.dims == 2 && h.size[0] == 5 &&
		   h.size[1] == 7 && h.data_at == (int64_t)count - 3, "version %d: %s",
		   cases[n].version, cases[n].text);
		if (err.text[0])
			diag("%s", err.text);
		free(bytes);
	}
}

/* Tests wrong headers before 72 bytes, which are enough for (3, 1, 2, 3) of f32. */
static void test_header_refused(void)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 1, 2, 3), }",
		  "elements of type '>f4': expected, for the f32 input \"image\", one of |b1" },
		{ "{'descr': '<c8', 'fortran_order': False, 'shape': (3, 1, 2, 3), }",
		  "array.astype(\"float32\") makes them" },
		{ "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }",
		  "header, byte 20: expected a type of numbers, such as '<f4', found \"[\"" },
		{ "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 1, 2, 3), }",
		  "in Fortran order: expected C order, which numpy.save(file, "
		  "numpy.ascontiguousarray(array)) writes" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, 2), }",
		  "shape (3, 3, 2): expected (samples, 1, 2, 3)" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 6), }",
		  "shape (3, 6): expected (samples, 1, 2, 3)" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
		  "shape (): expected (samples, 1, 2, 3)" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1, 2, 3), }", "found none" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1, 2, 3), }",
		  "truncated: expected 4 samples of 24 bytes, found 72 bytes of them" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 2, 3), }",
		  "found 24 more bytes" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 1, 2, 3), }",
		  "4294967296 samples: expected fewer than 2^32" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }",
		  "expected a dimension below 2^63" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
		  "expected a dimension, found \"-\"" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "expected a shape" },
		{ "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }", "expected True or False" },
		{ "{'descr': '<f4', 'shape': (3, 1, 2, 3), }", "found no 'fortran_order'" },
		{ "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
		  "header, byte 27: expected each of 'descr'" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2, 3), 'x': 1}",
		  "expected each of 'descr', 'fortran_order' and 'shape' once, found \"'\"" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2, 3), } x",
		  "expected nothing behind \"}\", found \"x\"" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2, 3), ", "found its end" },
		{ "(3, 1, 2, 3)", "header, byte 10: expected \"{\", found \"(\"" },
		{ "", "header, byte 10: expected \"{\", found its end" },
	};
	static const uint8_t zeros[72];

	put_sets("bad");
	for (size_t n = 0; n < PD_COUNT(cases); n++) {
		put("bad/train/image.npy", 1, cases[n].text, zeros, sizeof(zeros));
		ok(refuses("bad", model_of_images(), "/bad/train/image.npy: ", cases[n].says),
		   "%s", cases[n].says);
	}
	put("bad/train/image.npy", 4, header("<f4", "(3, 1, 2, 3)"), zeros, sizeof(zeros));
	ok(refuses("bad", model_of_images(), "image.npy", "version 4.0 of .npy"), "version 4");
	scratch_write(scratch_path("bad/train/image.npy"), "PK\3\4 and so on", 14);
	ok(refuses("bad", model_of_images(), "image.npy", "found a zip archive"), "another file");
	scratch_write(scratch_path("bad/train/image.npy"), "Q1234567890123", 14);
	ok(refuses("bad", model_of_images(), "image.npy", "begins with 0x513132333435"), "an unknown one");
	scratch_write(scratch_path("bad/train/image.npy"), "", 0);
	ok(refuses("bad", model_of_images(), "image.npy", "found nothing in it"), "an empty file");
}

static void test_sets_refused(void)
{
	static const uint8_t many[8];

	put_sets("sets");
	put("sets/train/label.npy", 1, header("|u1", "(4,)"), many, 4);
	ok(refuses("sets", model_of_images(), "train/label.npy", "4 samples: expected 3, as many as in"),
	   "not as many labels as images");
	put("sets/train/label.npy", 1, header("|u1", "(3, 2)"), many, 6);
	ok(refuses("sets", model_of_images(), "train/label.npy", "shape (3, 2): expected (samples,)"),
	   "labels of another shape");
	put("sets/train/label.npy", 1, header("<f4", "(2,)"), many, 8);
	ok(refuses("sets", model_of_images(), "train/label.npy", "'<f4': expected, for the i32 input "
		   "\"label\", one of |b1, |u1, |i1, <u2, <i2, <u4, <i4, <u8, <i8; "
		   "array.astype(\"int32\")"), "labels that are not whole numbers");
	put("sets/train/label.npy", 1, header("<i2", "(3,)"), "\1\0\377\377\1\0", 6);
	ok(refuses("sets", model_of_images(), "train/label.npy",
		   "-1 in sample 1: expected a number from 0 to 9"), "a label below 0");
	put("sets/train/label.npy", 1, header("<u2", "(3,)"), "\1\0\1\0\377\377", 6);
	ok(refuses("sets", model_of_images(), "train/label.npy",
		   "65535 in sample 2: expected a number from 0 to 9"), "a label that is too large");
	put_sets("sets");
	put("sets/test/label.npy", 1, header("|u1", "(3,)"), "\0\12\0", 3);
	ok(refuses("sets", model_of_images(), "test/label.npy", "10 in sample 1"), "a test label");
	unlink(scratch_path("sets/test/label.npy"));
	ok(refuses("sets", model_of_images(), "test/label.npy", "No such file"), "no test labels");
	mkdir(scratch_path("sets/test/label.npy"), 0777);
	ok(refuses("sets", model_of_images(), "test/label.npy", "found a directory"), "a directory");
	rmdir(scratch_path("sets/test/label.npy"));
	mkfifo(scratch_path("sets/test/label.npy"), 0600);
	ok(refuses("sets", model_of_images(), "test/label.npy", "found a directory or device"),
	   "a pipe, which nobody waits for");
}

/* Tests that every proper prefix of a file is refused. */
static void test_truncated(void)
{
	bool all = true;
	uint8_t *bytes;
	size_t count;

	put_sets("cut");
	bytes = scratch_read(scratch_path("cut/test/image.npy"), &count);
	for (size_t n = 0; n < count; n++) {
		scratch_write(scratch_path("cut/test/image.npy"), bytes, n);
		if (!refuses("cut", model_of_images(), "cut/test/image.npy", "")) {
			diag("the first %zu bytes of %zu", n, count);
			all = false;
		}
	}
	ok(all, "no prefix is taken for the whole");
	free(bytes);
}

/* Tests that files with random bytes changed are refused in one sentence, or read as they are now. */
static void test_corrupt(void)
{
	int refusals = 0;
	bool all = true;

	srand(1);
	for (int i = 0; i < 300; i++) {
		struct pd_dataset train = { 0 }, test = { 0 };
		struct pd_error err = { .text = "" };
		const char *name = i % 2 ? "label" : "image";
		float values[PIXELS];
		uint8_t *bytes;
		size_t count;

		put_sets("corrupt");
		bytes = scratch_read(scratch_path("corrupt/train/%s.npy", name), &count);
		bytes[(size_t)rand() % count] ^= (uint8_t)(1 + rand() % 255);
		scratch_write(scratch_path("corrupt/train/%s.npy", name), bytes, count);
		free(bytes);
		if (pd_dataset_open(scratch_path("corrupt"), model_of_images(), &train, &test, &err)) {
			refusals++;
			all = all && one_sentence(&err, PD_EXIT_USAGE, "/corrupt/train/", name);
			continue;
		}
		for (int s = 0; s < SAMPLES; s++) {
			train.format->read(&train, 0, s, values);
			train.format->read(&train, 1, s, values);
		}
		pd_dataset_release(&train);
		pd_dataset_release(&test);
	}
	ok(all, "300 damaged files: refused in one sentence, or read");
	ok(refusals > 100, "many are refused (%d)", refusals);
}

/* Tests inputs of other shapes: whole numbers for each of several places, images from bytes. */
static void test_other_inputs(void)
{
	static const int64_t tokens[] = { 0, 9, 3, 4, 5, 6 };
	static const uint8_t flat[] = { 0, 1, 2, 253, 254, 255 };
	const struct pd_model *model = model_of_images();
	struct pd_dataset train;
	struct pd_error err = { .text = "" };
	float values[3];
	int32_t whole[3];

	store.inputs[0].shape = (struct pd_shape){ .dims = 1, .size = { 3 } };
	store.inputs[1].shape = (struct pd_shape){ .dims = 1, .size = { 3 } };
	mkdir(scratch_path("other"), 0777);
	mkdir(scratch_path("other/train"), 0777);
	put("other/train/image.npy", 2, header("|u1", "(2, 3)"), flat, sizeof(flat));
	put("other/train/label.npy", 3, header("<i8", "(2, 3)"), tokens, sizeof(tokens));
	if (!ok(pd_dataset_open(scratch_path("other"), model, &train, NULL, &err) == 0,
		"a number for each of three places; no test set is asked for")) {
		diag("%s", err.text);
		return;
	}
	train.format->read(&train, 0, 1, values);
	train.format->read(&train, 1, 1, whole);
	ok(values[0] == 253 && values[1] == 254 && values[2] == 255, "bytes are what they are as f32");
	ok(whole[0] == 4 && whole[1] == 5 && whole[2] == 6, "the second sample of three each");
	pd_dataset_release(&train);
	store.layers[1].index_limit = 9;
	ok(refuses("other", model, "label.npy", "9 in sample 0"), "each of them is looked at");
}

int main(void)
{
	test_read();
	test_types();
	test_headers();
	test_header_refused();
	test_sets_refused();
	test_truncated();
	test_corrupt();
	test_other_inputs();
	return done_testing();
}
