/* SPDX-License-Identifier: Apache-2.0 */
/* the name of a family of networks and sizes, a Hugging Face folder or an ONNX model -> model */
#include "base/opt.h"
#include "doors/network/named.h"
#include "model/summary.h"

#include <inttypes.h>
#include <stdio.h>

static struct pd_network_ask ask;
static bool list, summary;

static const struct pd_opt options[] = {
	PD_OPT_GROUP("Size"),
	{ "preset", 'p', PD_OPT_STRING, "NAME", "begin with a size that has a name (--list)", &ask.preset },
#define NETWORK_OPTION(field, option, kind, argument, least, most, help)                        \
	{ option, 0, PD_OPT_##kind, argument, help, &ask.size.field, least, most },
#define NETWORK_CHOICE(field, option, names, argument, help)                                    \
	{ option, 0, PD_OPT_CHOICE, argument, help, &ask.size.field, .choices = names },
#define NETWORK_GROUP(title) PD_OPT_GROUP(title),
#include "network/option.def"
	PD_OPT_GROUP("Document"),
	{ "name", 'n', PD_OPT_STRING, "NAME", "the model's name", &ask.name },
	{ "loss", 0, PD_OPT_CHOICE, "NAME", "of an ONNX model: cross-entropy (default) or mse", &ask.loss,
	  .choices = pd_onnx_loss_name },
	{ "freeze", 0, PD_OPT_STRING, "NAME,...", "leave the parameters of layers of these names as they are", &ask.frozen },
	{ "summary", 's', PD_OPT_FLAG, NULL, "print layers, shapes and parameters as a table", &summary },
	{ "list", 'l', PD_OPT_FLAG, NULL, "list families and presets with their sizes, and end", &list,
	  .excludes = "preset name loss freeze summary" },
	{ NULL }
};

static const struct pd_command command = {
	.name = "pd-model",
	.synopsis = "[OPTION]... FAMILY | PRESET | FOLDER | FILE.onnx | FILE.json",
	.summary = "Write a network as a model document: a family, a Hugging Face folder, ONNX.",
	.options = options,
	.max_operands = 1,
};

static int print_preset(const struct pd_family *family, const struct pd_preset *of,
			struct pd_error *err)
{
	json_t *document = pd_network_document(family, of, &ask.size, NULL, err);
	struct pd_model *model = document ? pd_model_parse("the network", document, err) : NULL;

	if (model)
		printf("  %-18s%14" PRId64 "  %s\n", of->name, pd_model_parameters(model), of->size);
	json_decref(document);
	pd_model_free(model);
	return model ? 0 : -1;
}

/* Families, and below each its presets with their parameters and in what they differ. */
static int print_list(struct pd_error *err)
{
	for (const struct pd_family *const *family = pd_families; *family; family++) {
		printf("%s: %s\n", (*family)->name, (*family)->what);
		for (const struct pd_preset *of = (*family)->presets; of->name; of++)
			if (print_preset(*family, of, err) < 0)
				return -1;
	}
	return 0;
}

static int write_network(const char *what, struct pd_error *err)
{
	struct pd_named_network network;
	int status;

	ask.quiet = summary;
	if (pd_network_named(what, &ask, &network, err) < 0)
		return -1;
	status = summary ? pd_model_summary(network.model, stdout, err)
			 : pd_network_write(network.document, stdout, err);
	pd_named_network_release(&network);
	return status;
}

int main(int argc, char **argv)
{
	struct pd_error err;
	int first;

	pd_network_ask_init(&ask);
	first = pd_command_parse(&command, argc, argv);
	if (pd_output_check(&err) < 0 ||
	    (list ? print_list(&err) : write_network(first < argc ? argv[first] : NULL, &err)) < 0)
		return pd_command_fail(&err);
	return pd_command_end(PD_EXIT_YES);
}
