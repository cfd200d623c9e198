/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that reads what others wrote, for libFuzzer (clang -fsanitize=fuzzer).  The name by
 * which the program is called says what is read: contrib/fuzz/run.sh.  Whatever the bytes, a reader
 * ends with what it read or with one sentence; what it read can be used, and what is written of it
 * can be read again.
 */
#include "base/json.h"
#include "base/mem.h"
#include "doors/huggingface/config.h"
#include "doors/kineto/kineto.h"
#include "doors/onnx/onnx.h"
#include "doors/tensors/tensors.h"
#include "engine/data/dataset.h"
#include "plan/plan.h"
#include "schedule/check.h"
#include "schedule/file.h"
#include "topology/topology.h"
#include "trace/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* 0: it was read; -1: it was refused, with the error.  For test/unit/seeds.c. */
int pd_fuzz_read(const uint8_t *data, size_t size, struct pd_error *err);

/* A file in memory, which has a path. */
struct input {
	int fd;
	char path[32];
};

static FILE *nowhere;

static void input_open(struct input *input)
{
	input->fd = memfd_create("input", MFD_CLOEXEC);
	snprintf(input->path, sizeof(input->path), "/proc/self/fd/%d", input->fd);
	if (input->fd < 0)
		abort();
}

static void input_set(struct input *input, const uint8_t *data, size_t size)
{
	if (ftruncate(input->fd, 0) != 0 || pwrite(input->fd, data, size, 0) != (ssize_t)size)
		abort();
}

/* One sentence says why: there, not empty, on one line. */
static void expect_sentence(const struct pd_error *err)
{
	if (!err->text[0] || strchr(err->text, '\n') ||
	    (err->status != PD_EXIT_USAGE && err->status != PD_EXIT_NO))
		abort();
}

/* What is written of a document is one; value is taken. */
static void expect_readable(json_t *value, int (*read)(const struct pd_place *, struct pd_error *))
{
	struct pd_error err = { .text = "" };
	struct pd_place root = pd_place_root("written", value);

	if (read(&root, &err) < 0) {
		fprintf(stderr, "written, but not read again: %s\n", err.text);
		abort();
	}
	json_decref(value);
}

static int read_profile_again(const struct pd_place *root, struct pd_error *err)
{
	struct pd_profile *profile = pd_profile_parse_at(root, err);

	pd_profile_free(profile);
	return profile ? 0 : -1;
}

static int read_plan_again(const struct pd_place *root, struct pd_error *err)
{
	struct pd_plan *plan = pd_plan_parse_at(root, err);

	pd_plan_free(plan);
	return plan ? 0 : -1;
}

static void use_plan(const struct pd_plan *plan)
{
	struct pd_error err = { .text = "" };
	struct pd_schedule *schedule = pd_schedule_new(plan, &err);

	if (!schedule)
		expect_sentence(&err);
	pd_schedule_free(schedule);
	expect_readable(pd_plan_json(plan), read_plan_again);
}

/* ---- one for each kind; -1: it was refused, with the error ---- */

static int read_model(const char *file, struct pd_error *err)
{
	struct pd_model *model = pd_model_read(file, err);

	pd_model_free(model);
	return model ? 0 : -1;
}

/* A small network is written, too, with what files call its parameters; it may still not be one. */
static int use_config(const struct pd_config *config, json_t *source, struct pd_error *err)
{
	struct pd_network_size none;
	struct pd_model *model = NULL;
	const char *changed;
	json_t *document;

	pd_network_size_init(&none);
	if (config->size.layers > 16)
		return 0;
	document = pd_network_sized(config->family, &config->size, &none, "read", err);
	if (document && pd_config_name(config, "read", document, err) == 0) {
		pd_config_keep(config, source, &none, document, &changed);
		model = pd_model_parse("read", document, err);
	}
	json_decref(document);
	pd_model_free(model);
	return model ? 0 : -1;
}

static int read_config(const char *file, struct pd_error *err)
{
	json_t *value = pd_json_load(file, err);
	struct pd_place root = pd_place_root("config.json", value);
	struct pd_config config;
	int result = value && pd_config_read(&root, &config, err) == 0 ? use_config(&config, value, err) : -1;

	json_decref(value);
	return result;
}

/* What is written of a graph may still be no network: kinds of layer say more than their shapes. */
static int read_onnx(const char *file, struct pd_error *err)
{
	json_t *document = pd_onnx_document(file, "read", PD_ONNX_CROSS_ENTROPY, NULL, err);
	struct pd_model *model = document ? pd_model_parse("read", document, err) : NULL;

	json_decref(document);
	pd_model_free(model);
	return model ? 0 : -1;
}

static int read_profile(const char *file, struct pd_error *err)
{
	struct pd_profile *profile = pd_profile_read(file, 0, err);

	if (!profile)
		return -1;
	expect_readable(pd_profile_json(profile), read_profile_again);
	pd_profile_free(profile);
	return 0;
}

static int read_topology(const char *file, struct pd_error *err)
{
	struct pd_topology topology;

	if (pd_topology_read(file, &topology, err) < 0)
		return -1;
	json_decref(pd_topology_json(&topology));
	return 0;
}

static int read_plan(const char *file, struct pd_error *err)
{
	struct pd_lists *lists;
	struct pd_plan *plan;

	if (pd_schedule_or_plan_read(file, NULL, &lists, &plan, err) < 0)
		return -1;
	if (plan)
		use_plan(plan);
	pd_lists_free(lists);
	pd_plan_free(plan);
	return 0;
}

static int read_schedule(const char *file, struct pd_error *err)
{
	struct pd_error why = { .text = "" };
	struct pd_lists *lists;
	struct pd_plan *plan;

	if (pd_schedule_or_plan_read(file, NULL, &lists, &plan, err) < 0)
		return -1;
	if (lists && pd_check(lists, &why) < 0)
		expect_sentence(&why);
	pd_lists_free(lists);
	pd_plan_free(plan);
	return 0;
}

/* Reports a trace, and frees it. */
static void use_trace(struct pd_trace *trace)
{
	struct pd_timeline *timeline;
	struct pd_report *report;

	pd_trace_join_transfers(trace);
	timeline = pd_timeline_new(trace);
	report = pd_report_new(timeline);
	json_decref(pd_report_json(report, NULL));
	pd_report_print(report, NULL, nowhere);
	pd_timeline_text(&(struct pd_view){ timeline, NULL }, 1, 80, false, nowhere);
	pd_report_free(report);
	pd_timeline_free(timeline);
	pd_trace_free(trace);
}

static int read_trace(const char *file, struct pd_error *err)
{
	struct pd_trace *trace;
	struct pd_plan *plan;
	struct pd_lists *lists;

	if (pd_trace_or_lists_read(file, NULL, &trace, &plan, &lists, err) < 0)
		return -1;
	pd_lists_free(lists);
	pd_plan_free(plan);
	if (trace)
		use_trace(trace);
	return 0;
}

static int read_kineto(const char *file, struct pd_error *err)
{
	struct pd_kineto_missing missing;
	struct pd_trace *trace = pd_kineto_read(&file, 1, NULL, &missing, err);

	if (!trace)
		return -1;
	expect_readable(pd_plan_json(trace->plan), read_plan_again);
	use_trace(trace);
	return 0;
}

#define READ_BYTES (1 << 20)            /* of a tensor, at most */

static int read_safetensors(const char *file, struct pd_error *err)
{
	struct pd_safetensors *st = pd_safetensors_open(file, err);
	const struct pd_tensor *list;
	struct pd_error why = { .text = "" };
	size_t count;

	if (!st)
		return -1;
	count = pd_safetensors_list(st, &list);
	for (size_t i = 0; i < count; i++) {
		float *values;

		if (!pd_safetensors_find(st, list[i].name))
			abort();
		if (list[i].elements > READ_BYTES / 4)
			continue;
		values = pd_calloc((size_t)list[i].elements, sizeof(*values));
		if (pd_safetensors_read(st, &list[i], values, &why) < 0)
			expect_sentence(&why);
		free(values);
	}
	pd_safetensors_metadata(st, "format");
	pd_safetensors_close(st);
	return 0;
}

static int read_string(const char *file, struct pd_error *err)
{
	struct pd_topology topology;
	char text[256];
	FILE *in = fopen(file, "re");
	size_t n = fread(text, 1, sizeof(text) - 1, in);

	fclose(in);
	text[n] = '\0';
	if (pd_topology_parse_string(text, &topology, err) < 0)
		return -1;
	json_decref(pd_topology_json(&topology));
	return 0;
}

/* ---- folders of links to files in memory ---- */

static struct pd_model *model;
static struct input second;             /* labels of IDX and .npy */
static char folder[] = "fuzz-data-XXXXXX";
static const char *data_path = folder;

static void link_to(const char *name, const struct input *input)
{
	char *path = pd_format("%s/%s", folder, name);

	if (symlink(input->path, path) != 0)
		abort();
	free(path);
}

static void make_folder_for(char *text)
{
	json_t *value = json_loads(text, 0, NULL);

	model = pd_model_parse("model", value, NULL);
	json_decref(value);
	free(text);
	if (!model || !mkdtemp(folder))
		abort();
}

static void write_shard(const char *name, const char *first_tensor, const char *second_tensor)
{
	static const float ones[] = { 1, 1, 1, 1, 1, 1 };
	const struct pd_tensor tensors[] = {
		{ .name = (char *)(uintptr_t)first_tensor, .dims = 2, .size = { 2, 3 } },
		{ .name = (char *)(uintptr_t)second_tensor, .dims = 1, .size = { 3 } },
	};
	const float *data[] = { ones, ones };
	char *path = pd_format("%s/%s", folder, name);
	struct pd_error err;
	uint64_t checksum;

	if (pd_safetensors_write(path, tensors, data, PD_COUNT(tensors), NULL, &checksum, &err) < 0)
		abort();
	free(path);
}

/* The index of two files. */
static void open_index(const struct input *input)
{
	if (!mkdtemp(folder))
		abort();
	write_shard("one.safetensors", "fc.weight", "fc.bias");
	write_shard("two.safetensors", "head.weight", "head.bias");
	link_to("model.safetensors.index.json", input);
}

/* Whatever is in it has the names and sizes of the files. */
static int read_index(const char *file, struct pd_error *err)
{
	struct pd_tensors *tensors = pd_tensors_open(folder, err);
	const struct pd_tensor *const *list;
	size_t count;
	float values[6];

	(void)file;
	if (!tensors)
		return -1;
	count = pd_tensors_list(tensors, &list);
	for (size_t i = 0; i < count; i++)
		if (list[i]->elements > 6 || pd_tensors_find(tensors, list[i]->name) != list[i] ||
		    pd_tensors_read(tensors, list[i], 0, list[i]->elements, values, err) < 0 || values[0] != 1)
			abort();
	pd_tensors_close(tensors);
	return 0;
}

static void make_folder(int channels, int height, int width)
{
	make_folder_for(pd_format("{\"format\": \"pd-model\", \"version\": 1, \"name\": \"m\", \"inputs\": ["
			       "{\"name\": \"x\", \"dtype\": \"f32\", \"shape\": [%d, %d, %d]}, "
			       "{\"name\": \"y\", \"dtype\": \"i32\", \"shape\": []}], \"layers\": ["
			       "{\"name\": \"f\", \"kind\": \"flatten\", \"inputs\": [\"x\"]}, "
			       "{\"name\": \"l\", \"kind\": \"linear\", \"inputs\": [\"f\"], "
			       "\"out_features\": 10}, {\"name\": \"e\", \"kind\": "
			       "\"softmax_cross_entropy\", \"inputs\": [\"l\", \"y\"]}]}",
			       channels, height, width));
}

static void open_idx(const struct input *input)
{
	make_folder(1, 2, 2);
	input_open(&second);
	link_to("train-images-idx3-ubyte", input);
	link_to("t10k-images-idx3-ubyte", input);
	link_to("train-labels-idx1-ubyte", &second);
	link_to("t10k-labels-idx1-ubyte", &second);
}

static void open_cifar(const struct input *input)
{
	make_folder(3, 32, 32);
	for (int i = 1; i <= 5; i++) {
		char *name = pd_format("data_batch_%d.bin", i);

		link_to(name, input);
		free(name);
	}
	link_to("test_batch.bin", input);
}

static void open_npy(const struct input *input)
{
	static const char *const parts[] = { "train", "test" };

	make_folder(1, 2, 2);
	input_open(&second);
	for (size_t i = 0; i < PD_COUNT(parts); i++) {
		char *part = pd_format("%s/%s", folder, parts[i]);
		char *x = pd_format("%s/x.npy", parts[i]), *y = pd_format("%s/y.npy", parts[i]);

		if (mkdir(part, 0700) != 0)
			abort();
		link_to(x, input);
		link_to(y, &second);
		free(part);
		free(x);
		free(y);
	}
}

static void open_npz(const struct input *input)
{
	make_folder(1, 2, 2);
	link_to("both.npz", input);
	data_path = pd_format("%s/both.npz", folder);
}

/* A vocabulary of 200, windows of 3. */
static void open_tokens(const struct input *input)
{
	make_folder_for(pd_format("{\"format\": \"pd-model\", \"version\": 1, \"name\": \"m\", "
				  "\"inputs\": [{\"name\": \"x\", \"dtype\": \"i32\", \"shape\": [3]}, "
				  "{\"name\": \"y\", \"dtype\": \"i32\", \"shape\": [3]}], "
				  "\"layers\": [{\"name\": \"w\", \"kind\": \"embedding\", "
				  "\"inputs\": [\"x\"], \"num_embeddings\": 200, \"embedding_dim\": 2}, "
				  "{\"name\": \"l\", \"kind\": \"linear\", \"inputs\": [\"w\"], "
				  "\"out_features\": 200}, {\"name\": \"e\", \"kind\": "
				  "\"softmax_cross_entropy\", \"inputs\": [\"l\", \"y\"]}]}"));
	link_to("train.bin", input);
	link_to("val.bin", input);
}

#define READ_SAMPLES 5000               /* of a set, at most */

/* Samples can be read; whole numbers are in the range that the network takes. */
static void use_set(const struct pd_dataset *set)
{
	float values[3 * 32 * 32];
	int32_t labels[3];
	int64_t count = pd_shape_elements(&model->inputs[1].shape);

	for (int64_t s = 0; s < set->samples && s < READ_SAMPLES; s++) {
		set->format->read(set, 0, s, values);
		set->format->read(set, 1, s, labels);
		for (int64_t i = 0; i < count; i++)
			if (labels[i] < 0 || labels[i] >= pd_dataset_range(model, 1).limit)
				abort();
	}
}

static int read_data(const char *file, struct pd_error *err)
{
	struct pd_dataset train, test;

	(void)file;
	if (pd_dataset_open(data_path, model, &train, &test, err) < 0)
		return -1;
	use_set(&train);
	use_set(&test);
	pd_dataset_release(&train);
	pd_dataset_release(&test);
	return 0;
}

static const struct kind {
	const char *name;
	int (*read)(const char *file, struct pd_error *err);
	void (*open)(const struct input *input);
	bool two;                       /* the input is two files; see pd_fuzz_read */
} kinds[] = {
	{ "model", read_model, NULL }, { "config", read_config, NULL }, { "onnx", read_onnx, NULL },
	{ "profile", read_profile, NULL }, { "topology", read_topology, NULL }, { "plan", read_plan, NULL },
	{ "schedule", read_schedule, NULL }, { "trace", read_trace, NULL }, { "kineto", read_kineto, NULL },
	{ "safetensors", read_safetensors, NULL }, { "index", read_index, open_index },
	{ "topology-string", read_string, NULL }, { "idx", read_data, open_idx, true },
	{ "cifar", read_data, open_cifar }, { "npy", read_data, open_npy, true },
	{ "npz", read_data, open_npz }, { "tokens", read_data, open_tokens },
};
static const struct kind *kind;
static struct input first;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *slash = strrchr((*argv)[0], '/'), *name = slash ? slash + 1 : (*argv)[0];

	(void)argc;
	for (size_t k = 0; k < PD_COUNT(kinds); k++)
		if (strcmp(name, kinds[k].name) == 0)
			kind = &kinds[k];
	nowhere = fopen("/dev/null", "we");
	if (!kind || !nowhere) {
		fprintf(stderr, "%s: call it by what it is to read, such as \"plan\"\n", name);
		exit(2);
	}
	input_open(&first);
	if (kind->open)
		kind->open(&first);
	return 0;
}

/* Of two files the first byte times 16 says where the second begins. */
int pd_fuzz_read(const uint8_t *data, size_t size, struct pd_error *err)
{
	size_t at = size;

	if (kind->two && size > 0) {
		at = (size_t)data[0] * 16 < size - 1 ? (size_t)data[0] * 16 : size - 1;
		data++;
		input_set(&second, data + at, size - 1 - at);
	}
	input_set(&first, data, at);
	if (kind->read(first.path, err) == 0)
		return 0;
	expect_sentence(err);
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pd_error err = { .text = "" };

	pd_fuzz_read(data, size, &err);
	return 0;
}
