/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts for models of sequences: a sample is a window of as many tokens as the model's inputs have
 * places.  With T of them sample n of a text is tokens n T to n T + T - 1, and the label of each is the
 * token behind it; so an epoch has every token but a text's first for a label once, and leaves out what
 * fills no window at a text's end.  No window goes over from one text to the next.
 */
#include "run/data/format.h"

#include "base/mem.h"
#include "run/data/token_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SAMPLES UINT32_MAX         /* that an epoch's order counts */

struct text {
	struct pd_token_file file;
	const uint8_t *data;    /* what the set has of the file */
	int64_t count;
	int64_t first;          /* its first sample's number in the set */
};

struct tokens {
	int text_count;
	struct text *texts;
	int64_t length;         /* of a window */
	int64_t vocabulary;     /* every token is below */
	int64_t *ahead;         /* per input of the model: 1, the label of a loss; else 0 */
};

/* ---- the model ---- */

static bool is_label(const struct pd_model *model, int input)
{
	for (int l = 0; l < model->layer_count; l++)
		if (pd_layer_is(&model->layers[l], PD_KIND_LOSS) && model->layers[l].inputs[1] == input)
			return true;
	return false;
}

/* Its inputs can be filled from windows: i32, of one length. */
static int read_model(const char *path, const struct pd_model *model, struct tokens *tokens,
		      struct pd_error *err)
{
	bool labels = false;

	tokens->ahead = pd_calloc((size_t)model->input_count, sizeof(*tokens->ahead));
	tokens->length = model->inputs[0].shape.size[0];
	tokens->vocabulary = INT64_MAX;
	for (int i = 0; i < model->input_count; i++) {
		const struct pd_input *input = &model->inputs[i];
		int64_t limit = pd_dataset_range(model, i).limit;

		if (input->dtype != PD_I32 || input->shape.dims != 1 ||
		    input->shape.size[0] != tokens->length)
			return pd_error_input(err, "%s: holds text: expected a model whose inputs are "
					      "i32 and have one axis, of one length; \"%.60s\" of "
					      "\"%.60s\" is another", path, input->name, model->name);
		tokens->ahead[i] = is_label(model, i);
		labels |= tokens->ahead[i];
		if (limit < tokens->vocabulary)
			tokens->vocabulary = limit;
	}
	return labels ? 0 : pd_error_input(err, "%s: holds text: expected a model with a loss whose "
					   "labels are an input, \"%.60s\" has none", path,
					   model->name);
}

/* ---- a set ---- */

/* Windows of a text, whose last token has none behind it. */
static int64_t windows(const struct tokens *tokens, const struct text *text)
{
	return text->count > 0 ? (text->count - 1) / tokens->length : 0;
}

/* Counts the samples once the texts are there. */
static int count_samples(const char *part, struct pd_dataset *set, struct pd_error *err)
{
	struct tokens *tokens = set->state;

	for (int i = 0; i < tokens->text_count; i++) {
		tokens->texts[i].first = set->samples;
		set->samples += windows(tokens, &tokens->texts[i]);
	}
	if (set->samples == 0)
		return pd_error_input(err, "%s: expected a text of at least %" PRId64 " tokens%s, one "
				      "more than a sample of the model has, found none",
				      tokens->texts[0].file.name, tokens->length + 1, part);
	if (set->samples > MOST_SAMPLES)
		return pd_error_input(err, "%s: %" PRId64 " samples: expected fewer than 2^32",
				      tokens->texts[0].file.name, set->samples);
	return 0;
}

static int new_set(const struct pd_data_format *format, const char *path,
		   const struct pd_model *model, struct pd_dataset *set_p, struct pd_error *err)
{
	*set_p = (struct pd_dataset){ .format = format,
				      .state = pd_zalloc(sizeof(struct tokens)) };
	return read_model(path, model, set_p->state, err);
}

/* A text of the set, all of a file; takes the name. */
static int add_text(struct tokens *tokens, char *name, bool bytes, struct pd_error *err)
{
	struct text *text = &tokens->texts[tokens->text_count++];

	if (pd_token_file_open(&text->file, name, bytes, tokens->vocabulary, err) < 0)
		return -1;
	text->data = text->file.data;
	text->count = text->file.count;
	return 0;
}

/* One set of a directory, of the files of one part. */
static int open_part(const struct pd_data_format *format, const char *directory, const char *suffix,
		     const struct pd_model *model, bool test, struct pd_dataset *set_p,
		     struct pd_error *err)
{
	const char *part = test ? "val" : "train";
	bool bytes = strcmp(suffix, ".txt") == 0;
	struct tokens *tokens;
	char **names;
	int count, opened = 0, status = new_set(format, directory, model, set_p, err);

	if (status < 0)
		return -1;
	tokens = set_p->state;
	count = pd_token_files_list(directory, part, suffix, &names, err);
	if (count < 0)
		return -1;
	tokens->texts = pd_calloc((size_t)count, sizeof(*tokens->texts));
	while (status == 0 && opened < count)
		status = add_text(tokens, names[opened++], bytes, err);
	for (int i = opened; i < count; i++)
		free(names[i]);
	free(names);
	if (status == 0 && count == 0)
		return pd_error_input(err, "%s: expected %s%s for the %s, found none", directory, part,
				      suffix, test ? "evaluation" : "training");
	return status < 0 ? -1 : count_samples("", set_p, err);
}

/* A directory that cannot be read may have any: then opening it says why not. */
static bool has_part(const char *directory, const char *part, const char *suffix)
{
	char **names = NULL;
	struct stat st;
	int count = pd_token_files_list(directory, part, suffix, &names, NULL);

	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return count > 0 || (count < 0 && stat(directory, &st) == 0 && S_ISDIR(st.st_mode));
}

static struct text *text_of(struct tokens *tokens, int64_t sample)
{
	int low = 0, high = tokens->text_count;

	while (high - low > 1) {
		int middle = low + (high - low) / 2;

		if (tokens->texts[middle].first <= sample)
			low = middle;
		else
			high = middle;
	}
	return &tokens->texts[low];
}

static void read_window(const struct pd_dataset *set, int input, int64_t sample, void *out)
{
	struct tokens *tokens = set->state;
	const struct text *text = text_of(tokens, sample);
	const struct pd_npy_type *type = text->file.type;
	int64_t from = (sample - text->first) * tokens->length + tokens->ahead[input];

	type->to_i32(text->data + from * type->bytes, tokens->length, out);
}

static void close_tokens(struct pd_dataset *set)
{
	struct tokens *tokens = set->state;

	for (int i = 0; i < tokens->text_count; i++)
		pd_token_file_release(&tokens->texts[i].file);
	free(tokens->texts);
	free(tokens->ahead);
	free(tokens);
}

/* ---- the formats ---- */

static bool recognise_binary(const char *directory, bool test)
{
	return has_part(directory, test ? "val" : "train", ".bin");
}

static int open_binary(const char *directory, const struct pd_model *model, bool test,
		       const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	(void)train;
	if (pd_source_exists(directory, "fine_label_names.txt"))
		return pd_error_input(err, "%s: found CIFAR-100, of which this version knows no format: "
				      "expected arrays in .npy files, or CIFAR-10", directory);
	return open_part(&pd_data_tokens, directory, ".bin", model, test, set_p, err);
}

static bool recognise_text(const char *directory, bool test)
{
	return has_part(directory, test ? "val" : "train", ".txt");
}

static int open_text(const char *directory, const struct pd_model *model, bool test,
		     const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	(void)train;
	return open_part(&pd_data_text, directory, ".txt", model, test, set_p, err);
}

static bool recognise_book(const char *file, bool test)
{
	size_t length = strlen(file);
	struct stat st;

	(void)test;
	return length > 4 && strcmp(file + length - 4, ".txt") == 0 && stat(file, &st) == 0 &&
	       !S_ISDIR(st.st_mode);
}

/* Opens the first nine tenths of a file, or the rest of it. */
static int open_book(const char *file, const struct pd_model *model, bool test,
		     const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	struct tokens *tokens;
	struct text *text;
	int64_t most;

	(void)train;
	if (new_set(&pd_data_book, file, model, set_p, err) < 0)
		return -1;
	tokens = set_p->state;
	tokens->texts = pd_zalloc(sizeof(*tokens->texts));
	if (add_text(tokens, pd_strdup(file), true, err) < 0)
		return -1;
	text = &tokens->texts[0];
	most = text->count - (text->count + 9) / 10;
	text->data += test ? most : 0;
	text->count = test ? text->count - most : most;
	return count_samples(test ? " in its last tenth" : " in its first nine tenths", set_p, err);
}

const struct pd_data_format pd_data_tokens = {
	.name = "tokens", .files = "train.bin",
	.recognise = recognise_binary, .open = open_binary, .read = read_window,
	.close = close_tokens,
};

const struct pd_data_format pd_data_text = {
	.name = "text", .files = "train.txt",
	.recognise = recognise_text, .open = open_text, .read = read_window,
	.close = close_tokens,
};

const struct pd_data_format pd_data_book = {
	.name = "one text", .files = "a file NAME.txt",
	.recognise = recognise_book, .open = open_book, .read = read_window,
	.close = close_tokens,
};
