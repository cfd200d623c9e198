/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every kind of layer makes of a NaN and of both infinities, in its input and in the gradient of its
 * output, against the reference, which does what PyTorch does: element by element the same of NaN, inf,
 * -inf and finite.
 *
 * The layers called 'it' are between two parameters that have an element for each of their input's and
 * output's, and whose gradients so are those of the input and the output.  The loss is the distance to
 * a target: a target that is infinite gives the output a gradient that is, while all before is finite.
 */
#include "conforms.h"
#include "tap.h"

#include "base/half.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kind_case {
	const char *what;
	const char *in, *out;           /* shapes */
	const char *layers;             /* from 'p' to 'it' */
	/* a device may make more elements not finite than the reference, and others of NaN and infinity */
	bool spreads;
};

#define IT(kind, attributes) "{'name': 'it', 'kind': '" kind "', 'inputs': ['p']" attributes "}"
#define BLOCKED "{'name': 'c', 'kind': 'conv2d', 'inputs': ['p'], 'out_channels': 16, 'groups': 16, " \
		"'kernel': 1}, "
#define BLOCKED_IT(kind, attributes) \
	BLOCKED "{'name': 'it', 'kind': '" kind "', 'inputs': ['c']" attributes "}"
/* Two channels of one, which the CPU may pad to blocks. */
#define PADDED "{'name': 'c', 'kind': 'conv2d', 'inputs': ['p'], 'out_channels': 2, 'kernel': 1}, "
#define PADDED_IT(kind, attributes) \
	PADDED "{'name': 'it', 'kind': '" kind "', 'inputs': ['c']" attributes "}"
#define HALVES "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'end': 3}, " \
	       "{'name': 'b', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 3}, "
#define THIRDS "{'name': 'q', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'end': 4}, " \
	       "{'name': 'k', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 4, 'end': 8}, " \
	       "{'name': 'v', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, 'start': 8}, "
#define AROUND_ADD "{'name': 't', 'kind': 'tanh', 'inputs': ['r']}, " \
		   "{'name': 'it', 'kind': 'add', 'inputs': ['t', 'r']}"

static const struct kind_case cases[] = {
	{ "relu and a sum behind it", "7, 6", "7, 6", "{'name': 'r', 'kind': 'relu', 'inputs': ['p']}, "
	  AROUND_ADD, false },
	{ "relu behind linear", "7, 6", "7, 24", "{'name': 'l', 'kind': 'linear', 'inputs': ['p'], "
	  "'out_features': 24}, {'name': 'it', 'kind': 'relu', 'inputs': ['l']}", false },
	{ "relu behind conv2d", "3, 5, 6", "16, 5, 6", "{'name': 'l', 'kind': 'conv2d', 'inputs': ['p'], "
	  "'out_channels': 16, 'kernel': 1}, {'name': 'it', 'kind': 'relu', 'inputs': ['l']}", true },
	{ "relu behind batchnorm2d", "16, 5, 6", "16, 5, 6", "{'name': 'n', 'kind': 'batchnorm2d', "
	  "'inputs': ['p']}, {'name': 'it', 'kind': 'relu', 'inputs': ['n']}", false },
	{ "relu behind batchnorm2d, and a sum", "16, 5, 6", "16, 5, 6", BLOCKED "{'name': 'n', 'kind': "
	  "'batchnorm2d', 'inputs': ['c']}, {'name': 'r', 'kind': 'relu', 'inputs': ['n']}, "
	  AROUND_ADD, false },
	{ "relu of a sum", "7, 6", "7, 3", HALVES "{'name': 's', 'kind': 'add', 'inputs': ['a', 'b']}, "
	  "{'name': 'it', 'kind': 'relu', 'inputs': ['s']}", false },
	{ "maxpool2d of padded blocks", "1, 8, 8", "2, 4, 4", PADDED_IT("maxpool2d", ", 'kernel': 2"), true },
	{ "gelu by tanh", "7, 6", "7, 6", IT("gelu", ", 'approximate': 'tanh'"), false },
	{ "maxpool2d", "3, 8, 9", "3, 4, 4", IT("maxpool2d", ", 'kernel': 2"), false },
	{ "maxpool2d of overlapping windows", "3, 9, 9", "3, 5, 5",
	  IT("maxpool2d", ", 'kernel': 3, 'stride': 2, 'padding': 1"), false },
	{ "maxpool2d of blocks", "16, 9, 9", "16, 5, 5",
	  BLOCKED_IT("maxpool2d", ", 'kernel': 3, 'stride': 2, 'padding': 1"), false },
	{ "maxpool2d of large windows", "3, 18, 18", "3, 2, 2",
	  IT("maxpool2d", ", 'kernel': 17, 'stride': 1"), false },
	{ "avgpool2d", "16, 9, 9", "16, 4, 4", IT("avgpool2d", ", 'kernel': 3, 'stride': 2"), false },
	{ "avgpool2d of blocks", "16, 9, 9", "16, 4, 4",
	  BLOCKED_IT("avgpool2d", ", 'kernel': 3, 'stride': 2"), false },
	{ "adaptive_avgpool2d", "3, 8, 9", "3, 4, 5", IT("adaptive_avgpool2d", ", 'output_size': [4, 5]"),
	  false },
	{ "batchnorm2d", "3, 5, 6", "3, 5, 6", IT("batchnorm2d", ""), false },
	{ "batchnorm2d of blocks", "16, 5, 6", "16, 5, 6", BLOCKED_IT("batchnorm2d", ""), false },
	{ "layernorm", "7, 6", "7, 6", IT("layernorm", ""), false },
	{ "rmsnorm", "7, 6", "7, 6", IT("rmsnorm", ""), false },
	{ "dropout", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4"), false },
	{ "dropout along an axis", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4, 'shared_dim': 1"), false },
	{ "dropout of samples", "7, 6", "7, 6", IT("dropout", ", 'p': 0.4, 'shared_dim': [1, 2]"), false },
	{ "linear", "7, 6", "7, 5", IT("linear", ", 'out_features': 5"), false },
	{ "conv2d", "3, 8, 9", "5, 8, 9",
	  IT("conv2d", ", 'out_channels': 5, 'kernel': 3, 'padding': 1"), true },
	{ "upsample", "3, 4, 5", "3, 8, 10", IT("upsample", ", 'scale_factor': 2"), false },
	{ "upsample of padded blocks", "1, 4, 5", "2, 8, 7", PADDED_IT("upsample", ", 'size': [8, 7]"), true },
	{ "upsample by blending", "3, 4, 5", "3, 8, 10",
	  IT("upsample", ", 'scale_factor': 2, 'mode': 'bilinear'"), false },
	{ "conv_transpose2d", "3, 4, 5", "5, 8, 10",
	  IT("conv_transpose2d", ", 'out_channels': 5, 'kernel': 2, 'stride': 2"), true },
	{ "add", "7, 6", "7, 3", HALVES "{'name': 'it', 'kind': 'add', 'inputs': ['a', 'b']}", false },
	{ "mul", "7, 6", "7, 3", HALVES "{'name': 'it', 'kind': 'mul', 'inputs': ['a', 'b']}", false },
	{ "mul of unlike shapes", "7, 6", "7, 6", "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': -1, "
	  "'start': 3, 'end': 4}, {'name': 'it', 'kind': 'mul', 'inputs': ['p', 'a']}", false },
	{ "add of unlike shapes", "7, 6", "7, 6", "{'name': 'a', 'kind': 'slice', 'inputs': ['p'], 'dim': 1, "
	  "'start': 3, 'end': 4}, {'name': 'it', 'kind': 'add', 'inputs': ['a', 'p']}", false },
	{ "parameter", "7, 6", "7, 6", "{'name': 'a', 'kind': 'parameter', 'inputs': ['p'], 'shape': [1, 6]}, "
	  "{'name': 'it', 'kind': 'add', 'inputs': ['p', 'a']}", false },
	{ "softmax", "7, 6", "7, 6", IT("softmax", ""), false },
	{ "softmax along positions", "7, 6", "7, 6", IT("softmax", ", 'dim': 1"), false },
	{ "concat", "7, 6", "7, 6", HALVES "{'name': 'it', 'kind': 'concat', 'inputs': ['b', 'a'], "
	  "'dim': -1}", false },
	{ "flatten", "7, 6", "42", IT("flatten", ""), false },
	{ "transpose", "7, 6", "6, 7", IT("transpose", ", 'dim0': 1, 'dim1': 2"), false },
	{ "mean", "7, 6", "6", IT("mean", ", 'dim': 1"), false },
	{ "bias", "7, 6", "7, 6", IT("bias", ""), false },
	{ "rope", "7, 6", "7, 6", IT("rope", ""), true },
	{ "embedding", "7, 6", "7, 6", "{'name': 'e', 'kind': 'embedding', 'inputs': ['y'], "
	  "'num_embeddings': 9, 'embedding_dim': 6}, {'name': 'it', 'kind': 'add', 'inputs': ['p', 'e']}",
	  false },
	{ "attention", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': ['q', 'k', "
	  "'v'], 'heads': 2}", true },
	{ "attention of one key", "1, 12", "1, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': "
	  "['q', 'k', 'v'], 'heads': 2}", true },
	{ "attention with dropout", "7, 12", "7, 4", THIRDS "{'name': 'it', 'kind': 'attention', 'inputs': "
	  "['q', 'k', 'v'], 'heads': 2, 'causal': true, 'dropout': 0.3}", true },
	{ "additive_attention", "7, 12", "7, 4", THIRDS "{'name': 'w', 'kind': 'additive_attention', "
	  "'inputs': ['q', 'k']}, {'name': 'it', 'kind': 'add', 'inputs': ['w', 'v']}", false },
	{ "lstm", "7, 6", "7, 5", IT("lstm", ", 'hidden_size': 5"), false },
	{ "lstm in two directions", "7, 6", "7, 10",
	  IT("lstm", ", 'hidden_size': 5, 'bidirectional': true"), false },
};

enum class { FINITE, PLUS, MINUS, NONE };

static enum class class_of(double x)
{
	return isnan(x) ? NONE : isinf(x) ? (x > 0 ? PLUS : MINUS) : FINITE;
}

static const char *const names[] = { "finite", "inf", "-inf", "NaN" };

static int64_t product(const char *shape)
{
	int64_t n = 1;

	for (char *end; *shape; shape = *end ? end + 1 : end)
		n *= strtoll(shape, &end, 10);
	return n;
}

/* Returns the model of a case: its samples are those of 'it' and, behind them, the targets. */
static struct pd_model *model_of_case(const struct kind_case *k)
{
	int64_t in = product(k->in), out = product(k->out);
	char *shape = pd_format("%d", (int)(in + out));
	char *layers = pd_format(
		"{'name': 'xs', 'kind': 'slice', 'inputs': ['x'], 'dim': 1, 'end': %d}, "
		"{'name': 'ts', 'kind': 'slice', 'inputs': ['x'], 'dim': 1, 'start': %d}, "
		"{'name': 'xr', 'kind': 'reshape', 'inputs': ['xs'], 'shape': [%s]}, "
		"{'name': 'tr', 'kind': 'reshape', 'inputs': ['ts'], 'shape': [%s]}, "
		"{'name': 'p', 'kind': 'position_embedding', 'inputs': ['xr']}, %s, "
		"{'name': 'r2', 'kind': 'reshape', 'inputs': ['it'], 'shape': [%d, 1]}, "
		"{'name': 'q2', 'kind': 'position_embedding', 'inputs': ['r2']}, "
		"{'name': 't2', 'kind': 'reshape', 'inputs': ['tr'], 'shape': [%d, 1]}, "
		"{'name': 'loss', 'kind': 'mse', 'inputs': ['q2', 't2']}",
		(int)in, (int)in, k->in, k->out, k->layers, (int)out, (int)out);
	struct pd_model *model = model_with(shape, "7", layers);

	free(shape);
	free(layers);
	return model;
}

/* Returns whether both are alike where the reference's gradients of a parameter are not finite. */
static bool alike(const struct kind_case *k, const char *name, const double *expected, const float *got,
		  int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		enum class e = class_of(expected[i]), g = class_of((double)got[i]);

		if (e == g || (k->spreads && g != FINITE))
			continue;
		diag("%s: element %d of the gradient of %s is %s, expected %s", k->what, (int)i, name,
		     names[g], names[e]);
		return false;
	}
	return true;
}

static bool gradients_alike(const struct kind_case *k, const struct ref *r, const float *got)
{
	bool good = true;

	for (int l = 0; l < r->model->layer_count; l++)
		for (int p = 0; p < r->model->layers[l].parameter_count; p++) {
			const struct pd_layer *layer = &r->model->layers[l];

			good = alike(k, layer->name, r->dw[l][p], got, layer->parameters[p].elements) &&
			       good;
			got += layer->parameters[p].elements;
		}
	return good;
}

/* Loads random samples, among whose elements the number stands at `at`. */
static void load_with(struct chain *c, struct ref *r, int64_t at, float number)
{
	int64_t each = pd_shape_elements(&c->model->inputs[0].shape);
	int64_t labels = pd_shape_elements(&c->model->inputs[1].shape) * c->batch;
	float *x = pd_calloc((size_t)(each * c->batch), sizeof(*x));
	int32_t *y = pd_calloc((size_t)labels, sizeof(*y));

	for (int64_t i = 0; i < each * c->batch; i++)
		r->x[0][i] = x[i] = i == at ? number
					    : chain_round(c->dtype, conform_random(1, i));
	for (int64_t i = 0; i < labels; i++)
		r->x[1][i] = y[i] = (int32_t)(i * 5 % CLASSES);
	chain_load(c, x, y);
	free(x);
	free(y);
}

static bool one_case(const struct kind_case *k, struct chain *c, struct ref *r, int64_t at, float number)
{
	int64_t n, in = product(k->in);
	float *gradients;
	bool good;

	load_with(c, r, at, number);
	at %= in + product(k->out);
	good = chain_forward(c) && chain_backward(c);
	ref_forward(r);
	ref_backward(r);
	gradients = chain_export(c, GRADIENTS, &n);
	good = good && gradients_alike(k, r, gradients);
	if (class_of(c->loss.sum) != class_of(r->loss) && !k->spreads) {
		diag("%s: the loss is %s, expected %s", k->what, names[class_of(c->loss.sum)],
		     names[class_of(r->loss)]);
		good = false;
	}
	if (!good)
		diag("%s: with %s at %d of the %s", k->what, names[class_of((double)number)],
		     (int)(at < in ? at : at - in), at < in ? "input" : "target");
	free(gradients);
	return good;
}

/* A NaN may have either sign, and any payload. */
static const uint32_t numbers[] = { 0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800000, 0xff800000 };

static void test_case(const struct pd_device_ops *ops, const struct kind_case *k)
{
	struct pd_model *model = model_of_case(k);
	struct chain *c = chain_open(ops, model, NULL, 0, 2, SEED, 1);
	struct ref *r = ref_new(model, 2, SEED);
	float *weights = conform_weights(c);
	int64_t in = product(k->in), out = product(k->out);
	/* in the middle, and at the ends of tensors, which vectors of a loop may leave over */
	const int64_t at[] = { in / 2 + 1, 2 * in + out - 1, in, in + out / 2 + 1, 2 * (in + out) - 1 };
	bool good = true;

	r->round = chain_dtype == PD_F32 ? NULL : conform_round;
	conform_import(r, weights);
	for (size_t i = 0; i < PD_COUNT(at); i++)
		for (size_t n = 0; n < PD_COUNT(numbers); n++)
			good = one_case(k, c, r, at[i], pd_bits_float(numbers[n])) && good;
	ok(good, "%s: %s", chain_name(ops), k->what);
	free(weights);
	ref_free(r);
	chain_close(c);
	pd_model_free(model);
}

static void test_curve(const struct pd_device_ops *ops, const char *name)
{
	bool spreads = strcmp(name, "gelu") == 0;	/* oneDNN 3 makes a NaN of its infinity, with AVX-512 */
	static const struct {
		const char *what, *in, *out, *before, *input;
	} at[] = {
		{ "", "7, 6", "7, 6", "", "p" }, { " of blocks", "16, 5, 6", "16, 5, 6", BLOCKED, "c" },
		{ " of padded blocks", "1, 8, 8", "2, 8, 8", PADDED, "c" },
	};

	for (size_t i = 0; i < PD_COUNT(at); i++) {
		char *what = pd_format("%s%s", name, at[i].what);
		char *layers = pd_format("%s{'name': 'it', 'kind': '%s', 'inputs': ['%s']}", at[i].before, name,
					 at[i].input);

		test_case(ops, &(struct kind_case){ what, at[i].in, at[i].out, layers,
						    spreads || i == 2 });
		free(what);
		free(layers);
	}
}

static void test_curves(const struct pd_device_ops *ops)
{
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	if (strcmp(#shape, "same") == 0) \
		test_curve(ops, #name);
#include "model/layer_kind.def"
#undef LAYER_KIND
}

int main(void)
{
	for (int i = 0; pd_devices[i]; i++)
		for (int type = 0; type < chain_types(pd_devices[i]) && chain_usable(pd_devices[i]); type++) {
			if (!chain_take(pd_devices[i], type))
				continue;
			for (size_t k = 0; k < PD_COUNT(cases); k++)
				test_case(pd_devices[i], &cases[k]);
			test_curves(pd_devices[i]);
		}
	return done_testing();
}
