/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/onnx/onnx.h"

#include "base/mem.h"
#include "doors/onnx/fold.h"
#include "doors/onnx/place.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define RECIPE "torch.onnx.export(model.eval(), (x,), FILE, dynamo=True, optimize=False, opset_version=23)"

const char *const pd_onnx_loss_name[] = { "cross-entropy", "mse", NULL };

static int optimized(const struct pd_onnx *onnx, const char *name, struct pd_error *err)
{
	return pd_error_input(err, "%s: %.100s: parameters were folded or merged when this was exported; export with "
			      RECIPE, onnx->file, name);
}

/* Names that exporters give to what they have computed, or merged. */
static bool made_up(const char *name)
{
	size_t length = strlen(name);

	if (strncmp(name, "onnx::", 6) == 0 || (length > 12 && strcmp(name + length - 12, ".weight_bias") == 0))
		return true;
	return strncmp(name, "val_", 4) == 0 && name[4] && strspn(name + 4, "0123456789") == length - 4;
}

/*
 * Is a node a product that a normalisation was folded into?  The exporter gives a convolution a bias, of zeros if
 * it has none, and its optimizer takes these out; and the product then has the name of the normalisation's output.
 */
static bool folded(const struct pd_onnx_node *node)
{
	bool convolution = is_op(node, "Conv") && node->inputs < 3;
	bool product = is_op(node, "Conv") || is_op(node, "ConvTranspose") || is_op(node, "Gemm");

	return *node->scope && node->outputs > 0 &&
	       (convolution || (product && strncmp(node->output[0], "getitem", 7) == 0));
}

/* Does a node read a row of numbers that is of another module than its own? */
static bool of_another(const struct pd_onnx_node *node, const char *name)
{
	size_t length = strlen(node->scope);

	return length > 0 && (strncmp(name, node->scope, length) != 0 || name[length] != '.');
}

/*
 * A default export has lost what the parameters were: it folds normalisations into convolutions, transposes
 * weights, and merges those that were equal before training.
 */
static int check_recipe(struct graph *g, struct pd_error *err)
{
	for (size_t i = 0; i < g->onnx->tensors; i++)
		if (made_up(g->onnx->tensor[i].name))
			return optimized(g->onnx, g->onnx->tensor[i].name, err);
	for (size_t n = 0; n < g->onnx->nodes; n++) {
		const struct pd_onnx_node *node = &g->onnx->node[n];

		if (folded(node))
			return optimized(g->onnx, node->output[0], err);
		for (size_t i = 0; i < node->inputs; i++) {
			const struct value *value = graph_in(g, node, i);

			if (value && value->tensor && value->tensor->dims == 1 && value->uses > 1 &&
			    pd_onnx_is_float(value->tensor->type) && of_another(node, value->name))
				return optimized(g->onnx, value->name, err);
		}
	}
	return 0;
}

static int compare_values(const void *a, const void *b)
{
	return strcmp(((const struct value *)a)->name, ((const struct value *)b)->name);
}

static void add_value(struct graph *g, const char *name, const struct pd_onnx_node *node,
		      struct pd_onnx_tensor *tensor)
{
	if (*name)
		g->values[g->value_count++] = (struct value){ .name = name, .node = node, .tensor = tensor };
}

/* Lists all values, by name. */
static int list_values(struct graph *g, struct pd_error *err)
{
	const struct pd_onnx *onnx = g->onnx;
	size_t most = onnx->tensors + onnx->inputs;

	for (size_t n = 0; n < onnx->nodes; n++)
		most += onnx->node[n].outputs;
	g->values = pd_calloc(most + 1, sizeof(*g->values));
	for (size_t i = 0; i < onnx->tensors; i++)
		add_value(g, onnx->tensor[i].name, NULL, &onnx->tensor[i]);
	for (size_t i = 0; i < onnx->inputs; i++)
		add_value(g, onnx->input[i].name, NULL, NULL);
	for (size_t n = 0; n < onnx->nodes; n++)
		for (size_t i = 0; i < onnx->node[n].outputs; i++)
			add_value(g, onnx->node[n].output[i], &onnx->node[n], NULL);
	qsort(g->values, g->value_count, sizeof(*g->values), compare_values);
	for (size_t i = 1; i < g->value_count; i++)
		if (strcmp(g->values[i - 1].name, g->values[i].name) == 0)
			return pd_error_input(err, "%s: %.100s: expected one value of that name, found two",
					      onnx->file, g->values[i].name);
	return 0;
}

static void set_known(struct graph *g, const struct pd_onnx_value *known, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct value *value = graph_find(g, known[i].name);

		if (value)
			value->known = &known[i];
	}
}

/* Names become those of inputs and layers, in a document. */
static int check_text(const struct graph *g, const char *text, struct pd_error *err)
{
	json_t *value = json_string(text);

	json_decref(value);
	for (const char *c = text; value && *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			value = NULL;
	return value ? 0 : pd_error_input(err, "%s: expected names that are text in UTF-8 without control characters",
					  g->onnx->file);
}

static int check_texts(const struct graph *g, struct pd_error *err)
{
	for (size_t i = 0; i < g->value_count; i++)
		if (check_text(g, g->values[i].name, err) < 0)
			return -1;
	for (size_t n = 0; n < g->onnx->nodes; n++)
		if (check_text(g, g->onnx->node[n].scope, err) < 0 || check_text(g, g->onnx->node[n].op, err) < 0 ||
		    check_text(g, g->onnx->node[n].domain, err) < 0)
			return -1;
	return 0;
}

/* Every value that is read is made, before. */
static int count_uses(struct graph *g, struct pd_error *err)
{
	for (size_t n = 0; n < g->onnx->nodes; n++) {
		const struct pd_onnx_node *node = &g->onnx->node[n];

		for (size_t i = 0; i < node->inputs; i++) {
			struct value *value = graph_in(g, node, i);

			if (*node->input[i] && (!value || (value->node && value->node >= node)))
				return pd_error_input(err, "%s: %.100s (%.40s): expected a value that is made before, "
						      "found %.100s", g->onnx->file, node->outputs ? node->output[0] : "",
						      node->op, node->input[i]);
			if (value)
				value->uses++;
		}
	}
	for (size_t i = 0; i < g->onnx->outputs; i++) {
		struct value *value = graph_find(g, g->onnx->output[i].name);

		if (!value)
			return pd_error_input(err, "%s: %.100s: expected an output that is made", g->onnx->file,
					      g->onnx->output[i].name);
		value->uses++;
	}
	return 0;
}

static void set_view(struct graph *g, const char *name, const struct view *view)
{
	struct view *copy = pd_arena_take(&g->constants.arena, 1, sizeof(*copy));

	*copy = *view;
	graph_find(g, name)->view = copy;
}

static int add_input(struct graph *g, const struct pd_onnx_value *input, struct pd_error *err)
{
	const char *file = g->onnx->file;
	struct extent sample = { .dims = input->dims - 1 };
	struct view view;
	int number;

	if (input->symbol)
		return pd_error_input(err, "%s: input %.100s: expected sizes that are numbers, found %.60s: export "
				      "without dynamic_shapes", file, input->name, input->symbol);
	if (!pd_onnx_is_float(input->type) && !pd_onnx_is_integer(input->type))
		return pd_error_input(err, "%s: input %.100s: expected numbers", file, input->name);
	if (input->dims < 1 || input->size[0] < 1)
		return pd_error_input(err, "%s: input %.100s: expected an axis for samples, which comes first", file,
				      input->name);
	if (g->batch != 0 && g->batch != input->size[0])
		return pd_error_input(err, "%s: input %.100s: expected %" PRId64 " samples, as in the first input, found "
				      "%" PRId64, file, input->name, g->batch, input->size[0]);
	g->batch = input->size[0];
	for (int d = 0; d < sample.dims; d++) {
		sample.size[d] = input->size[d + 1];
		if (sample.size[d] < 1 || sample.size[d] > 1 << 30)
			return pd_error_input(err, "%s: input %.100s: expected sizes from 1 to 2^30", file, input->name);
	}
	number = layer_add(g, NULL, NULL, 0, NULL, &sample, NULL);
	g->layers[number].name = input->name;
	g->layers[number].whole = pd_onnx_is_integer(input->type);
	if (!view_whole(&view, number, &sample, 0, g->batch))
		return pd_error_input(err, "%s: input %.100s: has too many axes", file, input->name);
	set_view(g, input->name, &view);
	return 0;
}

/* Whole numbers are constants, such as positions; the others are parameters, or look like some. */
static int add_tensor(struct graph *g, struct pd_onnx_tensor *tensor, struct pd_error *err)
{
	struct extent shape = { .dims = tensor->dims };
	struct view view;
	int number;

	if (pd_onnx_is_integer(tensor->type)) {
		graph_find(g, tensor->name)->constant = fold_tensor(&g->constants, g->onnx, tensor);
		return 0;
	}
	for (int d = 0; d < tensor->dims; d++) {
		shape.size[d] = tensor->size[d];
		if (shape.size[d] < 1 || shape.size[d] > 1 << 30)
			return pd_error_input(err, "%s: %.100s: expected sizes from 1 to 2^30", g->onnx->file,
					      tensor->name);
	}
	number = layer_add(g, NULL, NULL, 0, NULL, &shape, NULL);
	g->layers[number].tensor = tensor;
	if (view_whole(&view, number, &shape, -1, 1))
		set_view(g, tensor->name, &view);
	return 0;
}

/*
 * How many bytes constants may take at a time: as many numbers as the file has, and some masks of the longest axis
 * of an input by itself, for each sample.
 */
static int64_t limit_of(const struct graph *g)
{
	double bytes = 16 << 20, longest = 1;

	for (size_t i = 0; i < g->onnx->tensors; i++)
		bytes += 8.0 * (double)g->onnx->tensor[i].elements;
	for (size_t i = 0; i < g->onnx->inputs; i++)
		for (int d = 1; d < g->onnx->input[i].dims; d++)
			longest = fmax(longest, (double)g->onnx->input[i].size[d]);
	bytes += 64.0 * (double)g->batch * longest * longest;
	return bytes < MOST_CONSTANT_BYTES ? (int64_t)bytes : MOST_CONSTANT_BYTES;
}

static int begin(struct graph *g, struct pd_error *err)
{
	const struct pd_onnx *onnx = g->onnx;

	if (onnx->inputs == 0 || onnx->outputs != 1)
		return pd_error_input(err, "%s: expected inputs and one output, of which the loss is taken; found %zu and "
				      "%zu: export a module whose forward returns that alone", onnx->file, onnx->inputs,
				      onnx->outputs);
	if (list_values(g, err) < 0)
		return -1;
	set_known(g, onnx->value, onnx->values);
	set_known(g, onnx->input, onnx->inputs);
	set_known(g, onnx->output, onnx->outputs);
	if (check_texts(g, err) < 0 || count_uses(g, err) < 0 || check_recipe(g, err) < 0)
		return -1;
	for (size_t i = 0; i < onnx->inputs; i++)
		if (!*onnx->input[i].name || add_input(g, &onnx->input[i], err) < 0)
			return *onnx->input[i].name ? -1
			       : pd_error_input(err, "%s: expected inputs with names", onnx->file);
	g->constants.most = limit_of(g);
	for (size_t i = 0; i < onnx->tensors; i++)
		if (*onnx->tensor[i].name && add_tensor(g, &onnx->tensor[i], err) < 0)
			return -1;
	return 0;
}

/* Shows the classes of each pixel behind one another, as the loss takes them. */
static void classes_last(struct view *view)
{
	struct view from = *view;

	if (view->axes == 4)
		view_permuted(view, &from, (int[]){ 0, 2, 3, 1 });
}

/*
 * Logarithms of softmax are a cross entropy's already: their own are the same.  Returns what they are of, or else the
 * output.
 */
static const struct value *before_logarithm(const struct graph *g, const struct value *output,
					    enum pd_onnx_loss loss)
{
	const struct pd_onnx_node *node = output->node;
	const struct value *of = loss == PD_ONNX_CROSS_ENTROPY && is_op(node, "LogSoftmax") ? graph_in(g, node, 0) : NULL;
	int axes = of && of->view ? of->view->axes : 0, classes = axes == 4 ? 1 : axes - 1;

	return axes > 0 && array_axis(integer_of(node, "axis", -1), axes) == classes ? of : output;
}

/* Places the output, the sample of which the loss is taken. */
static int place_output(struct graph *g, enum pd_onnx_loss loss, int *base_p, struct extent *sample_p,
			struct pd_error *err)
{
	const struct value *output = before_logarithm(g, graph_find(g, g->onnx->output[0].name), loss);
	struct view view;

	if (!output->view)
		return pd_error_input(err, "%s: %s", g->onnx->file,
				      output->why ? output->why : "expected an output that is computed of inputs");
	view = *output->view;
	if (view.axes < 1 || !view_counts(&view, 0))
		return pd_error_input(err, "%s: output %.100s: expected an axis for samples, which comes first",
				      g->onnx->file, output->name);
	if (loss == PD_ONNX_CROSS_ENTROPY)
		classes_last(&view);
	if (place(g, &view, output->node, base_p, sample_p, err) < 0)
		return pd_error_prefix(err, "%s", g->onnx->file);
	if (loss == PD_ONNX_CROSS_ENTROPY && sample_p->dims == 0)
		return pd_error_input(err, "%s: output %.100s: expected numbers for classes, found one for each sample; "
				      "--loss=mse takes it", g->onnx->file, output->name);
	return 0;
}

static int add_loss(struct graph *g, enum pd_onnx_loss loss, struct pd_error *err)
{
	bool classes = loss == PD_ONNX_CROSS_ENTROPY;
	const char *name = classes ? "labels" : "target";
	int input[2], layer;
	struct extent sample;

	if (place_output(g, loss, &input[0], &sample, err) < 0)
		return -1;
	if (graph_find(g, name))
		name = classes ? "loss_labels" : "loss_target";
	sample.dims -= classes;
	input[1] = layer_add(g, NULL, NULL, 0, NULL, &sample, NULL);
	g->layers[input[1]].name = name;
	g->layers[input[1]].whole = classes;
	layer = layer_add(g, classes ? "softmax_cross_entropy" : "mse", NULL, 2, input, &sample, NULL);
	g->layers[layer].own = "loss";
	layer_needed(g, layer);
	for (int i = 0; i < g->layer_count; i++)
		if (g->layers[i].live && g->layers[i].wrong)
			return pd_error_input(err, "%s: %s", g->onnx->file, g->layers[i].wrong);
	return 0;
}

static void release(struct graph *g)
{
	for (int i = 0; i < g->layer_count; i++) {
		json_decref(g->layers[i].attributes);
		json_decref(g->layers[i].names);
		json_decref(g->layers[i].init);
		free(g->layers[i].more);
	}
	free(g->layers);
	free(g->values);
	free(g->owners);
	free(g->placements);
	constants_release(&g->constants);
	pd_onnx_close(g->onnx);
}

json_t *pd_onnx_document(const char *file, const char *name, enum pd_onnx_loss loss,
			 const char *frozen, struct pd_error *err)
{
	struct graph g = { .onnx = pd_onnx_open(file, err), .frozen = frozen };
	json_t *inputs, *layers, *document = NULL;

	if (!g.onnx)
		return NULL;
	if (begin(&g, err) == 0) {
		graph_translate(&g);
		if (add_loss(&g, loss, err) == 0) {
			layers_finish(&g, &inputs, &layers);
			document = json_pack("{s:s, s:i, s:s, s:{s:s}, s:o, s:o}", "format", "pd-model", "version", 1,
					     "name", name, "source", "format", "onnx", "inputs", inputs, "layers",
					     layers);
		}
	}
	release(&g);
	return document;
}
