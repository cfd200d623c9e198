/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a checkpoint which is not as it was written is refused, whatever happened to it. */
#include "checkpoint/checkpoint.h"

#include "base/checksum.h"
#include "scratch.h"
#include "small_checkpoint.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP 10

static const char *const files[] = { "checkpoint.json", "stage-0.safetensors",
				     "stage-1.safetensors" };

static char directory[256], folder[300];

/* Returns a file's path in one of four buffers, which are used in turn. */
static const char *path_of(const char *file)
{
	static char buffers[4][400];
	static int next;

	next = (next + 1) % 4;
	snprintf(buffers[next], sizeof(buffers[next]), "%s/%s", folder, file);
	return buffers[next];
}

/* Tells whether the checkpoint is accepted after all data are read. */
static bool accepted(struct pd_error *err)
{
	struct pd_checkpoint *ck = pd_checkpoint_open(directory, STEP, err);
	bool sound = ck && pd_checkpoint_verify(ck, err) == 0;

	pd_checkpoint_close(ck);
	return sound;
}

/* Tells whether the checkpoint is refused in one sentence that names the file and has the words `says`. */
static bool refused(const char *file, const char *says)
{
	struct pd_error err = { 0 };

	if (accepted(&err)) {
		diag("%s: accepted, expected: %s", file, says);
		return false;
	}
	return one_sentence(&err, PD_EXIT_USAGE, file, says);
}

/* ---- bytes ---- */

static void put_byte(const char *file, size_t at, uint8_t byte)
{
	FILE *out = fopen(file, "r+b");

	if (!out || fseek(out, (long)at, SEEK_SET) != 0 || putc(byte, out) == EOF || fclose(out) != 0)
		diag("%s: cannot write", file);
}

static void test_bits(void)
{
	for (size_t f = 0; f < sizeof(files) / sizeof(*files); f++) {
		const char *file = path_of(files[f]);
		size_t count, accepted_bits = 0;
		uint8_t *bytes = scratch_read(file, &count);

		for (size_t bit = 0; bit < count * 8; bit++) {
			put_byte(file, bit / 8, (uint8_t)(bytes[bit / 8] ^ 1 << bit % 8));
			accepted_bits += !refused(folder, "");
			put_byte(file, bit / 8, bytes[bit / 8]);
		}
		is_int((int64_t)accepted_bits, 0, "%s: none of %zu flipped bits is taken", files[f],
		       count * 8);
		free(bytes);
	}
}

static void test_lengths(void)
{
	for (size_t f = 0; f < sizeof(files) / sizeof(*files); f++) {
		const char *file = path_of(files[f]);
		bool shorter = true, longer = true;
		size_t count;
		uint8_t *bytes = scratch_read(file, &count), *more = calloc(1, count + 64);

		for (size_t n = count; n-- > 0;) {
			if (truncate(file, (off_t)n) != 0)
				break;
			shorter = shorter && refused(files[f], "");
		}
		for (size_t n = 1; n <= 64; n = 2 * n + 1) {
			memcpy(more, bytes, count);
			memset(more + count, ' ', n);
			scratch_write(file, more, count + n);
			longer = longer && refused(files[f], "");
		}
		ok(shorter, "%s: truncated anywhere", files[f]);
		ok(longer, "%s: with something behind it", files[f]);
		scratch_write(file, bytes, count);
		unlink(file);
		ok(refused(files[f], "cannot open"), "%s: missing", files[f]);
		mkfifo(file, 0600);
		ok(refused(files[f], "expected a file"), "%s: a pipe is not waited for", files[f]);
		unlink(file);
		mkdir(file, 0700);
		ok(refused(files[f], "expected a file"), "%s: a directory", files[f]);
		rmdir(file);
		scratch_write(file, bytes, count);
		free(bytes);
		free(more);
	}
}

/* Tests damage to the data of every tensor, which the error names. */
static void test_data(void)
{
	for (int stage = 0; stage < SMALL_STAGES; stage++) {
		const char *file = path_of(files[1 + stage]);
		struct pd_error err = { 0 };
		struct pd_safetensors *st = pd_safetensors_open(file, &err);
		const struct pd_tensor *list;
		size_t n = pd_safetensors_list(st, &list), count;
		uint8_t *bytes = scratch_read(file, &count);
		uint64_t header;

		memcpy(&header, bytes, sizeof(header));
		for (size_t t = 0; t < n; t++) {
			uint8_t *at = bytes + 8 + header + list[t].begin_bytes + 5;
			char says[120];

			*at ^= 4;
			scratch_write(file, bytes, count);
			snprintf(says, sizeof(says), "tensor \"%s\" is damaged", list[t].name);
			ok(refused(files[1 + stage], says), "a flipped bit in %s", list[t].name);
			*at ^= 4;
		}
		scratch_write(file, bytes, count);
		free(bytes);
		pd_safetensors_close(st);
	}
}

/* ---- tensors ---- */

/* A file's header as JSON, and the bytes behind it. */
struct contents {
	json_t *header;
	uint8_t *bytes, *data;
	size_t data_bytes;
};

static struct contents read_contents(const char *file)
{
	struct contents c = { 0 };
	uint64_t length;
	size_t count;

	c.bytes = scratch_read(file, &count);
	memcpy(&length, c.bytes, sizeof(length));
	c.header = json_loadb((char *)c.bytes + 8, length, 0, NULL);
	c.data = c.bytes + 8 + length;
	c.data_bytes = count - 8 - length;
	return c;
}

static void release_contents(struct contents *c)
{
	json_decref(c->header);
	free(c->bytes);
}

/* Writes a file with another header, whose checksum is stored in *checksum_p. */
static void write_contents(const char *file, const json_t *header, const uint8_t *data,
			   size_t data_bytes, uint64_t *checksum_p)
{
	char *text = json_dumps(header, JSON_COMPACT);
	uint64_t length = (strlen(text) + 7) & ~UINT64_C(7);
	uint8_t *bytes = malloc(8 + length + data_bytes);

	memset(bytes, ' ', 8 + length);
	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, text, strlen(text));
	memcpy(bytes + 8 + length, data, data_bytes);
	scratch_write(file, bytes, 8 + length + data_bytes);
	*checksum_p = pd_checksum(0, bytes, 8 + length);
	free(bytes);
	free(text);
}

/* Writes checkpoint.json anew with a stage's checksum, as somebody would who means to deceive. */
static void adopt(int stage, uint64_t checksum)
{
	struct pd_checkpoint_info info = small_info(STEP);
	struct pd_error err = { 0 };
	char temporary[400];

	info.files[stage].checksum = checksum;
	snprintf(temporary, sizeof(temporary), "%s/.step-%012d.tmp", directory, STEP);
	rename(folder, temporary);
	if (pd_checkpoint_finish(directory, &info, 1, &err) < 0)
		diag("%s", err.text);
	json_decref(info.optimizer);
}

/*
 * Tests that a stage's file with another header and data is refused, and, if `says` is given, also if
 * checkpoint.json has the checksum of that header.
 */
static void changed(const char *what, int stage, const json_t *header, const uint8_t *data,
		    size_t data_bytes, const char *says_first, const char *says)
{
	const char *file = path_of(files[1 + stage]);
	uint64_t was, is;
	size_t count;
	uint8_t *bytes = scratch_read(file, &count);

	memcpy(&was, bytes, sizeof(was));
	was = pd_checksum(0, bytes, 8 + was);
	write_contents(file, header, data, data_bytes, &is);
	ok(refused(files[1 + stage], says_first), "%s", what);
	if (says) {
		adopt(stage, is);
		ok(refused(files[1 + stage], says), "%s, and the document says so", what);
		adopt(stage, was);
	}
	scratch_write(file, bytes, count);
	free(bytes);
}

static void swap(json_t *object, const char *a, const char *b)
{
	json_t *first = json_incref(json_object_get(object, a));

	json_object_set(object, a, json_object_get(object, b));
	json_object_set_new(object, b, first);
}

static void test_swapped(void)
{
	static const char *const pairs[][2] = {
		{ "block.0.fc.weight", "block.0.fc.weight.velocity" },
		{ "block.0.fc.weight", "block.0.fc.bias" },
		{ "block.0.fc.weight.velocity", "block.0.fc.bias.velocity" },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		struct contents c = read_contents(path_of(files[2]));
		char what[120];

		swap(c.header, pairs[i][0], pairs[i][1]);
		snprintf(what, sizeof(what), "%s and %s swapped", pairs[i][0], pairs[i][1]);
		changed(what, 1, c.header, c.data, c.data_bytes, "is damaged", "is damaged");
		/* Checksums depend on the names, so that swapping them, too, does not help. */
		char first[120], second[120];
		snprintf(first, sizeof(first), "xxh64:%s", pairs[i][0]);
		snprintf(second, sizeof(second), "xxh64:%s", pairs[i][1]);
		swap(json_object_get(c.header, "__metadata__"), first, second);
		changed(what, 1, c.header, c.data, c.data_bytes, "is damaged", "is damaged");
		release_contents(&c);
	}
}

static void test_versions_swapped(void)
{
	struct contents c = read_contents(path_of(files[1]));

	swap(c.header, "conv1.weight", "conv1.weight@9");
	changed("an older version for the newest", 0, c.header, c.data, c.data_bytes, "is damaged",
		"is damaged");
	release_contents(&c);
}

/* Tests a file without a tensor: its bytes are cut out, and its checksum goes only if checksum_too. */
static void without(int stage, const char *name, bool checksum_too)
{
	struct contents c = read_contents(path_of(files[1 + stage]));
	json_t *gone = json_object_get(json_object_get(c.header, name), "data_offsets"), *tensor;
	json_int_t begin = json_integer_value(json_array_get(gone, 0));
	json_int_t end = json_integer_value(json_array_get(gone, 1));
	char what[120], key[120];
	const char *other;

	memmove(c.data + begin, c.data + end, c.data_bytes - (size_t)end);
	json_object_del(c.header, name);
	snprintf(key, sizeof(key), "xxh64:%s", name);
	if (checksum_too)
		json_object_del(json_object_get(c.header, "__metadata__"), key);
	json_object_foreach(c.header, other, tensor) {
		json_t *offsets = json_object_get(tensor, "data_offsets"), *edge;
		size_t i;

		json_array_foreach(offsets, i, edge)
			if (json_integer_value(edge) >= end)
				json_integer_set(edge, json_integer_value(edge) - (end - begin));
	}
	snprintf(what, sizeof(what), "without %s%s", name, checksum_too ? " and its checksum" : "");
	/* Only the file names the states of a stage; its parameters must be complete in any case. */
	changed(what, stage, c.header, c.data, c.data_bytes - (size_t)(end - begin),
		checksum_too ? "its header is not the one" : "is missing",
		strchr(name, '@') || strstr(name, "velocity") ? "is missing"
		: strstr(name, "conv1") || strstr(name, "fc.weight") ||
		  strstr(name, "fc.bias") ? (checksum_too ? "without its parameter" : "is missing")
		: NULL);
	release_contents(&c);
}

static void test_missing(void)
{
	static const char *const names[SMALL_STAGES][SMALL_TENSORS] = {
		{ "conv1.weight", "conv1.weight@9", "conv1.weight.velocity", "bn1.running_mean" },
		{ "block.0.fc.weight", "block.0.fc.weight.velocity", "block.0.fc.bias",
		  "block.0.fc.bias.velocity" },
	};

	for (int s = 0; s < SMALL_STAGES; s++)
		for (int t = 0; t < SMALL_TENSORS; t++) {
			without(s, names[s][t], false);
			without(s, names[s][t], true);
		}
}

static void renamed(const char *from, const char *to, const char *says)
{
	struct contents c = read_contents(path_of(files[2]));
	char what[120];

	json_object_set(c.header, to, json_object_get(c.header, from));
	json_object_del(c.header, from);
	snprintf(what, sizeof(what), "%s renamed to %s", from, to);
	changed(what, 1, c.header, c.data, c.data_bytes, says, says);
	release_contents(&c);
}

static void added(const char *name, const char *says)
{
	struct contents c = read_contents(path_of(files[2]));
	uint8_t *data = calloc(1, c.data_bytes + 24);
	char what[120];

	memcpy(data, c.data, c.data_bytes);
	json_object_set_new(c.header, name, json_pack("{s:s, s:[i], s:[i, i]}", "dtype", "F32",
			    "shape", 6, "data_offsets", (int)c.data_bytes,
			    (int)c.data_bytes + 24));
	snprintf(what, sizeof(what), "%s added", name);
	changed(what, 1, c.header, data, c.data_bytes + 24, "has no checksum", says);
	free(data);
	release_contents(&c);
}

/* Tests another shape or type of a tensor, whose bytes stay as they are. */
static void described(const char *key, json_t *value, const char *first, const char *says)
{
	struct contents c = read_contents(path_of(files[2]));
	char what[120];

	json_object_set_new(json_object_get(c.header, "block.0.fc.weight"), key, value);
	snprintf(what, sizeof(what), "another %s", key);
	changed(what, 1, c.header, c.data, c.data_bytes, first, says);
	release_contents(&c);
}

static void metadata(const char *key, const char *value, const char *says)
{
	struct contents c = read_contents(path_of(files[2]));
	json_t *all = json_object_get(c.header, "__metadata__");
	char what[120];

	if (value)
		json_object_set_new(all, key, json_string(value));
	else
		json_object_del(all, key);
	snprintf(what, sizeof(what), "__metadata__.%s: %s", key, value ? value : "gone");
	changed(what, 1, c.header, c.data, c.data_bytes, says, NULL);
	release_contents(&c);
}

static void test_changed(void)
{
	renamed("block.0.fc.bias", "block.0.fc.bios", "is missing");
	renamed("block.0.fc.bias.velocity", "block.0.fc.bias.second", "is missing");
	added("block.0.fc.bias.second", NULL);
	added("block.1.fc.weight", "is of no layer");
	added("conv1.weight", "is of no layer");
	added("block.0.fc.gain", "none of a checkpoint's");
	added("block.0.fc.weight@3", "none of the stage's older");
	described("shape", json_pack("[i, i]", 2, 3), "is damaged", "expected the shape of");
	described("dtype", json_string("I32"), "its header is not the one", "expected type F32");
	metadata("step", "11", "__metadata__.step");
	metadata("step", NULL, "__metadata__.step");
	metadata("stage", "0", "__metadata__.stage");
	metadata("stage", NULL, "__metadata__.stage");
	metadata("format", NULL, "its header is not the one");
	metadata("author", "me", "its header is not the one");
	metadata("xxh64:block.0.fc.bias", NULL, "has no checksum");
	metadata("xxh64:block.0.fc.bias", "0123456789abcdef", "is damaged");
	metadata("xxh64:block.0.fc.bias", "0123456789ABCDEF", "has no checksum");
}

/* ---- whole files ---- */

static void copy(const char *from, const char *to)
{
	size_t count;
	uint8_t *bytes = scratch_read(from, &count);

	scratch_write(to, bytes, count);
	free(bytes);
}

/* Tests another file in the place of a checkpoint's. */
static void replaced(const char *what, const char *by, const char *file, const char *says)
{
	const char *kept = scratch_path("kept");

	copy(path_of(file), kept);
	copy(by, path_of(file));
	ok(refused(folder, says), "%s", what);
	copy(kept, path_of(file));
}

static void test_files(void)
{
	const char *other = scratch_path("other");
	struct pd_error err = { 0 };

	small_save(other, STEP - 1, 9, &err);
	small_save(other, STEP, 9, &err);
	replaced("a stage of another step", scratch_path("other/step-%012d/%s", STEP - 1, files[2]),
		 files[2], "__metadata__.step");
	replaced("another stage of the step", path_of(files[1]), files[2], "__metadata__.stage");
	replaced("the document of another step",
		 scratch_path("other/step-%012d/%s", STEP - 1, files[0]), files[0],
		 "as its folder is named");
}

/* ---- the document ---- */

/* Tests that a document changed in one place, with its old checksum, is refused. */
static void document(const char *what, const json_t *changed_document)
{
	const char *file = path_of(files[0]), *kept = scratch_path("kept");
	char *text = json_dumps(changed_document, 0);

	copy(file, kept);
	scratch_write(file, text, strlen(text));
	ok(refused(files[0], ""), "%s", what);
	free(text);
	copy(kept, file);
}

static void visit(json_t *root, json_t *object, const char *where)
{
	json_t *keys = json_array(), *key;
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach(object, name, value)
		json_array_append_new(keys, json_string(name));
	json_array_foreach(keys, i, key) {
		json_t *good;
		char what[120];

		name = json_string_value(key);
		good = json_incref(json_object_get(object, name));
		snprintf(what, sizeof(what), "checkpoint.json without %s%s", where, name);
		json_object_del(object, name);
		document(what, root);
		snprintf(what, sizeof(what), "checkpoint.json with another %s%s", where, name);
		json_object_set_new(object, name, json_is_integer(good)
			? json_integer(json_integer_value(good) ^ 1)
			: json_is_real(good) ? json_real(json_real_value(good) * 2)
			: json_is_string(good) ? json_string("stage-7.safetensors")
			: json_pack("[i]", 1));
		document(what, root);
		json_object_set(object, name, good);
		json_decref(good);
	}
	json_decref(keys);
}

static void test_document(void)
{
	json_t *root = json_load_file(path_of(files[0]), 0, NULL);
	json_t *stages = json_object_get(root, "stages"), *stage;
	size_t i;

	visit(root, root, "");
	visit(root, json_object_get(root, "optimizer"), "optimizer.");
	json_array_foreach(stages, i, stage)
		visit(root, stage, i ? "stages[1]." : "stages[0].");
	document("checkpoint.json with the same values, but written anew", root);
	json_object_set_new(root, "version", json_integer(1));
	json_object_del(root, "checksum");
	document("version 1, but with checksums of stages", root);
	json_decref(root);
}

/* Tests that a checkpoint of the version without checksums is accepted if its tensors are complete. */
static void test_old(void)
{
	json_t *root = json_load_file(path_of(files[0]), 0, NULL), *stage;
	struct contents c = read_contents(path_of(files[2]));
	struct pd_error err = { 0 };
	uint64_t ignored;
	char *text;
	size_t i;

	json_object_set_new(root, "version", json_integer(1));
	json_object_del(root, "checksum");
	json_array_foreach(json_object_get(root, "stages"), i, stage)
		json_object_del(stage, "header_checksum");
	text = json_dumps(root, 0);
	scratch_write(path_of(files[0]), text, strlen(text));
	free(text);
	json_decref(root);
	ok(accepted(&err), "version 1, which has no checksums");
	json_object_del(c.header, "__metadata__");
	write_contents(path_of(files[2]), c.header, c.data, c.data_bytes, &ignored);
	ok(accepted(&err), "nor does its header need any");
	json_object_del(c.header, "block.0.fc.bias.velocity");
	write_contents(path_of(files[2]), c.header, c.data, c.data_bytes - 24, &ignored);
	ok(refused(files[2], "tensor \"block.0.fc.bias.velocity\" is missing"),
	   "but all that its optimizer needs");
	release_contents(&c);
}

int main(void)
{
	struct pd_error err = { 0 };

	snprintf(directory, sizeof(directory), "%s", scratch_path("ck"));
	snprintf(folder, sizeof(folder), "%s/step-%012d", directory, STEP);
	if (!ok(small_save(directory, STEP, 2, &err) == 0 && accepted(&err), "as it was written"))
		diag("%s", err.text);
	test_data();
	test_swapped();
	test_versions_swapped();
	test_missing();
	test_changed();
	test_files();
	test_document();
	test_lengths();
	test_bits();
	if (!ok(accepted(&err), "put right again, it is taken"))
		diag("%s", err.text);
	test_old();
	return done_testing();
}
