/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/safetensors.h"

#include "scratch.h"
#include "tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define COUNT 4

static const struct pd_tensor tensors[COUNT] = {
	{ .name = "conv1.weight", .dims = 4, .size = { 3, 2, 5, 5 } },
	{ .name = "bn.running_mean", .dims = 1, .size = { 3 } },
	{ .name = "conv1.weight@17", .dims = 2, .size = { 0, 7 } },
	{ .name = "scalar", .dims = 0 },
};
static const int64_t elements[COUNT] = { 150, 3, 0, 1 };

static float value(int tensor, int64_t i)
{
	return (float)(tensor * 1000 + i) + 0.25f;
}

/* Writes a file of `tensors`; returns the writer's status. */
static int write_all(const char *file, struct pd_error *err)
{
	json_t *metadata = json_pack("{s:s}", "step", "17");
	float data[COUNT][150];
	const float *all[COUNT];
	uint64_t checksum;
	int status;

	for (int t = 0; t < COUNT; t++) {
		for (int64_t i = 0; i < elements[t]; i++)
			data[t][i] = value(t, i);
		all[t] = data[t];
	}
	status = pd_safetensors_write(file, tensors, all, COUNT, metadata, &checksum, err);
	json_decref(metadata);
	return status;
}

/* Opens and reads a file; tells whether the list is consistent and, if `compare`, the data are right. */
static bool read_all(const char *file, bool compare, struct pd_error *err)
{
	struct pd_safetensors *st = pd_safetensors_open(file, err);
	const struct pd_tensor *list;
	bool right = true;
	size_t count;

	if (!st)
		return false;
	count = pd_safetensors_list(st, &list);
	for (size_t t = 0; t < count && right; t++) {
		float *data = malloc((size_t)list[t].elements * sizeof(*data) + 1);

		right = pd_safetensors_find(st, list[t].name) == &list[t] &&
			(strcmp(list[t].dtype, "F32") != 0 || pd_safetensors_read(st, &list[t], data, err) == 0);
		if (compare)
			right = right && count == COUNT && list[t].elements <= 150;
		for (int64_t i = 0; compare && right && i < list[t].elements; i++) {
			int which = strcmp(list[t].name, "conv1.weight") == 0 ? 0 :
				    strcmp(list[t].name, "bn.running_mean") == 0 ? 1 : 3;

			right = data[i] == value(which, i);
		}
		free(data);
	}
	pd_safetensors_close(st);
	return right;
}

static void test_round_trip(void)
{
	const char *file = scratch_path("round.safetensors");
	struct pd_error err = { 0 };
	struct pd_safetensors *st;
	const struct pd_tensor *tensor;
	uint8_t *bytes;
	size_t count;
	uint64_t length = 0;

	ok(write_all(file, &err) == 0 && read_all(file, true, &err), "written and read: every bit");
	is_int(scratch_entries(scratch()), 1, "no temporary file is left");
	bytes = scratch_read(file, &count);
	memcpy(&length, bytes, 8);
	ok(length % 8 == 0 && count == 8 + length + 154 * 4 && bytes[8] == '{' &&
	   bytes[8 + length - 1] <= '}', "the header is padded, the data follow it");
	free(bytes);
	st = pd_safetensors_open(file, &err);
	tensor = pd_safetensors_find(st, "conv1.weight");
	ok(tensor && strcmp(tensor->dtype, "F32") == 0 && tensor->dims == 4 && tensor->size[0] == 3 &&
	   tensor->size[3] == 5 &&
	   tensor->elements == 150, "shape");
	ok(!pd_safetensors_find(st, "conv1.bias"), "a tensor that is not there");
	is_str(pd_safetensors_metadata(st, "step"), "17", "metadata");
	ok(!pd_safetensors_metadata(st, "epoch"), "metadata that is not there");
	pd_safetensors_close(st);
}

static void put_header(const char *file, const char *header, size_t data_bytes)
{
	uint8_t bytes[4096] = { 0 };
	uint64_t length = strlen(header);

	memcpy(bytes, &length, 8);
	memcpy(bytes + 8, header, length);
	scratch_write(file, bytes, 8 + length + data_bytes);
}

static void test_refused(void)
{
	static const struct {
		const char *header;
		size_t data_bytes;
		const char *says;
	} cases[] = {
		{ "[]", 0, "a JSON object in the header" },
		{ "{", 0, "not JSON" },
		{ "", 0, "not JSON" },
		{ "{} x", 0, "not JSON" },
		{ "{\"a\":1}", 0, "a: expected an object, found 1" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
		  "a.data_offsets: expected an array" },
		{ "{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		  "a.dtype" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
		  "a.shape[0]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
		  "a.shape[0]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
		  "2 elements of F32" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3,
		  "a.data_offsets[1]: expected a whole number from 0 to 3" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
		  "end of the file" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
		  "begins at byte 4" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 8,
		  "data_offsets[1]" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8,
		  "an array of 2" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		  "gap or overlap" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12,
		  "gap or overlap" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
		  "duplicate" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],"
		  "\"data_offsets\":[0,0]}}", 0,
		  "overflows" },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],"
		  "\"data_offsets\":[0,0]}}", 0,
		  "elements of F64" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],"
		  "\"data_offsets\":[0,4]}}", 4,
		  "at most 8 dimensions" },
		{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[7],\"data_offsets\":[0,4]}}", 4,
		  "7 elements of F4" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__.a: expected a string" },
	};
	const char *file = scratch_path("bad.safetensors");
	uint64_t length = UINT64_MAX;
	struct pd_error err = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put_header(file, cases[i].header, cases[i].data_bytes);
		ok(!pd_safetensors_open(file, &err) &&
		   one_sentence(&err, PD_EXIT_USAGE, file, cases[i].says), "%s", cases[i].says);
	}
	scratch_write(file, &length, 8);
	ok(!pd_safetensors_open(file, &err) && one_sentence(&err, PD_EXIT_USAGE, file, "at most 0"),
	   "a header of 2^64 - 1 bytes");
	length = 1 << 30;
	scratch_write(file, &length, 8);
	ok(truncate(file, (off_t)2 << 30) == 0 && !pd_safetensors_open(file, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, file, "at most 100000000"),
	   "a header above the bound");
	ok(!pd_safetensors_open(scratch(), &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, scratch(), "expected a file"), "a directory");
	file = scratch_path("missing.safetensors");
	ok(!pd_safetensors_open(file, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, file, "cannot open"), "a missing file");
}

static void test_other_types(void)
{
	const char *file = scratch_path("types.safetensors");
	struct pd_error err = { 0 };
	struct pd_safetensors *st;
	float data[4];

	put_header(file, "{\"b\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[4,20]},"
		   "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  ", 20);
	st = pd_safetensors_open(file, &err);
	ok(st && pd_safetensors_read(st, pd_safetensors_find(st, "a"), data, &err) == 0,
	   "a file with other types too, in another order");
	ok(st && pd_safetensors_read(st, pd_safetensors_find(st, "b"), data, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_USAGE, file, "of type F32"), "they are not read as floats");
	pd_safetensors_close(st);
}

/* Tests what the format's own library reads, version 0.8 of it. */
static void test_odd_headers(void)
{
#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"
	static const struct {
		const char *header;
		size_t data_bytes;
	} cases[] = {
		{ "{" A ",\"more\":[1,{\"x\":null}]}}", 4 },
		{ "{\"__metadata__\":null," A "}}", 4 },
		{ "{\"__metadata__\":{\"k\\u0000\":\"x\\u0000y\\\\u0000\"}," A "}}", 4 },
		{ "{\"\\u0000\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[4,12]}," A "}}", 12 },
		{ "{\"b\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[4,8]}," A "}}", 8 },
		{ "{\"b\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[4,7]}," A "}}", 7 },
	};
	const char *file = scratch_path("odd.safetensors");
	struct pd_error err = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pd_safetensors *st;
		float number;

		put_header(file, cases[i].header, cases[i].data_bytes);
		st = pd_safetensors_open(file, &err);
		ok(st && pd_safetensors_read(st, pd_safetensors_find(st, "a"), &number, &err) == 0,
		   "read: %s", cases[i].header);
		pd_safetensors_close(st);
	}
}

static void test_damage(void)
{
	const char *file = scratch_path("damage.safetensors");
	struct pd_error err = { 0 };
	uint8_t *bytes;
	size_t count, header;
	bool all = true;
	int refusals = 0;

	write_all(file, &err);
	bytes = scratch_read(file, &count);
	for (size_t n = 0; n < count; n++) {
		scratch_write(file, bytes, n);
		if (read_all(file, false, &err) || !one_sentence(&err, PD_EXIT_USAGE, file, ""))
			all = false;
	}
	ok(all, "no prefix is taken for the whole");
	header = count - 154 * 4;
	srand(2);
	for (int i = 0; i < 200; i++) {
		size_t at = (size_t)rand() % header;
		uint8_t was = bytes[at];

		bytes[at] ^= (uint8_t)(1 + rand() % 255);
		scratch_write(file, bytes, count);
		bytes[at] = was;
		err = (struct pd_error){ 0 };
		/* A changed name is no error, since the file does not tell what it was. */
		if (!read_all(file, false, &err)) {
			refusals++;
			all = all && one_sentence(&err, PD_EXIT_USAGE, file, "");
		}
	}
	ok(all && refusals > 100, "200 corrupted headers, %d of them refused in one sentence",
	   refusals);
	free(bytes);
}

static void test_write_fails(void)
{
	struct rlimit small = { .rlim_cur = 300 }, before;
	struct pd_error err = { 0 };
	const char *file = scratch_path("missing/x.safetensors");
	int entries = scratch_entries(scratch()), status;
	size_t left;

	ok(write_all(file, &err) < 0 && one_sentence(&err, PD_EXIT_FAILED, file, "cannot create"),
	   "a missing directory");
	file = scratch_path("large.safetensors");
	scratch_write(file, "kept", 4);
	getrlimit(RLIMIT_FSIZE, &before);
	small.rlim_max = before.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	status = write_all(file, &err);
	setrlimit(RLIMIT_FSIZE, &before);
	ok(status < 0 && one_sentence(&err, PD_EXIT_FAILED, file, "cannot write"),
	   "no room for the data");
	is_int(scratch_entries(scratch()), entries + 1, "nothing is left of either");
	free(scratch_read(file, &left));
	is_int((int64_t)left, 4, "what was there stays");
	ok(write_all("/dev/full", &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, "/dev/full", "No space left"), "a full disk");
}

int main(void)
{
	test_round_trip();
	test_refused();
	test_other_types();
	test_odd_headers();
	test_damage();
	test_write_fails();
	return done_testing();
}
