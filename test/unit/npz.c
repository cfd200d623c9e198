/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of arrays are read as numpy.savez writes them, and nothing that one says of itself is believed. */
#include "engine/data/dataset.h"

#include "base/mem.h"
#include "scratch.h"
#include "small_model.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define SAMPLES 3
#define PIXELS 6                        /* of a sample: 1 x 2 x 3 */
#define CLASSES 10
#define MOST_BYTES 8192
#define ALL32 0xffffffff

static struct small_model store;

static const struct pd_model *model(void)
{
	return small_model(&store, 1, 2, 3, CLASSES);
}

/* ---- an archive that is being written ---- */

static uint8_t file[MOST_BYTES], directory[MOST_BYTES];
static size_t file_bytes, directory_bytes;
static int members;

static void add(uint8_t *to, size_t *at, const void *bytes, size_t count)
{
	memcpy(to + *at, bytes, count);
	*at += count;
}

static void add_number(uint8_t *to, size_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		to[(*at)++] = i < 8 ? (uint8_t)(value >> (8 * i)) : 0;
}

static void begin(void)
{
	file_bytes = directory_bytes = 0;
	members = 0;
}

struct how {
	bool deflated, wide;            /* wide: with numbers of 64 bits */
	int method, flags;              /* unless 0 */
};

static void add_entry(const char *name, const struct how *how, uint32_t crc, size_t packed, size_t bytes, size_t at)
{
	size_t *d = &directory_bytes;

	add(directory, d, "PK\1\2\55\0\55\0", 8);
	add_number(directory, d, (uint64_t)how->flags, 2);
	add_number(directory, d, how->method ? (uint64_t)how->method : how->deflated ? 8 : 0, 2);
	add_number(directory, d, 0, 4);
	add_number(directory, d, crc, 4);
	add_number(directory, d, how->wide ? ALL32 : packed, 4);
	add_number(directory, d, how->wide ? ALL32 : bytes, 4);
	add_number(directory, d, strlen(name), 2);
	add_number(directory, d, how->wide ? 28 : 0, 2);
	add_number(directory, d, 0, 2 + 2 + 2 + 4);
	add_number(directory, d, how->wide ? ALL32 : at, 4);
	add(directory, d, name, strlen(name));
	if (!how->wide)
		return;
	add_number(directory, d, 1, 2);
	add_number(directory, d, 24, 2);
	add_number(directory, d, bytes, 8);
	add_number(directory, d, packed, 8);
	add_number(directory, d, at, 8);
}

static void add_member(const char *name, const struct how *how, const uint8_t *bytes, size_t count)
{
	uint8_t packed[MOST_BYTES];
	z_stream z = { .next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (unsigned int)count, .next_out = packed,
		       .avail_out = sizeof(packed) };
	uint32_t crc = (uint32_t)crc32(0, bytes, (unsigned int)count);
	size_t at = file_bytes;

	if (how->deflated) {
		deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
		deflate(&z, Z_FINISH);
		deflateEnd(&z);
		bytes = packed;
	}
	add_entry(name, how, crc, how->deflated ? z.total_out : count, count, at);
	/* the local header says other sizes, which nobody looks at; its extra field is longer */
	add(file, &file_bytes, "PK\3\4\55\0\0\0\0\0\0\0\0\0", 14);
	add_number(file, &file_bytes, 7, 12);
	add_number(file, &file_bytes, strlen(name), 2);
	add_number(file, &file_bytes, 20, 2);
	add(file, &file_bytes, name, strlen(name));
	add(file, &file_bytes, "\1\0\20\0................", 20);
	add(file, &file_bytes, bytes, how->deflated ? z.total_out : count);
	members++;
}

static void add_array(const char *name, const struct how *how, const char *type, const char *shape,
		      const void *data, size_t bytes)
{
	uint8_t array[MOST_BYTES];
	char header[128];
	size_t at = 0;

	snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", type, shape);
	add(array, &at, "\x93NUMPY\1\0", 8);
	add_number(array, &at, strlen(header), 2);
	add(array, &at, header, strlen(header));
	add(array, &at, data, bytes);
	add_member(name, how, array, at);
}

/* Ends the archive; with numbers of 64 bits the last record says only that there are some. */
static void end(const char *name, bool wide)
{
	size_t at = file_bytes, record;

	add(file, &file_bytes, directory, directory_bytes);
	record = file_bytes;
	if (wide) {
		add(file, &file_bytes, "PK\6\6", 4);
		add_number(file, &file_bytes, 44, 8);
		add_number(file, &file_bytes, 0, 2 + 2 + 4 + 4);
		add_number(file, &file_bytes, (uint64_t)members, 8);
		add_number(file, &file_bytes, (uint64_t)members, 8);
		add_number(file, &file_bytes, directory_bytes, 8);
		add_number(file, &file_bytes, at, 8);
		add(file, &file_bytes, "PK\6\7\0\0\0\0", 8);
		add_number(file, &file_bytes, record, 8);
		add_number(file, &file_bytes, 1, 4);
	}
	add(file, &file_bytes, "PK\5\6\0\0\0\0", 8);
	add_number(file, &file_bytes, wide ? 0xffff : (uint64_t)members, 2);
	add_number(file, &file_bytes, wide ? 0xffff : (uint64_t)members, 2);
	add_number(file, &file_bytes, wide ? ALL32 : directory_bytes, 4);
	add_number(file, &file_bytes, wide ? ALL32 : at, 4);
	add_number(file, &file_bytes, 7, 2);
	add(file, &file_bytes, "comment", 7);
	scratch_write(scratch_path("%s", name), file, file_bytes);
}

/* ---- sets ---- */

static float pixel(int set, int i)
{
	return (float)(i - 7) * 0.25f + (float)set;
}

static const char *const plain_names[] = { "x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy" };

/* Adds images and labels of both sets, under these names. */
static void add_sets(const char *const names[4], const struct how *how)
{
	for (int set = 0; set < 2; set++) {
		float images[SAMPLES * PIXELS];
		uint8_t labels[SAMPLES];

		for (int i = 0; i < SAMPLES * PIXELS; i++)
			images[i] = pixel(set, i);
		for (int s = 0; s < SAMPLES; s++)
			labels[s] = (uint8_t)(s + set);
		add_array(names[2 * set], how, "<f4", "(3, 1, 2, 3)", images, sizeof(images));
		add_array(names[2 * set + 1], how, "|u1", "(3,)", labels, sizeof(labels));
	}
}

static void put(const char *name, const char *const names[4], const struct how *how)
{
	begin();
	add_sets(names, how);
	end(name, how->wide);
}

/* Tells whether both sets of a path have what add_sets() wrote; err says why it is refused. */
static bool reads(const char *path, struct pd_error *err)
{
	struct pd_dataset sets[2] = { { 0 } };
	bool right = true;

	if (pd_dataset_open(path, model(), &sets[0], &sets[1], err) < 0)
		return false;
	for (int set = 0; set < 2; set++) {
		for (int s = 0; s < SAMPLES; s++) {
			float values[PIXELS];
			int32_t label;

			sets[set].format->read(&sets[set], 0, s, values);
			sets[set].format->read(&sets[set], 1, s, &label);
			right &= label == s + set;
			for (int i = 0; i < PIXELS; i++)
				right &= values[i] == pixel(set, s * PIXELS + i);
		}
		right &= sets[set].samples == SAMPLES;
		pd_dataset_release(&sets[set]);
	}
	return right;
}

static void expect(const char *path, const char *what)
{
	struct pd_error err = { .text = "" };

	if (!ok(reads(scratch_path("%s", path), &err), "%s", what))
		diag("%s", err.text);
}

static const struct how stored = { 0 }, deflated = { .deflated = true }, wide = { .wide = true },
	both = { .deflated = true, .wide = true };

static void test_read(void)
{
	static const char *const cases[][4] = {
		{ "image_train.npy", "label_train.npy", "image_test.npy", "label_test.npy" },
		{ "train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy" },
		{ "train/data.npy", "train/targets.npy", "test/data.npy", "test/targets.npy" },
		{ "X-train.npy", "Train.Y.npy", "TEST_X.npy", "y_Test.npy" },
		{ "x.npy", "y.npy", "x_test.npy", "y_test.npy" },
	};
	static const char *const odd[] = { "pixels_train.npy", "x.npy", "pixels_test.npy", "test_x.npy" };

	put("stored.npz", plain_names, &stored);
	expect("stored.npz", "as numpy.savez writes it");
	put("deflated.npz", plain_names, &deflated);
	expect("deflated.npz", "as numpy.savez_compressed writes it");
	put("wide.npz", plain_names, &wide);
	expect("wide.npz", "with numbers of 64 bits");
	put("both.npz", plain_names, &both);
	expect("both.npz", "compressed, with numbers of 64 bits");
	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		put("named.npz", cases[i], &stored);
		expect("named.npz", cases[i][0]);
	}
	put("odd.npz", odd, &stored);
	expect("odd.npz:pixels,x", "under names that are given");
}

static void test_folder(void)
{
	static const char *const train[] = { "image.npy", "y.npy", "other.npy", "z.npy" };

	mkdir(scratch_path("folder"), 0777);
	put("folder/train.npz", train, &stored);
	begin();
	add_sets((const char *const[]){ "z.npy", "w.npy", "x.npy", "label.npy" }, &deflated);
	end("folder/test.npz", false);
	expect("folder", "a folder with an archive for each set");
}

/* Reads an array of images whose channels are the last axis, and others with axes of 1 or one axis. */
static void test_shapes(void)
{
	static const uint8_t images[] = { 1, 11, 2, 12, 3, 13, 4, 14, 5, 15, 6, 16 };
	static const float first[] = { 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16 };
	const struct pd_model *two = small_model(&store, 2, 2, 3, CLASSES);
	struct pd_dataset set;
	struct pd_error err = { .text = "" };
	float values[12];
	int32_t label = 0;

	begin();
	add_array("x.npy", &stored, "|u1", "(1, 2, 3, 2)", images, sizeof(images));
	add_array("y.npy", &stored, "|u1", "(1, 1)", "\5", 1);
	end("last.npz", false);
	if (!ok(pd_dataset_open(scratch_path("last.npz"), two, &set, NULL, &err) == 0, "channels last, labels (1, 1)"))
		diag("%s", err.text);
	set.format->read(&set, 0, 0, values);
	set.format->read(&set, 1, 0, &label);
	ok(memcmp(values, first, sizeof(first)) == 0 && label == 5, "images are read with the channels first");
	pd_dataset_release(&set);
	store.inputs[0].shape = (struct pd_shape){ .dims = 1, .size = { 12 } };
	ok(pd_dataset_open(scratch_path("last.npz"), two, &set, NULL, &err) == 0, "an input of one axis");
	set.format->read(&set, 0, 0, values);
	ok(values[0] == 1 && values[1] == 11 && values[11] == 16, "takes images as they lie");
	pd_dataset_release(&set);
}

static void test_refused(void)
{
	static const char *const none[] = { "x_train.npy", "y_train.npy", "x_val.npy", "y_val.npy" };
	static const char *const more[] = { "x.npy", "y.npy", "images.npy", "labels.npy" };
	static const char *const twice[] = { "x.npy", "x.npy", "x_test.npy", "y_test.npy" };
	static const char *const text[] = { "x.txt", "y.npy", "\1.npy", "y_test.npy" };

	put("bad.npz", none, &stored);
	ok(refuses("bad.npz", model(), "bad.npz", "has no array for the model's input \"image\": expected one called "
		   "x or images or image or data, with _test behind it, found x_train.npy, x_val.npy"),
	   "a set that is not there");
	put("bad.npz", more, &stored);
	ok(refuses("bad.npz", model(), "bad.npz", "both images.npy and x.npy could be the model's input \"image\""),
	   "names that leave open which is meant");
	ok(refuses("bad.npz:x", model(), "bad.npz:x", "expected a name for each of the model's 2 inputs"),
	   "too few names");
	ok(refuses("bad.npz:a,b", model(), "bad.npz", "expected one called a, with _train behind it"),
	   "names of nothing");
	put("bad.npz", twice, &stored);
	ok(refuses("bad.npz", model(), "bad.npz", "two members of the name x.npy"), "a name twice");
	put("bad.npz", text, &stored);
	ok(refuses("bad.npz", model(), "bad.npz", "control characters"), "a name with control characters");
	put("bad.npz", plain_names, &(struct how){ .method = 12 });
	ok(refuses("bad.npz", model(), "bad.npz", "is compressed by method 12: expected"), "other compression");
	put("bad.npz", plain_names, &(struct how){ .flags = 1 });
	ok(refuses("bad.npz", model(), "bad.npz", "is encrypted"), "encryption");
	scratch_write(scratch_path("bad.npz"), "\x93NUMPY\1\0v\0", 10);
	ok(refuses("bad.npz", model(), "bad.npz", "expected a file written by numpy.savez, found a NumPy array"),
	   "another file");
	ok(refuses("none.npz:a,b", model(), "none.npz", "cannot open: No such file"), "a file that is not there");
}

/* An array whose entry claims to be larger than what it was packed from, or its header more than there is. */
static void test_claims(void)
{
	uint8_t small[1024] = { 0 };

	begin();
	add_sets(plain_names, &stored);
	directory[24] = 200;            /* the size of a stored member */
	end("bad.npz", false);
	ok(refuses("bad.npz", model(), "bad.npz", "200 bytes cannot have been packed into"), "a size that is another");
	begin();
	add_sets(plain_names, &deflated);
	directory[27] = 127;            /* 2 GB */
	end("bad.npz", false);
	ok(refuses("bad.npz", model(), "bad.npz", "cannot have been packed into"), "2 GB in a hundred bytes");
	begin();
	add_array("x.npy", &deflated, "<f4", "(1000000, 1, 2, 3)", small, sizeof(small));
	add_array("y.npy", &stored, "|u1", "(3,)", small, 3);
	end("bad.npz", false);
	ok(refuses("bad.npz:x,y", model(), "x.npy", "truncated: expected 1000000 samples of 24 bytes"),
	   "an array that says it is larger");
}

/* Whichever byte is another, and wherever the file ends: the right numbers, or one sentence. */
static void test_damage(const char *name)
{
	size_t bytes;
	uint8_t *whole = scratch_read(scratch_path("%s", name), &bytes);
	int wrong = 0, read = 0;

	for (size_t i = 0; i < 2 * bytes; i++) {
		struct pd_error err = { .text = "" };
		size_t at = i / 2;

		whole[at] ^= i % 2 ? 0 : 0x15;
		scratch_write(scratch_path("cut.npz"), whole, i % 2 ? at : bytes);
		whole[at] ^= i % 2 ? 0 : 0x15;
		if (reads(scratch_path("cut.npz"), &err))
			read++;         /* a date, for instance */
		else if (!one_sentence(&err, PD_EXIT_USAGE, "cut.npz", "") && wrong++ < 5)
			diag("byte %zu, %s: %s", at, i % 2 ? "cut" : "changed", err.text);
	}
	is_int(wrong, 0, "%s: damage is found, or does not matter", name);
	ok(read < (int)bytes / 2, "%s: it mostly is found: %d of %zu are not", name, read, 2 * bytes);
	free(whole);
}

int main(void)
{
	test_read();
	test_folder();
	test_shapes();
	test_refused();
	test_claims();
	test_damage("stored.npz");
	test_damage("deflated.npz");
	test_damage("both.npz");
	return done_testing();
}
