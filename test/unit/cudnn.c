/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what cuDNN answers about the convolutions of models, on GPUs that this machine need not have:
 *
 *     cudnn {[-t TYPE] -g GPU.json}... MODEL.json...
 *
 * In every type (after -t in that one), for each distinct convolution and each of its passes, the
 * library accepts the graph that lib/run/device/cuda makes, and has deterministic engines for it that keep
 * to the arithmetic and to the workspace; an engine that is made from its written name is the
 * engine that was proposed.  Algorithms of the library's older calls, which come before engines
 * if nothing is timed, cannot be asked for without a GPU.
 */
#include "described.h"
#include "tap.h"

#include "base/error.h"
#include "base/mem.h"
#include "model/model.h"
#include "run/device/cuda/cuda.h"
#include "run/device/cuda/descriptor.h"

#include <getopt.h>
#include <stdlib.h>

#define BATCH 64
#define SHAPES 256
#define GPUS 8

struct arithmetic {
	const char *name;
	enum pd_dtype dtype;
	bool tf32;
};

/* Counts for one arithmetic and pass; `refused` to `large` count shapes with such a failure. */
struct tally {
	int shapes, proposed, deterministic, planned;
	int refused, without, loose, renamed, changed, large;
	int turned;             /* have their channels first, in 16 bits and without groups */
	size_t most;
};

struct shape {
	int64_t in[3], out[3], kernel[4], stride[2], padding[2], dilation[2], groups;
	bool bias, relu, last, transposed;
};

struct seen {
	int count;
	struct shape shapes[SHAPES];
};

/* Returns the library's description of a plan; the caller frees it. */
static char *plan_text(cudnnBackendDescriptor_t plan)
{
	int64_t bytes = 0;
	char *text = NULL;

	if (plan && get(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
			&bytes, NULL)) {
		text = pd_calloc((size_t)bytes + 1, 1);
		if (!get(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
			 bytes, &bytes, text))
			text[0] = '\0';
	}
	return text;
}

/* Returns the description of the plan of the heuristics' first proposal, in their own configuration. */
static char *proposed_text(const struct pd_dnn_graph *g)
{
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnHandle_t none = NULL;
	struct pd_dnn_bag bag = { .count = 0 };
	cudnnBackendDescriptor_t d = create(&bag, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), config, plan;
	int64_t count = 0;
	char *text = NULL;

	d = finish(d, set_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph) &&
		   set(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
	config = create(&bag, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	plan = create(&bag, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	if (d && get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
		     &config) && count == 1)
		text = plan_text(finish(plan, set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
						  CUDNN_TYPE_HANDLE, 1, &none) &&
					set_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
						 config)));
	empty(&bag);
	return text;
}

static bool same(const char *a, const char *b)
{
	return a && b && a[0] && strcmp(a, b) == 0;
}

/* Tells whether the engine is as asked for by its notes; its descriptor is the first in the bag. */
static bool promises(const struct pd_dnn_engine *e, bool exact)
{
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	unsigned bad = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
		       1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
		       1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION |
		       (exact ? 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE : 0);
	unsigned has = 0;
	int64_t n = 0;

	if (!get(e->bag.all[0], CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
		 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes))
		return false;
	for (int64_t i = 0; i < n; i++)
		has |= 1u << notes[i];
	return (has & bad) == 0;
}

/* Tells whether the engine, written down and read again, is the same, with the same plan. */
static bool comes_back(const struct pd_dnn_graph *g, const struct pd_dnn_engine *e, int way)
{
	char text[PD_ENGINE_TEXT], *before = plan_text(e->plan), *after = NULL;
	struct pd_dnn_engine again = { .plan = NULL };
	struct pd_engine_name name;
	bool good = false;

	pd_engine_print(text, way, &e->name);
	if (pd_engine_find(text, way, &name) && pd_dnn_engine_open(&again, g, NULL, &name) == 0) {
		after = plan_text(again.plan);
		good = same(before, after) && again.workspace == e->workspace;
		pd_dnn_engine_close(&again);
	}
	free(before);
	free(after);
	return good;
}

/* Adds the engines of a graph to *t; returns false if something is wrong. */
static bool ask_engines(const struct pd_dnn_graph *g, int way, bool exact, struct tally *t)
{
	struct pd_engine_name *names = pd_calloc(PD_DNN_ENGINES, sizeof(*names));
	int n = pd_dnn_propose(g, names), planned = 0;
	bool loose = false, renamed = false, changed = false, large = false;
	char *first = NULL, *proposed = NULL;

	for (int i = 0; i < n; i++) {
		struct pd_dnn_engine e = { .plan = NULL };
		int before = double_described_plans();
		bool opened = pd_dnn_engine_open(&e, g, NULL, &names[i]) == 0;

		t->deterministic += double_described_plans() - before;
		if (!opened)
			continue;
		planned++;
		loose |= !promises(&e, exact);
		renamed |= !comes_back(g, &e, way);
		large |= e.workspace > PD_CUDA_WORKSPACE_MOST;
		t->most = e.workspace > t->most ? e.workspace : t->most;
		if (i == 0) {
			first = plan_text(e.plan);
			proposed = proposed_text(g);
			changed = !same(first, proposed);
		}
		pd_dnn_engine_close(&e);
	}
	t->proposed += n;
	t->planned += planned;
	t->without += planned == 0;
	t->loose += loose;
	t->renamed += renamed;
	t->changed += changed;
	t->large += large;
	free(first);
	free(proposed);
	free(names);
	return planned > 0 && !loose && !renamed && !changed && !large;
}

static void ask(const struct pd_compiled_layer *l, int way, const struct arithmetic *a, bool relu,
		struct tally *t)
{
	struct pd_dnn_graph g = { .graph = NULL };

	t->shapes++;
	if (pd_dnn_graph_open(&g, l, way, relu) < 0) {
		t->refused++;
		diag("%s, %s: \"%s\" of %s: no graph", a->name, pd_engine_way(way), l->layer->name,
		     l->net->model->name);
		return;
	}
	if (!ask_engines(&g, way, a->dtype == PD_F32 && !a->tf32, t))
		diag("%s, %s: \"%s\" of %s", a->name, pd_engine_way(way), l->layer->name,
		     l->net->model->name);
	pd_dnn_graph_close(&g);
}

/* Tells whether this is the first such convolution. */
static bool is_new(struct seen *seen, const struct pd_compiled_layer *l, bool relu)
{
	const struct pd_layer *a = l->layer;
	struct shape s;

	memset(&s, 0, sizeof(s));
	memcpy(s.in, l->in_shape[0]->size, sizeof(s.in));
	memcpy(s.out, a->output.size, sizeof(s.out));
	memcpy(s.kernel, a->parameters[0].size, sizeof(s.kernel));
	memcpy(s.stride, a->stride, sizeof(s.stride));
	memcpy(s.padding, a->padding, sizeof(s.padding));
	memcpy(s.dilation, a->dilation, sizeof(s.dilation));
	s.groups = a->groups;
	s.bias = a->bias;
	s.relu = relu;
	s.last = pd_cuda_conv_last(l);
	s.transposed = a->transposed;
	for (int i = 0; i < seen->count; i++)
		if (memcmp(&seen->shapes[i], &s, sizeof(s)) == 0)
			return false;
	if (seen->count < SHAPES)
		seen->shapes[seen->count++] = s;
	return true;
}

static const struct pd_compiled_kind *const kinds[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	[PD_LAYER_##name] = &pd_cuda_##name,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

static void ask_model(const struct pd_model *model, const struct arithmetic *a, struct seen *seen,
		      struct tally tallies[PD_PROPAGATIONS])
{
	struct pd_cuda_engine engine = { .tf32 = a->tf32 };
	struct pd_compiled net = {
		.model = model, .engine = &engine, .batch = BATCH, .dtype = a->dtype,
		.layers = pd_calloc((size_t)model->layer_count, sizeof(*net.layers)),
	};

	for (int i = 0; i < model->layer_count; i++)
		net.layers[i].kind = kinds[model->layers[i].kind];
	engine.last = pd_cuda_wants_last(&net, a->tf32);
	for (int i = 0; i < model->layer_count; i++) {
		const struct pd_layer *layer = &model->layers[i];
		const struct pd_shape *in = pd_model_shape(model, layer->inputs[0]);
		struct pd_compiled_layer l = {
			.net = &net, .layer = layer, .index = i, .in_shape = &in,
		};
		bool relu;

		if (layer->kind != PD_LAYER_conv2d && layer->kind != PD_LAYER_conv_transpose2d)
			continue;
		relu = pd_cuda_does_relu(&net, i);
		if (!is_new(seen, &l, relu))
			continue;
		tallies[PD_FORWARD].turned += a->dtype != PD_F32 && in->dims == 3 && layer->groups == 1 &&
					      !pd_cuda_conv_last(&l);
		for (int way = 0; way < PD_PROPAGATIONS; way++)
			ask(&l, way, a, relu, &tallies[way]);
	}
	free(net.layers);
}

static void judge(const struct arithmetic *a, const struct tally tallies[PD_PROPAGATIONS])
{
	if (a->dtype != PD_F32)
		ok(tallies[PD_FORWARD].turned == 0,
		   "%s: a convolution without groups has its channels last, whatever is beside it", a->name);
	for (int way = 0; way < PD_PROPAGATIONS; way++) {
		const struct tally *t = &tallies[way];
		const char *of = pd_engine_way(way);

		diag("%-5s %-8s %4d shapes %5d proposals %5d deterministic %5d plans, "
		     "at most %.1f MiB", a->name, of, t->shapes, t->proposed, t->deterministic,
		     t->planned, (double)t->most / (1 << 20));
		ok(t->shapes > 0 && t->refused == 0, "%s, %s: every graph is taken", a->name, of);
		ok(t->planned > 0 && t->without == 0,
		   "%s, %s: every graph has an engine that may be taken", a->name, of);
		ok(t->planned > 0 && t->loose == 0,
		   "%s, %s: engines are deterministic and keep to the arithmetic", a->name, of);
		ok(t->planned > 0 && t->renamed == 0 && t->changed == 0,
		   "%s, %s: an engine's name makes the same plan", a->name, of);
		ok(t->planned > 0 && t->large == 0, "%s, %s: workspaces are within the limit",
		   a->name, of);
	}
}

static void ask_gpu(const char *type, struct pd_model *const *models, int count)
{
	static const struct arithmetic all[] = {
		{ "f32", PD_F32, false }, { "TF32", PD_F32, true }, { "bf16", PD_BF16, false },
		{ "f16", PD_F16, false },
	};

	for (size_t i = 0; i < PD_COUNT(all); i++) {
		struct tally tallies[PD_PROPAGATIONS] = { 0 };
		struct seen seen = { .count = 0 };

		if (type && strcmp(type, all[i].name) != 0)
			continue;
		for (int m = 0; m < count; m++)
			ask_model(models[m], &all[i], &seen, tallies);
		judge(&all[i], tallies);
	}
}

/* Tests with the GPU that the file describes, in that type, or in all if it is NULL. */
static void test_gpu(const char *file, const char *type, struct pd_model *const *models, int count)
{
	FILE *f = fopen(file, "r");
	char json[4096];
	size_t bytes = f ? fread(json, 1, sizeof(json), f) : 0;
	int opened;

	if (f)
		fclose(f);
	opened = double_described_open(json, bytes);
	if (opened == 0)
		return skip("this cuDNN takes no description of a GPU", file);
	if (ok(opened > 0, "cuDNN takes %s for a GPU", file))
		ask_gpu(type, models, count);
	double_described_close();
}

int main(int argc, char **argv)
{
	const char *gpus[GPUS], *types[GPUS], *type = NULL;
	struct pd_model **models = pd_calloc((size_t)argc, sizeof(*models));
	int gpu_count = 0, model_count = 0, option;
	struct pd_error err = { 0 };

	while ((option = getopt(argc, argv, "g:t:")) != -1 && option != '?' && gpu_count < GPUS) {
		if (option == 't') {
			type = optarg;
			continue;
		}
		types[gpu_count] = type;
		gpus[gpu_count++] = optarg;
	}
	for (int i = optind; i < argc; i++) {
		models[model_count] = pd_model_read(argv[i], &err);
		if (!ok(models[model_count] != NULL, "%s can be read", argv[i]))
			return done_testing();
		model_count++;
	}
	for (int i = 0; i < gpu_count; i++)
		test_gpu(gpus[i], types[i], models, model_count);
	for (int i = 0; i < model_count; i++)
		pd_model_free(models[i]);
	free(models);
	return done_testing();
}
