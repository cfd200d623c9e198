/* SPDX-License-Identifier: Apache-2.0 */
#include "network/builder.h"

#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const char *pd_network_name(struct pd_network *network, const char *fmt, ...)
{
	json_t *name;
	va_list ap;

	va_start(ap, fmt);
	name = json_vsprintf(fmt, ap);
	va_end(ap);
	pd_json_add(network->names, name);
	return json_string_value(name);
}

const char *pd_network_input(struct pd_network *network, const char *name, const char *dtype,
			     int dims, ...)
{
	json_t *shape = json_array();
	va_list ap;

	va_start(ap, dims);
	for (int d = 0; d < dims; d++)
		pd_json_add(shape, json_integer(va_arg(ap, int64_t)));
	va_end(ap);
	pd_json_add(network->inputs, json_pack("{s:s, s:s, s:o}", "name", name,
					       "dtype", dtype, "shape", shape));
	return name;
}

static json_t *words(const char *text)
{
	json_t *list = json_array();

	while (*text) {
		size_t length = strcspn(text, " ");

		pd_json_add(list, json_stringn(text, length));
		text += length + (text[length] == ' ');
	}
	return list;
}

const char *pd_network_layer(struct pd_network *network, const char *kind, const char *name,
			     const char *inputs, const char *attributes, ...)
{
	json_t *layer = json_pack("{s:s, s:s, s:o}", "name", name, "kind", kind, "inputs",
				  words(inputs)), *more;
	va_list ap;

	pd_json_add(network->layers, layer);
	if (!attributes)
		return pd_member_text(layer, "name");
	va_start(ap, attributes);
	more = json_vpack_ex(NULL, 0, attributes, ap);
	va_end(ap);
	if (!more)
		pd_bug("\"%s\" are no attributes of %s", attributes, name);
	json_object_update(layer, more);
	json_decref(more);
	return pd_member_text(layer, "name");
}

const char *pd_network_linear(struct pd_network *network, const char *name, const char *in,
			      int64_t features)
{
	return pd_network_layer(network, "linear", name, in, "{s:I}", "out_features",
				(json_int_t)features);
}

const char *pd_network_dropout(struct pd_network *network, const char *name, const char *in,
			       double p)
{
	return p > 0 ? pd_network_layer(network, "dropout", name, in, "{s:f}", "p", p) : in;
}

static void write_list(const json_t *document, const char *key, const char *between, FILE *out)
{
	const json_t *list = json_object_get(document, key), *value;
	size_t i;

	json_array_foreach(list, i, value) {
		fputs(i ? between : "", out);
		json_dumpf(value, out, JSON_REAL_PRECISION((size_t)pd_json_digits(value)));
	}
}

int pd_network_write(const json_t *document, FILE *out, struct pd_error *err)
{
	const json_t *source = json_object_get(document, "source");

	fputs("{\"format\": \"pd-model\", \"version\": 1, \"name\": ", out);
	json_dumpf(json_object_get(document, "name"), out, JSON_ENCODE_ANY);
	if (json_object_get(document, "dtype"))
		fprintf(out, ", \"dtype\": \"%s\"", pd_member_text(document, "dtype"));
	if (source) {
		fputs(",\n \"source\": ", out);
		json_dumpf(source, out, JSON_REAL_PRECISION((size_t)pd_json_digits(source)));
	}
	fputs(",\n \"inputs\": [", out);
	write_list(document, "inputs", ",\n            ", out);
	fputs("],\n \"layers\": [\n  ", out);
	write_list(document, "layers", ",\n  ", out);
	fputs("\n ]}\n", out);
	if (ferror(out))
		return pd_error_failed(err, "cannot write the document: %s", strerror(errno));
	return 0;
}
