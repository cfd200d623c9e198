/* SPDX-License-Identifier: Apache-2.0 */
/* How numbers of an input are normalised: of its document, or of an option, in one form. */
#include "model/normalize.h"

#include "base/mem.h"
#include "base/opt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1e30
#define LEAST_DEVIATION 1e-30

/* The channels of an input: its first axis; one axis may be cut into any equal parts. */
static bool fits(const struct pd_input *input, int64_t channels)
{
	const struct pd_shape *shape = &input->shape;

	return channels == 1 || (shape->dims == 1 ? shape->size[0] % channels == 0
						  : shape->dims > 1 && shape->size[0] == channels);
}

/* Reads a number, or an array of one for each channel. */
static int read_numbers(const struct pd_place *place, const struct pd_input *input, double least,
			float **numbers_p, size_t *count_p, struct pd_error *err)
{
	size_t count = 1;
	double number;

	if (!json_is_number(place->value) && !json_is_array(place->value))
		return pd_place_expected(place, err, "a number, or an array of numbers");
	if (!json_is_number(place->value) && pd_json_some(place, PD_MAX_EXTENT, "numbers", &count, err) < 0)
		return -1;
	if (!fits(input, (int64_t)count))
		return pd_place_error(place, err, "%zu numbers: expected one, or one for each channel of \"%.60s\""
				      ", %" PRId64, count, input->name,
				      input->shape.dims ? input->shape.size[0] : 1);
	*numbers_p = pd_calloc(count, sizeof(**numbers_p));
	*count_p = count;
	for (size_t i = 0; i < count; i++) {
		struct pd_place at = json_is_number(place->value) ? *place : pd_place_index(place, i);

		if (pd_json_real(&at, least, MOST, &number, err) < 0)
			return -1;
		(*numbers_p)[i] = (float)number;
	}
	return 0;
}

/* Repeats one number for each of `count`. */
static void repeat(float **numbers_p, size_t *count_p, size_t count)
{
	float number = **numbers_p;

	if (*count_p == count)
		return;
	free(*numbers_p);
	*numbers_p = pd_calloc(count, sizeof(**numbers_p));
	for (size_t i = 0; i < count; i++)
		(*numbers_p)[i] = number;
	*count_p = count;
}

int pd_normalize_read(const struct pd_place *place, struct pd_input *input, struct pd_error *err)
{
	static const char *const known[] = { "mean", "std", NULL };
	struct pd_place mean = pd_place_key(place, "mean"), std = pd_place_key(place, "std");
	size_t means = 0, stds = 0, count;

	if (!place->value)
		return 0;
	if (input->dtype != PD_F32)
		return pd_place_error(place, err, "\"%.60s\" has whole numbers: expected it of an f32 input",
				      input->name);
	if (pd_json_keys(place, known, err) < 0 ||
	    read_numbers(&mean, input, -MOST, &input->mean, &means, err) < 0 ||
	    read_numbers(&std, input, LEAST_DEVIATION, &input->deviation, &stds, err) < 0)
		return -1;
	count = means > stds ? means : stds;
	if ((means != count && means != 1) || (stds != count && stds != 1))
		return pd_place_error(place, err, "%zu means and %zu standard deviations: expected as many, or "
				      "one", means, stds);
	repeat(&input->mean, &means, count);
	repeat(&input->deviation, &stds, count);
	input->channels = (int64_t)count;
	return 0;
}

/* Reads "0.5:0.4:0.3" up to a comma or the end, and returns what is behind it; NULL: an error. */
static const char *list(const char *text, json_t *numbers, struct pd_error *err)
{
	for (;; text++) {
		size_t length = strcspn(text, ":,");
		char *word = pd_format("%.*s", (int)length, text);
		double number;
		int status = pd_parse_real(word, -MOST, MOST, &number, err);

		free(word);
		if (status < 0)
			return NULL;
		pd_json_add(numbers, json_real(number));
		text += length;
		if (*text != ':')
			return text;
	}
}

/* The member "normalize" of an input's document, of an option. */
static json_t *parse(const char *text, struct pd_error *err)
{
	json_t *value = json_pack("{s:[], s:[]}", "mean", "std");
	const char *rest = list(text, json_object_get(value, "mean"), err);

	if (rest && *rest == ',')
		rest = list(rest + 1, json_object_get(value, "std"), err);
	else if (rest)
		pd_error_input(err, "expected MEAN,STD, each a number, or a number for each channel with \":\" "
			       "between them, found \"%.60s\"", text);
	if (rest && *rest == '\0' && json_array_size(json_object_get(value, "std")) > 0)
		return value;
	if (rest && *rest)
		pd_error_input(err, "expected the end behind MEAN,STD, found \"%.60s\"", rest);
	json_decref(value);
	return NULL;
}

static bool same(const struct pd_input *a, const struct pd_input *b)
{
	int64_t count = a->channels > b->channels ? a->channels : b->channels;

	for (int64_t i = 0; i < count; i++)
		if (a->mean[i % a->channels] != b->mean[i % b->channels] ||
		    a->deviation[i % a->channels] != b->deviation[i % b->channels])
			return false;
	return true;
}

/* Returns the only f32 input; -1, with an error. */
static int find_input(const struct pd_model *model, struct pd_error *err)
{
	int found = -1, count = 0;

	for (int i = 0; i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_F32) {
			found = i;
			count++;
		}
	if (count == 1)
		return found;
	return pd_error_input(err, "model \"%.60s\" has %s f32 input%s", model->name,
			      count ? "more than one" : "no", count ? ": expected \"normalize\" of those meant"
			      " in its document" : ", whose numbers could be normalised");
}

/* Gives the input what was read, which its document then says, too. */
static int give(struct pd_model *model, int i, struct pd_input *read, json_t *value, struct pd_error *err)
{
	struct pd_input *input = &model->inputs[i];

	if (input->channels > 0 && !same(input, read))
		return pd_error_input(err, "the model's input \"%.60s\" says itself how it is normalised, with "
				      "other numbers: expected one of both", input->name);
	if (input->channels > 0)
		return 0;
	input->mean = read->mean;
	input->deviation = read->deviation;
	input->channels = read->channels;
	read->mean = read->deviation = NULL;
	json_object_set(json_array_get(json_object_get(model->json, "inputs"), (size_t)i), "normalize", value);
	return 0;
}

int pd_model_normalize(struct pd_model *model, const char *text, struct pd_error *err)
{
	json_t *value = parse(text, err);
	struct pd_place place = pd_place_root("--normalize", value);
	int status = -1, i = value ? find_input(model, err) : -1;
	struct pd_input read = { 0 };

	if (i >= 0) {
		read = (struct pd_input){ .name = model->inputs[i].name, .dtype = PD_F32,
					  .shape = model->inputs[i].shape };
		status = pd_normalize_read(&place, &read, err);
	}
	if (i >= 0 && status == 0)
		status = give(model, i, &read, value, err) < 0 ? pd_error_prefix(err, "--normalize") : 0;
	else if (i < 0)
		pd_error_prefix(err, "--normalize");
	free(read.mean);
	free(read.deviation);
	json_decref(value);
	return status;
}

/* Returns the document of an input, or NULL. */
static json_t *find_document(json_t *document, const char *name)
{
	json_t *input;
	size_t i;

	json_array_foreach(json_object_get(document, "inputs"), i, input)
		if (pd_member_text(input, "name") && strcmp(pd_member_text(input, "name"), name) == 0)
			return input;
	return NULL;
}

static int normalize_one(struct pd_model *model, int i, const char *whose, json_t *document, const char **note_p,
			 struct pd_error *err)
{
	struct pd_input *input = &model->inputs[i];
	struct pd_place root = pd_place_root(whose, find_document(document, input->name));
	struct pd_place place = pd_place_key(&root, "normalize");
	struct pd_input read = { .name = input->name, .dtype = input->dtype, .shape = input->shape };
	int status = pd_normalize_read(&place, &read, err);

	if (status == 0 && input->channels > 0 && read.channels == 0) {
		*note_p = "was trained on data that --normalize, or its model, did not normalise";
	} else if (status == 0 && input->channels > 0 && !same(input, &read)) {
		status = pd_error_input(err, "%s: was trained with \"%.60s\" normalised with other numbers: expected "
					"the same of the plan's model and --normalize", whose, input->name);
	} else if (status == 0 && read.channels > 0 && input->channels == 0) {
		*note_p = "normalises its data as in training";
		status = give(model, i, &read, place.value, err);
	}
	free(read.mean);
	free(read.deviation);
	return status;
}

int pd_model_normalize_as(struct pd_model *model, const char *whose, json_t *document, const char **note_p,
			  struct pd_error *err)
{
	for (int i = 0; i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_F32 && normalize_one(model, i, whose, document, note_p, err) < 0)
			return -1;
	return 0;
}
