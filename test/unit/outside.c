/* SPDX-License-Identifier: Apache-2.0 */
/* What the outside calls parameters: the keys "names" and "source" of a model. */
#include "model/outside.h"

#include "document.h"
#include "tap.h"

#define MODEL(more, layers) "{'format': 'pd-model', 'version': 1, 'name': 'm', " more "'inputs': [" \
	"{'name': 'x', 'dtype': 'f32', 'shape': [3, 4]}], 'layers': [" layers "]}"
#define LINEAR(name, features, more) "{'name': '" name "', 'kind': 'linear', 'inputs': ['x'], " \
	"'out_features': " #features more "}"

static struct pd_model *parse(const char *text, struct pd_error *err)
{
	json_t *value = document_parse(text, err);
	struct pd_model *model = value ? pd_model_parse("doc", value, err) : NULL;

	json_decref(value);
	return model;
}

/* Writes "NAME[3,4] alias: a.weight@0 b.weight@8; ..." of the model's table. */
static const char *shown(const char *text, char *out, size_t room)
{
	struct pd_error err = { .text = "" };
	struct pd_model *model = parse(text, &err);
	struct pd_outsides outsides;
	size_t used = 0;

	snprintf(out, room, "%s", err.text);
	if (!model || pd_outsides_make(model, false, &outsides, &err) < 0)
		return out;
	for (int i = 0; i < outsides.count; i++) {
		const struct pd_outside *o = &outsides.all[i];

		used += (size_t)snprintf(out + used, room - used, "%s%s[", i ? "; " : "", o->name);
		for (int d = 0; d < o->dims; d++)
			used += (size_t)snprintf(out + used, room - used, "%s%d", d ? "," : "", (int)o->size[d]);
		used += (size_t)snprintf(out + used, room - used, "]%s%s%s:", o->transposed ? " turned" : "",
					 o->alias ? " alias" : "", o->exported ? "" : " absent");
		for (int p = 0; p < o->part_count; p++)
			used += (size_t)snprintf(out + used, room - used, " %s.%s@%d",
						 model->layers[o->parts[p].layer].name,
						 o->parts[p].tensor->name, (int)o->parts[p].start);
	}
	pd_outsides_release(&outsides);
	pd_model_free(model);
	return out;
}

static void test_table(void)
{
	static const struct {
		const char *what, *text, *table;
	} cases[] = {
		{ "without names", MODEL("", LINEAR("a", 2, "")), "a.weight[2,4]: a.weight@0; a.bias[2]: a.bias@0" },
		{ "two names", MODEL("", LINEAR("a", 2, ", 'bias': false, 'names': {'weight': {'name': 'w', 'also': "
						"['v']}}")), "w[2,4]: a.weight@0; v[2,4] alias: a.weight@0" },
		{ "another name", MODEL("", LINEAR("a", 2, ", 'names': {'weight': 'w'}")),
		  "w[2,4]: a.weight@0; a.bias[2]: a.bias@0" },
		{ "transposed, side by side",
		  MODEL("", LINEAR("b", 3, ", 'bias': false, 'names': {'weight': {'name': 'w', 'transpose': true, "
				   "'start': 2}}") ","
			LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'transpose': true, 'start': 0}, "
			       "'bias': {'name': 'c', 'start': 0}}")),
		  "w[4,5] turned: a.weight@0 b.weight@2; c[2]: a.bias@0" },
		{ "other axes", MODEL("", LINEAR("a", 2, ", 'bias': false, 'names': {'weight': {'name': 'w', 'shape': "
					 "[1, 2, 2, 2]}}")), "w[1,2,2,2]: a.weight@0" },
		{ "shared, as PyTorch saves it",
		  MODEL("", LINEAR("a", 2, ", 'bias': false") "," LINEAR("b", 2, ", 'bias': false, 'shares': 'a'")),
		  "a.weight[2,4]: a.weight@0; b.weight[2,4] alias: a.weight@0" },
		{ "shared, without a name for the second layer in the source",
		  MODEL("'source': {'format': 'huggingface', 'config': {}}, ",
			LINEAR("a", 2, ", 'bias': false") "," LINEAR("b", 2, ", 'bias': false, 'shares': 'a'")),
		  "a.weight[2,4]: a.weight@0; b.weight[2,4] alias absent: a.weight@0" },
		{ "shared, under a name for each, or one for both",
		  MODEL("'source': {'format': 'onnx'}, ", LINEAR("a", 2, "") ","
			LINEAR("b", 2, ", 'shares': 'a', 'names': {'weight': 'w', 'bias': 'a.bias'}")),
		  "a.weight[2,4]: a.weight@0; a.bias[2]: a.bias@0; w[2,4] alias: a.weight@0" },
	};
	char out[512];

	for (size_t i = 0; i < PD_COUNT(cases); i++)
		is_str(shown(cases[i].text, out, sizeof(out)), cases[i].table, "%s", cases[i].what);
}

static void test_refused(void)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ MODEL("", LINEAR("a", 2, ", 'names': 3")), "layers[0].names: expected an object, found 3" },
		{ MODEL("", LINEAR("a", 2, ", 'bias': false, 'names': {'bias': 'b'}")),
		  "layers[0].names: linear \"a\" has no parameter or state \"bias\"" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': ''}")), "names.weight: expected a non-empty string" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'nam': 'b'}}")), "names.weight: unknown key \"nam\"" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'also': 'v'}}")),
		  "names.weight.also: expected an array, found \"v\"" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'also': [1]}}")),
		  "names.weight.also[0]: expected a non-empty string" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'start': 0}}")), "names.weight.name: expected " },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'start': -1}}")),
		  "names.weight.start: expected a whole number from 0" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'bias': {'name': 'w', 'transpose': true}}")),
		  "names.bias.transpose: \"bias\" has 1 axes: expected two" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'transpose': true, 'shape': [8]}}")),
		  "names.weight.shape: expected no \"transpose\" beside it" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'shape': [2, 3]}}")),
		  "names.weight.shape: expected a shape of 8 elements" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': {'name': 'w', 'shape': [8, 1000000, 1000000, "
				   "1000000, 1000000]}}")), "names.weight.shape[1]: expected a whole number from 1 to 8" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'weight': 'a.bias'}")),
		  "layers: \"a.weight\" and \"a.bias\" are both called \"a.bias\": expected a \"start\"" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'bias': {'name': 'w', 'start': 1}}")),
		  "layers: \"a.bias\" begins at row 1 of \"w\": expected 0" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'bias': {'name': 'w', 'start': 0}}") ","
			LINEAR("b", 2, ", 'names': {'bias': {'name': 'w', 'start': 1}}")),
		  "layers: \"b.bias\" begins at row 1 of \"w\": expected 2, without gap or overlap" },
		{ MODEL("", LINEAR("a", 2, ", 'names': {'bias': {'name': 'w', 'start': 0}, 'weight': {'name': 'w', "
				   "'start': 2}}")), "are both rows of \"w\": expected the same axes but for the first" },
		{ MODEL("'source': {'format': 'tf'}, ", LINEAR("a", 2, "")),
		  "source.format: expected one of \"huggingface\", \"onnx\", found \"tf\"" },
		{ MODEL("'source': {'format': 'onnx', 'config': {}}, ", LINEAR("a", 2, "")),
		  "source.config: expected none, since the format is \"onnx\"" },
		{ MODEL("'source': {'format': 'onnx', 'where': 1}, ", LINEAR("a", 2, "")),
		  "source: unknown key \"where\"" },
		{ MODEL("'source': [], ", LINEAR("a", 2, "")), "source: expected an object" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "it was read" };
		struct pd_model *model = parse(cases[i].text, &err);

		if (!ok(!model && err.status == PD_EXIT_USAGE && strstr(err.text, cases[i].message), "refused: %s",
			cases[i].message))
			diag("%s", err.text);
		pd_model_free(model);
	}
}

int main(void)
{
	test_table();
	test_refused();
	return done_testing();
}
