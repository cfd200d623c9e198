/* SPDX-License-Identifier: Apache-2.0 */
#include "model/summary.h"

#include "model/layer.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MOST_NAME 60                    /* longer names push their line to the right */
#define COUNT_TEXT 32

/* How wide the columns are. */
struct columns {
	int name, kind, shape, count;
};

/* Writes 1234567 as "1,234,567" and returns it. */
static const char *show_count(int64_t count, char text[COUNT_TEXT])
{
	char digits[COUNT_TEXT];
	int length = snprintf(digits, sizeof(digits), "%" PRId64, count), used = 0;

	for (int i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			text[used++] = ',';
		text[used++] = digits[i];
	}
	text[used] = '\0';
	return text;
}

static void widen(int *width, size_t text)
{
	if ((int)text > *width)
		*width = text < MOST_NAME ? (int)text : MOST_NAME;
}

static struct columns measure(const struct pd_model *model)
{
	struct columns c = { 5, 4, 6, 10 };
	char text[PD_SHAPE_TEXT];

	for (int t = 0; t < pd_model_tensors(model); t++) {
		widen(&c.name, strlen(pd_model_tensor_name(model, t)));
		widen(&c.shape, strlen(pd_shape_text(pd_model_shape(model, t), text)));
	}
	for (int l = 0; l < model->layer_count; l++)
		widen(&c.kind, strlen(pd_layer_kind_name[model->layers[l].kind]));
	widen(&c.count, strlen(show_count(pd_model_parameters(model), text)));
	return c;
}

/* The columns that every line has. */
static void print_tensor(const struct columns *c, const struct pd_model *model, int tensor, FILE *out)
{
	int layer = pd_model_producer(model, tensor);
	const char *kind = layer >= 0 ? pd_layer_kind_name[model->layers[layer].kind]
				      : pd_dtype_name[pd_model_dtype(model, tensor)];
	char text[PD_SHAPE_TEXT];

	fprintf(out, "%-*s  %-*s  %s", c->name, pd_model_tensor_name(model, tensor), c->kind, kind,
		pd_shape_text(pd_model_shape(model, tensor), text));
}

static void print_parameters(const struct columns *c, const struct pd_model *model,
			     const struct pd_layer *layer, FILE *out)
{
	char text[PD_SHAPE_TEXT];
	int room = c->shape - (int)strlen(pd_shape_text(&layer->output, text)) + 2 + c->count;

	if (layer->parameter_count == 0)
		return;
	if (layer->shares >= 0) {
		fprintf(out, "%*s   those of %s", room, "", model->layers[layer->shares].name);
		return;
	}
	fprintf(out, "%*s", room, show_count(layer->parameter_elements, text));
	for (int p = 0; p < layer->parameter_count; p++) {
		const struct pd_layer_tensor *tensor = &layer->parameters[p];
		struct pd_shape shape = { .dims = tensor->dims };

		memcpy(shape.size, tensor->size, sizeof(shape.size));
		fprintf(out, "%s %s", p ? "," : "  ", tensor->name);
		fprintf(out, " %s", pd_shape_text(&shape, text));
	}
}

static void print_sum(const struct pd_model *model, FILE *out)
{
	int64_t total = pd_model_parameters(model), used = 0, frozen = 0;
	char text[COUNT_TEXT];

	for (int l = 0; l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		used += layer->parameter_elements;
		frozen += layer->frozen && layer->shares < 0 ? layer->parameter_elements : 0;
	}
	fprintf(out, "\n%s: %d layers, %s parameters", model->name, model->layer_count,
		show_count(total, text));
	if (used != total)
		fprintf(out, " (%s if those that are shared counted again)", show_count(used, text));
	if (frozen > 0)
		fprintf(out, ", of which %s are frozen", show_count(frozen, text));
	fprintf(out, "\n");
}

int pd_model_summary(const struct pd_model *model, FILE *out, struct pd_error *err)
{
	struct columns c = measure(model);

	fprintf(out, "%-*s  %-*s  %-*s  %*s\n", c.name, "layer", c.kind, "kind", c.shape, "output", c.count,
		"parameters");
	for (int t = 0; t < pd_model_tensors(model); t++) {
		print_tensor(&c, model, t, out);
		if (t >= model->input_count)
			print_parameters(&c, model, &model->layers[t - model->input_count], out);
		fprintf(out, "\n");
	}
	print_sum(model, out);
	return ferror(out) ? pd_error_failed(err, "cannot write the table: %s", strerror(errno)) : 0;
}
