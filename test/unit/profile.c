/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "document.h"
#include "profile/spread.h"
#include "tap.h"

#include <math.h>

static struct pd_profile *parse(const char *text, struct pd_error *err)
{
	json_t *value = document_parse(text, err);
	struct pd_place root = pd_place_root("doc", value);
	struct pd_profile *profile = value ? pd_profile_parse_at(&root, err) : NULL;

	json_decref(value);
	return profile;
}

#define HEAD "'format': 'pd-profile', 'version': 1, 'name': 'p', "
#define DEVICE "'batch_size': 8, 'device': {'kind': 'cpu'}, "
#define COST "'forward_ns': 10, 'backward_ns': 20, 'activation_bytes': 30, 'parameter_bytes': 40"
#define MODEL "'model': {'format': 'pd-model', 'version': 1, 'name': 'm', 'inputs': [" \
	"{'name': 'x', 'dtype': 'f32', 'shape': [4]}], 'layers': [" \
	"{'name': 'a', 'kind': 'relu', 'inputs': ['x']}, " \
	"{'name': 'b', 'kind': 'tanh', 'inputs': ['a']}]}, "

static void test_fields(void)
{
	struct pd_profile *p = parse("{" HEAD DEVICE "'inputs': ['image'], 'layers': ["
		"{'name': 'b', 'inputs': ['a', 'image'], 'forward_ns': 1, 'backward_ns': 2, "
		"'activation_bytes': 3, 'parameter_bytes': 4, 'stash_bytes': 5, 'workspace_bytes': "
		"6, "
		"'backward_input_ns': 7, 'backward_weight_ns': 8, 'update_ns': 9, 'update_apart_ns': 13, 'spread': 0.5, "
		"'forward_workspace_bytes': 10, 'backward_workspace_bytes': 11, 'state_bytes': 12, "
		"'algorithms': 20103, 'engines': 'data 7 2=5', 'in_place': true, 'passes_gradient': true},"
		"{'name': 'a', 'inputs': ['image'], " COST "}]}", NULL);
	const struct pd_profile_layer *a, *b;

	if (!ok(p, "a profile without a model is read"))
		return;
	a = &p->layers[0];
	b = &p->layers[1];
	is_str(a->name, "a", "in topological order");
	is_int(a->stash_bytes, 30, "the stash is the activation where absent");
	ok(a->backward_input_ns == -1 && a->backward_weight_ns == -1, "backward is not split");
	ok(a->forward_workspace_bytes == -1 && a->backward_workspace_bytes == -1 && !a->in_place && !a->passes_gradient,
	   "what the device lays out by is not said");
	ok(a->update_apart_ns == -1 && pd_profile_apart_ns(a) == 0 && pd_profile_apart_ns(b) == 13,
	   "an update into another buffer takes as long as one in place, where it is not said");
	ok(a->workspace_bytes == 0 && a->update_ns == 0 && a->spread == 0, "zero where absent");
	is_int(a->input_count, 0, "what is not a layer is left out");
	ok(b->input_count == 1 && b->inputs[0] == 0, "inputs follow the order");
	ok(b->forward_ns == 1 && b->backward_ns == 2 && b->activation_bytes == 3 &&
	   b->parameter_bytes == 4 && b->stash_bytes == 5 && b->workspace_bytes == 6 &&
	   b->backward_input_ns == 7 && b->backward_weight_ns == 8 && b->update_ns == 9 &&
	   b->spread == 0.5 && b->forward_workspace_bytes == 10 &&
	   b->backward_workspace_bytes == 11 && b->state_bytes == 12 && b->in_place &&
	   b->passes_gradient && b->algorithms == 20103 && a->algorithms == 0, "every number is where it belongs");
	is_str(b->engines, "data 7 2=5", "the device's words");
	ok(!a->engines, "none where absent");
	is_str(pd_dtype_name[p->dtype], "f32", "dtype");
	is_str(p->device_name, "cpu", "a device without a name has its kind's");
	is_int(pd_profile_find(p, "b"), 1, "find");
	is_int(pd_profile_find(p, "image"), -1, "an input is not a layer");
	pd_profile_free(p);
}

/* A layer of so many bytes of output and of parameters. */
#define LAYER(name, inputs, bytes, parameters) "{'name': '" name "', 'inputs': [" inputs "], " \
	"'forward_ns': 1, 'backward_ns': 2, 'activation_bytes': " bytes ", 'parameter_bytes': " \
	parameters "}"
/* A profile of layers, of which relu, and drop behind it, may work in place. */
#define IN_PLACE(more) "{" HEAD DEVICE "'inputs': ['x'], 'layers': [" \
	LAYER("first", "'x'", "30", "0") ", " LAYER("conv", "'first'", "30", "40") ", " \
	LAYER("relu", "'conv'", "30", "0") ", " LAYER("drop", "'relu'", "30", "0") ", " \
	LAYER("norm", "'drop'", "30", "8") ", " LAYER("mask", "'norm', 'x'", "30", "0") ", " \
	LAYER("left", "'mask'", "30", "0") ", " LAYER("right", "'mask'", "30", "0") ", " \
	LAYER("twice", "'right', 'right'", "30", "0") ", " LAYER("add", "'left', 'twice'", "30", "0") \
	", " LAYER("pool", "'add'", "20", "0") more "]}"

static void is_stash(const char *text, const char *expected)
{
	struct pd_profile *p = parse(text, NULL);
	char said[200] = "";

	for (int l = 0; p && l < p->layer_count; l++)
		if (p->layers[l].stash_bytes == 0)
			snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s ",
				 p->layers[l].name);
	is_str(said, expected, "made in place: %s", *expected ? expected : "nothing");
	pd_profile_free(p);
}

static void test_in_place(void)
{
	is_stash(IN_PLACE(""), "relu drop ");
	is_stash(IN_PLACE(", {'name': 'last', 'inputs': ['pool'], 'stash_bytes': 1, " COST "}"), "");
	is_stash(IN_PLACE(", {'name': 'last', 'inputs': ['pool'], 'stash_bytes': 0, " COST "}"),
		 "last ");
	is_stash("{" HEAD MODEL DEVICE "'layers': [" LAYER("a", "'x'", "30", "0") ", "
		 LAYER("b", "'a'", "30", "0") "]}", "");
}

static void test_model(void)
{
	struct pd_profile *p = parse("{" HEAD MODEL DEVICE "'link': {'bandwidth_bytes_per_s': 5, "
		"'latency_ns': 6}, 'step_ns': 70, 'layers': [{'name': 'b', 'inputs': ['a'], "
		"'engines': 'forward 1', " COST "},"
		"{'name': 'a', 'inputs': ['x'], " COST "}]}", NULL), *again;
	struct pd_error err = { 0 };
	struct pd_place root;
	json_t *one, *two;

	if (!ok(p, "a profile with a model is read"))
		return;
	is_str(p->layers[0].name, "a", "in the model's order");
	one = pd_profile_json(p);
	root = pd_place_root("again", one);
	again = pd_profile_parse_at(&root, &err);
	if (!ok(again, "what was written is read"))
		diag("%s", err.text);
	two = again ? pd_profile_json(again) : NULL;
	ok(two && json_equal(one, two), "and written the same");
	ok(again && again->step_ns == 70 && again->link_latency_ns == 6 &&
	   again->link_bandwidth_bytes_per_s == 5 && again->batch_size == 8, "with all numbers");
	is_str(again && again->layers[1].engines ? again->layers[1].engines : "", "forward 1",
	       "and words");
	json_decref(one);
	json_decref(two);
	pd_profile_free(p);
	pd_profile_free(again);
}

#define LAYERS(layers) "{" HEAD DEVICE "'layers': [" layers "]}"
#define WITH_MODEL(layers) "{" HEAD MODEL DEVICE "'layers': [" layers "]}"

static void test_errors(void)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': -1, 'backward_ns': 0}"),
		  "doc: in \"a\", layers[0].forward_ns: expected a whole number from 0 to 9007199254740991, "
		  "found -1" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': 1.5}"), "found 1.5" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': 9007199254740992}"),
		  "found 9007199254740992" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': NaN}"), "not JSON" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': 1e400}"), "not JSON" },
		{ LAYERS("{'name': 'a', 'inputs': []}"), "layers[0].forward_ns: expected" },
		{ LAYERS("{'name': 'a', 'inputs': [], " COST "}, {'name': 'a', 'inputs': [], "
			 "" COST "}"),
		  "layers[1].name: \"a\" is the name of an earlier" },
		{ LAYERS("{'name': 'a', 'inputs': ['z'], " COST "}"),
		  "layers[0].inputs[0]: no input or layer is called \"z\"" },
		{ LAYERS("{'name': 'a', 'inputs': ['b'], " COST "}, {'name': 'b', 'inputs': ['a'], "
			 "" COST "}"),
		  "lies on a cycle" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'backward_input_ns': 3, " COST "}"),
		  "expected both of backward_input_ns and backward_weight_ns" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_workspace_bytes': 3, " COST "}"),
		  "expected both of forward_workspace_bytes and backward_workspace_bytes" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'in_place': 1, " COST "}"),
		  "layers[0].in_place: expected" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'passes_gradient': 1, " COST "}"),
		  "layers[0].passes_gradient: expected" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'engines': 1, " COST "}"),
		  "layers[0].engines: expected" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'spread': -1, " COST "}"),
		  "layers[0].spread" },
		{ LAYERS("{'name': 'a', 'inputs': [], 'forward_ns': 9007199254740991, "
			 "'backward_ns': 0, "
			 "'activation_bytes': 0, 'parameter_bytes': 0}, {'name': 'b', 'inputs': "
			 "[], " COST "}"),
		  "layers: the sum of forward_ns over the layers is 2^53 or more" },
		{ LAYERS(""), "expected 1 to 1000000 layers" },
		{ "{" HEAD "'layers': []}", "doc: batch_size: expected" },
		{ "{" HEAD "'batch_size': 0, 'layers': []}", "doc: batch_size: expected" },
		{ "{" HEAD "'batch_size': 1, 'device': {}, 'layers': []}", "doc: device.kind: "
		 "expected" },
		{ "{" HEAD DEVICE "'dtype': 'f33', 'layers': []}", "doc: dtype: expected one of \"f32\", \"bf16\", \"f16\"" },
		{ WITH_MODEL("{'name': 'a', 'inputs': ['x'], " COST "}"),
		  "layers: the model's layer \"b\" is missing" },
		{ WITH_MODEL("{'name': 'a', 'inputs': ['x'], " COST "}, {'name': 'c', 'inputs': "
			     "['a'], " COST "}"),
		  "layers[1]: layer \"c\" is not in the model" },
		{ WITH_MODEL("{'name': 'a', 'inputs': ['x'], " COST "}, {'name': 'b', 'inputs': "
			     "['x'], " COST "}"),
		  "layers[1].inputs: layer \"b\" has other inputs in the model" },
		{ "{" HEAD DEVICE "'model': {'format': 'pd-model', 'version': 1, 'name': 'm', "
		 "'inputs': 3}}",
		  "doc: model.inputs: expected an array, found 3" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "it was read" };
		struct pd_profile *profile = parse(cases[i].text, &err);

		if (!ok(!profile && err.status == PD_EXIT_USAGE && strstr(err.text,
									  cases[i].message),
			"refused: %s", cases[i].message))
			diag("%s", err.text);
		pd_profile_free(profile);
	}
}

/* What layers have of their own averages out, and what all have in common does not. */
static void test_spreads(void)
{
	struct pd_profile_layer layers[4] = { 0 };
	struct pd_profile profile = { .layer_count = 4, .layers = layers };
	struct pd_spread all;

	for (int l = 0; l < 4; l++) {
		layers[l].forward_ns = 1000;
		layers[l].spreads[PD_TIMED_FORWARD] = (struct pd_spread){ 0.9, 1.2 };
	}
	all = pd_spread_of(&profile, 0, 4, PD_TIMED_FORWARD);
	ok(fabs(all.low - 0.95) < 1e-12 && fabs(all.high - 1.1) < 1e-12, "four layers of 10 %% are off by 5 %%: %g, %g",
	   all.low, all.high);
	profile.rounds.count = 9;
	profile.rounds.step = (struct pd_spread){ 0.88, 1 };
	all = pd_spread_of(&profile, 0, 4, PD_TIMED_FORWARD);
	ok(fabs(all.low - 0.87) < 1e-12 && fabs(all.high - 1.1) < 1e-12, "with 12 %% in common by 13 %%: %g, %g",
	   all.low, all.high);
	all = pd_spread_of(&profile, 0, 4, PD_TIMED_UPDATE);
	ok(all.low == 1 && all.high == 1, "what takes no time is not off");
}

int main(void)
{
	test_spreads();
	test_fields();
	test_in_place();
	test_model();
	test_errors();
	return done_testing();
}
