/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/data/augment.h"

#include "base/opt.h"
#include "base/rng.h"
#include "model/layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Finds height and width, the last axes. */
static int64_t height_of(const struct pd_shape *shape)
{
	return shape->size[shape->dims - 2];
}

static int64_t width_of(const struct pd_shape *shape)
{
	return shape->size[shape->dims - 1];
}

static int check_model(const struct pd_model *model, const struct pd_augment *augment,
		       struct pd_error *err)
{
	const struct pd_input *image = NULL;
	char text[PD_SHAPE_TEXT];
	int count = 0;

	for (int i = 0; i < model->input_count; i++)
		if (model->inputs[i].dtype == PD_F32) {
			image = &model->inputs[i];
			count++;
		}
	if (count != 1)
		return pd_error_input(err, "model \"%.60s\" has %s f32 input: expected one, an image",
				      model->name, count ? "more than one" : "no");
	if (image->shape.dims != 2 && image->shape.dims != 3)
		return pd_error_input(err, "the model's input \"%.60s\" has shape %s: expected an image, "
				      "[channels, height, width] or [height, width]", image->name,
				      pd_shape_text(&image->shape, text));
	if (augment->crop > height_of(&image->shape) || augment->crop > width_of(&image->shape))
		return pd_error_input(err, "crop:%" PRId64 ": expected at most the height and width of the image"
				      " \"%.60s\", %" PRId64 " and %" PRId64, augment->crop, image->name,
				      height_of(&image->shape), width_of(&image->shape));
	return 0;
}

/* Reads one word, "flip" or "crop:N". */
static int parse_word(const char *word, struct pd_augment *augment, struct pd_error *err)
{
	if (strcmp(word, "flip") == 0 && !augment->flip) {
		augment->flip = true;
		return 0;
	}
	if (strncmp(word, "crop:", 5) == 0 && augment->crop == 0)
		return pd_parse_count(word + 5, 1, PD_MAX_EXTENT, &augment->crop, err);
	return pd_error_input(err, "expected crop:N or flip, each once, with a comma between them, found \"%.60s\"",
			      word);
}

int pd_augment_parse(const char *text, const struct pd_model *model, struct pd_augment *out_p,
		     struct pd_error *err)
{
	int status = 0;

	*out_p = (struct pd_augment){ 0 };
	for (const char *rest = text; status == 0 && rest; ) {
		size_t length = strcspn(rest, ",");
		char word[64];

		snprintf(word, sizeof(word), "%.*s", (int)length, rest);
		status = parse_word(word, out_p, err);
		rest = rest[length] ? rest + length + 1 : NULL;
	}
	return status < 0 || check_model(model, out_p, err) < 0 ? pd_error_prefix(err, "--augment") : 0;
}

/* Draws a number from 0 to most. */
static int64_t draw(uint32_t random, int64_t most)
{
	return (int64_t)(((uint64_t)random * (uint64_t)(most + 1)) >> 32);
}

static void fill(float *out, int64_t count, float black)
{
	for (int64_t x = 0; x < count; x++)
		out[x] = black;
}

/* One row of the result: a row of the image moved to the right, or a black one. */
static void make_row(const float *row, int64_t width, int64_t right, float black, float *out)
{
	int64_t before = right > 0 ? right : 0, behind = right < 0 ? -right : 0;

	if (!row) {
		fill(out, width, black);
		return;
	}
	fill(out, before, black);
	memcpy(out + before, row + behind, (size_t)(width - before - behind) * sizeof(*out));
	fill(out + width - behind, behind, black);
}

static void mirror(float *row, int64_t width)
{
	for (int64_t x = 0; x < width / 2; x++) {
		float other = row[width - 1 - x];

		row[width - 1 - x] = row[x];
		row[x] = other;
	}
}

void pd_augment_image(const struct pd_augment *augment, uint64_t seed, int64_t epoch, int64_t sample,
		      const struct pd_shape *shape, const float *black, const float *image, float *out)
{
	struct pd_random4 random = pd_random(seed, PD_RNG_AUGMENT + (uint64_t)epoch, (uint32_t)sample, 0);
	int64_t height = height_of(shape), width = width_of(shape);
	int64_t channels = shape->dims == 3 ? shape->size[0] : 1;
	int64_t down = augment->crop - draw(random.v[0], 2 * augment->crop);
	int64_t right = augment->crop - draw(random.v[1], 2 * augment->crop);
	bool flip = augment->flip && random.v[2] >> 31;

	for (int64_t c = 0; c < channels; c++)
		for (int64_t y = 0; y < height; y++) {
			int64_t from = y - down;
			bool inside = from >= 0 && from < height;

			float *to = out + (c * height + y) * width;

			make_row(inside ? image + (c * height + from) * width : NULL, width, right,
				 black ? black[c] : 0, to);
			if (flip)
				mirror(to, width);
		}
}
