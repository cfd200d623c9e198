/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX files: what is in them, here or beside them, and what is refused. */
#include "doors/onnx/proto/onnx.h"

#include "base/half.h"
#include "base/mem.h"
#include "doors/onnx/proto/onnx.pb-c.h"
#include "scratch.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *file;

static void write_model(const Onnx__ModelProto *model)
{
	uint8_t *bytes = pd_zalloc(onnx__model_proto__get_packed_size(model) + 1);

	scratch_write(file, bytes, onnx__model_proto__pack(model, bytes));
	free(bytes);
}

/* Writes a model with one tensor. */
static void write_tensor(Onnx__TensorProto *tensor)
{
	Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
	Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;

	tensor->name = (char *)"w";
	graph.n_initializer = 1;
	graph.initializer = &tensor;
	model.graph = &graph;
	model.has_ir_version = true;
	model.ir_version = 10;
	write_model(&model);
}

static void refused(const char *what)
{
	struct pd_error err = { .text = "" };
	struct pd_onnx *onnx = pd_onnx_open(file, &err);

	ok(!onnx && one_sentence(&err, PD_EXIT_USAGE, file, what), "refused: %s", what);
	if (onnx || !strstr(err.text, what))
		diag("%s", err.text);
	pd_onnx_close(onnx);
}

/* The tensor "w" is there, but its data are not to be had. */
static void unreadable(const char *what)
{
	struct pd_error err = { .text = "" };
	struct pd_onnx *onnx = pd_onnx_open(file, &err);
	float out[16];
	int result = onnx ? pd_onnx_read(onnx, pd_onnx_find(onnx, "w"), out, &err) : 0;

	ok(onnx && result < 0 && one_sentence(&err, PD_EXIT_USAGE, "w", what), "not read: %s", what);
	if (!strstr(err.text, what))
		diag("%s", err.text);
	pd_onnx_close(onnx);
}

static void test_exported(const char *name, const char *tensor, int64_t rows, float first)
{
	struct pd_error err = { .text = "" };
	char *path = pd_format("%s/test/data/import/%s/model.onnx", getenv("PD_SOURCE"), name);
	struct pd_onnx *onnx = pd_onnx_open(path, &err);
	struct pd_onnx_tensor *found = onnx ? pd_onnx_find(onnx, tensor) : NULL;
	float *out = found ? pd_calloc((size_t)found->elements, sizeof(*out)) : NULL;

	ok(found && found->size[0] == rows && strcmp(pd_onnx_type_name(found->type), "F32") == 0 &&
	   pd_onnx_read(onnx, found, out, &err) == 0 && out[0] == first, "%s: %s %s", name, tensor, err.text);
	ok(onnx && onnx->opset == 23 && onnx->inputs == 1 && onnx->input[0].dims > 1 &&
	   onnx->outputs == 1 && !pd_onnx_find(onnx, "absent"), "%s: its graph", name);
	free(out);
	pd_onnx_close(onnx);
	free(path);
}

static void test_scopes(void)
{
	struct pd_error err = { .text = "" };
	char *path = pd_format("%s/test/data/import/convnet/model.onnx", getenv("PD_SOURCE"));
	struct pd_onnx *onnx = pd_onnx_open(path, &err);
	const struct pd_onnx_node *conv = NULL;

	for (size_t i = 0; onnx && !conv && i < onnx->nodes; i++)
		if (strcmp(onnx->node[i].op, "Conv") == 0)
			conv = &onnx->node[i];
	is_str(conv ? conv->scope : err.text, "stem.0", "the module of a node");
	ok(conv && pd_onnx_attribute(conv, "strides", PD_ONNX_INTEGERS) &&
	   !pd_onnx_attribute(conv, "strides", PD_ONNX_NUMBER), "attributes by name and kind");
	pd_onnx_close(onnx);
	free(path);
}

static void is_read(int type, Onnx__TensorProto *tensor, const char *what)
{
	struct pd_error err = { .text = "" };
	struct pd_onnx_tensor *found;
	struct pd_onnx *onnx;
	float out[2] = { 0 };
	double wide[2] = { 0 };

	tensor->has_data_type = true;
	tensor->data_type = type;
	tensor->n_dims = 1;
	tensor->dims = (int64_t[]){ 2 };
	write_tensor(tensor);
	onnx = pd_onnx_open(file, &err);
	found = onnx ? pd_onnx_find(onnx, "w") : NULL;
	ok(found && pd_onnx_read_doubles(onnx, found, wide, &err) == 0 && wide[0] == 1 && wide[1] == -2 &&
	   (pd_onnx_is_integer(type) || (pd_onnx_read(onnx, found, out, &err) == 0 && out[1] == -2)),
	   "%s %s", what, err.text);
	pd_onnx_close(onnx);
}

static void raw(int type, const void *bytes, size_t count)
{
	Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;

	tensor.has_raw_data = true;
	tensor.raw_data = (ProtobufCBinaryData){ count, (uint8_t *)bytes };
	is_read(type, &tensor, pd_onnx_type_name(type));
}

static void test_types(void)
{
	Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;
	uint16_t bf16[] = { pd_to_bf16(1), pd_to_bf16(-2) }, f16[] = { pd_to_f16(1), pd_to_f16(-2) };

	raw(PD_ONNX_F32, (float[]){ 1, -2 }, 8);
	raw(PD_ONNX_F64, (double[]){ 1, -2 }, 16);
	raw(PD_ONNX_BF16, bf16, sizeof(bf16));
	raw(PD_ONNX_F16, f16, sizeof(f16));
	raw(PD_ONNX_I64, (int64_t[]){ 1, -2 }, 16);
	raw(PD_ONNX_I32, (int32_t[]){ 1, -2 }, 8);
	raw(PD_ONNX_I8, (int8_t[]){ 1, -2 }, 2);
	tensor.n_float_data = 2;
	tensor.float_data = (float[]){ 1, -2 };
	is_read(PD_ONNX_F32, &tensor, "F32 in a field of its own");
	tensor.n_float_data = 0;
	tensor.n_int32_data = 2;
	tensor.int32_data = (int32_t[]){ bf16[0], bf16[1] };
	is_read(PD_ONNX_BF16, &tensor, "BF16 in a field of whole numbers");
}

static void beside(const char *location, const char *offset, const char *length)
{
	Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;
	Onnx__StringStringEntryProto entry[3];
	const char *keys[] = { "location", "offset", "length" }, *values[] = { location, offset, length };
	Onnx__StringStringEntryProto *entries[] = { &entry[0], &entry[1], &entry[2] };

	for (int i = 0; i < 3; i++) {
		entry[i] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
		entry[i].key = (char *)keys[i];
		entry[i].value = (char *)values[i];
	}
	tensor.has_data_type = tensor.has_data_location = true;
	tensor.data_type = PD_ONNX_F32;
	tensor.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	tensor.n_dims = 1;
	tensor.dims = (int64_t[]){ 2 };
	tensor.n_external_data = 3;
	tensor.external_data = entries;
	write_tensor(&tensor);
}

static void test_beside(void)
{
	struct pd_error err = { .text = "" };
	struct pd_onnx *onnx;
	float out[2];

	scratch_write(scratch_path("data"), (float[]){ 0, 1, -2 }, 12);
	beside("data", "4", "8");
	onnx = pd_onnx_open(file, &err);
	ok(onnx && pd_onnx_read(onnx, pd_onnx_find(onnx, "w"), out, &err) == 0 && out[1] == -2,
	   "data in a file beside the model %s", err.text);
	pd_onnx_close(onnx);
	beside("absent", "0", "8");
	unreadable("cannot open");
	beside("../data", "0", "8");
	unreadable("in the model's folder");
	beside("a/../../data", "0", "8");
	unreadable("in the model's folder");
	beside(scratch_path("data"), "0", "8");
	unreadable("in the model's folder");
	beside("data", "8", "8");
	unreadable("at 8 of data");
	beside("data", "9223372036854775806", "8");
	unreadable("at 9223372036854775806 of data");
	beside("data", "4", "12");
	unreadable("a length of 12");
	beside("data", "-1", "8");
	refused("expected bytes");
}

/* Writes attributes with graphs that have nodes with such attributes, `depth` of them. */
static void write_nested(int depth)
{
	uint8_t *bytes = pd_zalloc((size_t)depth * 40), *at = bytes + (size_t)depth * 40, *end = at;
	static const uint8_t tags[] = { 0x2a, 0x0a, 0x32 };     /* node.attribute, graph.node, attribute.g */

	for (int i = 0; i <= 3 * depth; i++) {
		size_t inner = (size_t)(end - at);
		uint8_t prefix[8], count = 0;

		for (; inner >= 0x80; inner >>= 7)
			prefix[count++] = (uint8_t)(inner | 0x80);
		prefix[count++] = (uint8_t)inner;
		at = memcpy(at - count, prefix, count);
		*--at = i < 3 * depth ? tags[(i + 2) % 3] : 0x3a;       /* the outermost is the model's graph */
	}
	scratch_write(file, at, (size_t)(end - at));
	free(bytes);
}

static void test_damaged(void)
{
	Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;
	Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
	uint8_t *empty = pd_zalloc(4 << 20);

	write_model(&model);
	refused("found nothing in it");
	model.has_ir_version = true;
	write_model(&model);
	refused("without a graph");
	scratch_write(file, "\x08\x0a\x3a\x7f", 4);
	refused("is damaged");
	scratch_write(file, "{\"a\": 1}", 8);
	refused("found a JSON document");
	tensor.has_data_type = tensor.has_raw_data = true;
	tensor.data_type = PD_ONNX_F32;
	tensor.n_dims = 1;
	tensor.dims = (int64_t[]){ 3 };
	tensor.raw_data = (ProtobufCBinaryData){ 8, (uint8_t *)"\0\0\0\0\0\0\0" };
	write_tensor(&tensor);
	refused("expected 3 numbers of type F32, found 2");
	tensor.dims[0] = -1;
	write_tensor(&tensor);
	refused("size of an axis");
	write_nested(100000);
	refused("nested too deep");
	for (int i = 0; i < 2 << 20; i++)       /* graph.node, empty, again and again */
		empty[2 * i + 1] = 0x0a;
	memcpy(empty, "\x3a\xfa\xff\xff\x01", 5);
	scratch_write(file, empty, (4 << 20) - 1);
	refused("more than twice the file's bytes");
	free(empty);
}

int main(void)
{
	file = pd_strdup(scratch_path("model.onnx"));
	test_exported("convnet", "stem.0.weight", 8, -0.1904296875f);
	test_exported("gpt", "wpe.weight", 8, 0.361328125f);
	test_scopes();
	test_types();
	test_beside();
	test_damaged();
	free((char *)file);
	return done_testing();
}
