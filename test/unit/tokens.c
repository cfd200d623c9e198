/* SPDX-License-Identifier: Apache-2.0 */
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

#define LENGTH 4                        /* tokens of a window */

static struct small_model store;
static struct pd_input inputs[2];

/* Returns a model of labels and tokens, in this order, with a loss over a vocabulary at each place. */
static const struct pd_model *model_of_tokens(int64_t vocabulary)
{
	static char *const names[] = { "labels", "tokens" };

	small_model(&store, 1, 1, 1, 1);
	for (int i = 0; i < 2; i++)
		inputs[i] = (struct pd_input){ .name = names[i], .dtype = PD_I32,
					       .shape = { .dims = 1, .size = { LENGTH } } };
	store.layers[0].output = (struct pd_shape){ .dims = 2, .size = { LENGTH, vocabulary } };
	store.layers[1].index_limit = vocabulary;
	store.flatten_inputs[0] = 1;
	store.loss_inputs[1] = 0;
	store.model.inputs = inputs;
	return &store.model;
}

/* Writes a file of whole numbers of so many bytes each, behind `header_count` i32. */
static void put(const char *name, const int32_t *header, int header_count, int bytes, int count,
		const uint32_t *tokens)
{
	static uint8_t file[8192];
	size_t at = (size_t)header_count * 4;

	memset(file, 0, sizeof(file));
	if (header)
		memcpy(file, header, 3 * sizeof(*header));
	for (int i = 0; i < count; i++)
		for (int b = 0; b < bytes; b++)
			file[at++] = (uint8_t)(tokens[i] >> (8 * b));
	scratch_write(scratch_path("%s", name), file, at);
}

/* Returns tokens first, first + step, ... */
static const uint32_t *run_of(uint32_t first, uint32_t step, int count)
{
	static uint32_t tokens[1024];

	for (int i = 0; i < count; i++)
		tokens[i] = first + (uint32_t)i * step;
	return tokens;
}

static bool sample_is(const struct pd_dataset *set, int64_t sample, int32_t first, int32_t step)
{
	int32_t labels[LENGTH], tokens[LENGTH];
	bool right = true;

	set->format->read(set, 0, sample, labels);
	set->format->read(set, 1, sample, tokens);
	for (int t = 0; t < LENGTH; t++)
		right = right && tokens[t] == first + t * step &&
			labels[t] == first + (t + 1) * step;
	if (!right)
		diag("sample %d begins with %d %d, label %d", (int)sample, tokens[0], tokens[1],
		     labels[0]);
	return right;
}

static bool opened(const char *name, const struct pd_model *model, struct pd_dataset *train_p,
		   struct pd_dataset *test_p)
{
	struct pd_error err = { .text = "" };

	if (pd_dataset_open(scratch_path("%s", name), model, train_p, test_p, &err) == 0)
		return true;
	diag("%s", err.text);
	return false;
}

static void test_bare(void)
{
	struct pd_dataset train, test;

	mkdir(scratch_path("bare"), 0777);
	put("bare/train.bin", NULL, 0, 2, 12, run_of(50000, 1, 12));
	put("bare/val.bin", NULL, 0, 2, 13, run_of(7, 2, 13));
	if (!ok(opened("bare", model_of_tokens(50257), &train, &test), "bare u16"))
		return;
	is_int(train.samples, 2, "12 tokens are two windows of four, each with one behind it");
	is_int(test.samples, 3, "13 are three");
	ok(sample_is(&train, 0, 50000, 1) && sample_is(&train, 1, 50004, 1), "windows to train on");
	ok(sample_is(&test, 0, 7, 2) && sample_is(&test, 2, 23, 2), "windows to evaluate on");
	pd_dataset_release(&train);
	pd_dataset_release(&test);

	put("bare/train.bin", NULL, 0, 4, 9, run_of(100000, 3, 9));
	ok(opened("bare", model_of_tokens(128256), &train, NULL) && train.samples == 2 &&
	   sample_is(&train, 1, 100012, 3), "u32 where the vocabulary needs it");
	pd_dataset_release(&train);
}

static void test_headers(void)
{
	static const int32_t gpt2[] = { 20240520, 1, 9 }, llama3[] = { 20240801, 7, 9 };
	struct pd_dataset train, test;

	mkdir(scratch_path("header"), 0777);
	put("header/train.bin", gpt2, 256, 2, 9, run_of(50000, 1, 9));
	put("header/val.bin", llama3, 256, 4, 9, run_of(1, 1, 9));
	if (!ok(opened("header", model_of_tokens(50304), &train, &test), "two types of header"))
		return;
	ok(train.samples == 2 && sample_is(&train, 1, 50004, 1), "u16 behind a header");
	ok(test.samples == 2 && sample_is(&test, 0, 1, 1), "u32 behind a header");
	pd_dataset_release(&train);
	pd_dataset_release(&test);
}

static void test_parts(void)
{
	struct pd_dataset train, test;

	mkdir(scratch_path("parts"), 0777);
	put("parts/web_train_000002.bin", NULL, 0, 2, 5, run_of(200, 1, 5));
	put("parts/web_train_000001.bin", NULL, 0, 2, 10, run_of(100, 1, 10));
	put("parts/web_train_000000.bin", NULL, 0, 2, 3, run_of(900, 1, 3));
	put("parts/web_val_000000.bin", NULL, 0, 2, 5, run_of(300, 1, 5));
	put("parts/retrain.bin", NULL, 0, 2, 5, run_of(400, 1, 5));
	put("parts/train.bin.old", NULL, 0, 2, 5, run_of(500, 1, 5));
	if (!ok(opened("parts", model_of_tokens(1000), &train, &test), "a set of several files"))
		return;
	ok(train.samples == 3 && sample_is(&train, 0, 100, 1) && sample_is(&train, 1, 104, 1) &&
	   sample_is(&train, 2, 200, 1), "in the order of their names, no window over their ends");
	ok(test.samples == 1 && sample_is(&test, 0, 300, 1), "and one");
	pd_dataset_release(&train);
	pd_dataset_release(&test);
}

static void test_text(void)
{
	struct pd_dataset train, test;

	mkdir(scratch_path("text"), 0777);
	put("text/train.txt", NULL, 0, 1, 10, run_of(246, 1, 10));
	put("text/val.txt", NULL, 0, 1, 5, run_of(65, 1, 5));
	if (ok(opened("text", model_of_tokens(256), &train, &test), "texts are bytes")) {
		ok(train.samples == 2 && sample_is(&train, 1, 250, 1) && test.samples == 1 &&
		   sample_is(&test, 0, 65, 1), "from 0 to 255");
		pd_dataset_release(&train);
		pd_dataset_release(&test);
	}

	put("book.txt", NULL, 0, 1, 99, run_of(1, 1, 99));
	if (!ok(opened("book.txt", model_of_tokens(256), &train, &test), "one text for both sets"))
		return;
	/* The 89 bytes to train on are 22 windows, the 10 to evaluate on are two. */
	ok(train.samples == 22 && sample_is(&train, 21, 85, 1), "nine tenths to train on");
	ok(test.samples == 2 && sample_is(&test, 0, 90, 1) && sample_is(&test, 1, 94, 1),
	   "the last tenth to evaluate on");
	pd_dataset_release(&train);
	pd_dataset_release(&test);
}

static void test_files_refused(void)
{
	static const int32_t version[] = { 20240520, 2, 9 }, longer[] = { 20240520, 1, 10 },
			     negative[] = { 20240801, 7, -9 };
	const struct pd_model *model = model_of_tokens(100);

	mkdir(scratch_path("bad"), 0777);
	put("bad/train.bin", NULL, 0, 2, 9, run_of(94, 1, 9));
	ok(refuses("bad", model, "bad/train.bin", "token 100 at place 6: expected one from 0 to 99, "
		   "the model's vocabulary"), "a token outside of the vocabulary, and where it is");
	put("bad/train.bin", NULL, 0, 2, 9, run_of(1, 1, 9));
	ok(refuses("bad", model, "/bad", "expected val.bin for the evaluation, found none"),
	   "no set to evaluate on");
	put("bad/val.bin", NULL, 0, 2, 4, run_of(1, 1, 4));
	ok(refuses("bad", model, "bad/val.bin", "expected a text of at least 5 tokens"), "too short");
	put("bad/train.bin", NULL, 0, 1, 9, run_of(1, 1, 9));
	ok(refuses("bad", model, "bad/train.bin", "9 bytes: expected whole tokens of 2 bytes"),
	   "half a token");
	put("bad/train.bin", version, 256, 2, 9, run_of(1, 1, 9));
	ok(refuses("bad", model, "bad/train.bin", "version 2 behind the magic number 20240520: expected 1"),
	   "a header of another version");
	put("bad/train.bin", longer, 256, 2, 9, run_of(1, 1, 9));
	ok(refuses("bad", model, "bad/train.bin", "the header counts 10 tokens of 2 bytes: expected as "
		   "many behind it, found 18 bytes"), "a file that is cut off");
	put("bad/train.bin", negative, 256, 4, 9, run_of(1, 1, 9));
	ok(refuses("bad", model, "bad/train.bin", "counts -9 tokens"), "fewer than none");
	put("bad/train.bin", NULL, 0, 2, 0, NULL);
	ok(refuses("bad", model, "bad/train.bin", "expected tokens, found nothing in it"), "nothing");
	unlink(scratch_path("bad/train.bin"));
	mkfifo(scratch_path("bad/train.bin"), 0600);
	ok(refuses("bad", model, "bad/train.bin", "found a directory or device"), "a pipe");

	put("bad.txt", NULL, 0, 1, 40, run_of(50, 1, 40));
	ok(refuses("bad.txt", model, "bad.txt", "at least 5 tokens in its last tenth"),
	   "a last tenth of four bytes");
	put("bad.txt", NULL, 0, 1, 60, run_of(50, 1, 60));
	ok(refuses("bad.txt", model, "bad.txt", "token 100 at place 50"), "a byte outside");
	put("bad.dat", NULL, 0, 1, 50, run_of(1, 1, 50));
	ok(refuses("bad.dat", model, "bad.dat", "or a text called NAME.txt, found another file"),
	   "another file");
}

static void test_models_refused(void)
{
	const struct pd_model *model = model_of_tokens(1000);

	mkdir(scratch_path("fine"), 0777);
	put("fine/train.bin", NULL, 0, 2, 9, run_of(1, 1, 9));
	put("fine/val.bin", NULL, 0, 2, 9, run_of(1, 1, 9));
	inputs[1].shape.size[0] = 5;
	ok(refuses("fine", model, "/fine", "\"tokens\" of \"small\" is another"), "another length");
	inputs[1].shape.size[0] = LENGTH;
	inputs[1].dtype = PD_F32;
	ok(refuses("fine", model, "/fine", "inputs are i32 and have one axis, of one length; "
		   "\"tokens\" of \"small\" is another"), "an f32 input");
	inputs[1].dtype = PD_I32;
	inputs[0].shape.dims = 0;
	ok(refuses("fine", model, "/fine", "\"labels\" of \"small\" is another"), "a scalar");
	inputs[0].shape.dims = 1;
	store.loss_inputs[1] = 2;
	ok(refuses("fine", model, "/fine", "a loss whose labels are an input, \"small\" has none"),
	   "labels that are no input");
}

/* Tests that files with random bytes changed are refused in one sentence, or read as they are now. */
static void test_corrupt(void)
{
	static const int32_t header[] = { 20240520, 1, 9 };
	const struct pd_model *model = model_of_tokens(1000);
	int refusals = 0;
	bool all = true;

	srand(1);
	mkdir(scratch_path("corrupt"), 0777);
	for (int i = 0; i < 300; i++) {
		struct pd_dataset train, test;
		struct pd_error err = { .text = "" };
		uint8_t *bytes;
		size_t count;
		int32_t values[LENGTH];

		put("corrupt/train.bin", header, 256, 2, 9, run_of(1, 1, 9));
		put("corrupt/val.bin", NULL, 0, 2, 9, run_of(1, 1, 9));
		bytes = scratch_read(scratch_path("corrupt/train.bin"), &count);
		bytes[i % 2 ? (size_t)rand() % 12 : count - 1 - (size_t)rand() % 18] ^=
			(uint8_t)(1 + rand() % 255);
		scratch_write(scratch_path("corrupt/train.bin"), bytes,
			      i % 3 ? count : (size_t)rand() % count);
		free(bytes);
		if (pd_dataset_open(scratch_path("corrupt"), model, &train, &test, &err) < 0) {
			refusals++;
			all = all && one_sentence(&err, PD_EXIT_USAGE, "/corrupt/train.bin", "");
			continue;
		}
		for (int64_t s = 0; s < train.samples; s++)
			for (int input = 0; input < 2; input++) {
				train.format->read(&train, input, s, values);
				for (int t = 0; t < LENGTH; t++)
					all = all && values[t] >= 0 && values[t] < 1000;
			}
		pd_dataset_release(&train);
		pd_dataset_release(&test);
	}
	ok(all, "300 damaged files: refused in one sentence, or read, in the vocabulary");
	ok(refusals > 100, "many are refused (%d)", refusals);
}

int main(void)
{
	test_bare();
	test_headers();
	test_parts();
	test_text();
	test_files_refused();
	test_models_refused();
	test_corrupt();
	return done_testing();
}
