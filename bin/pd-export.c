/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint -> the parameters as the program has them that the network comes from */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "doors/tensors/export.h"

#include <inttypes.h>
#include <string.h>

static struct pd_export what = { .dtype = -1 };
static const char *model_file;
static bool quiet;

static const struct pd_opt options[] = {
	{ "output", 'o', PD_OPT_STRING, "FOLDER", "write into this folder, which is new or empty", &what.folder },
	{ "dtype", 0, PD_OPT_CHOICE, "NAME", "type: f32, bf16, f16, f64 (default: the source's, else f32)",
	  &what.dtype, .choices = pd_export_dtypes },
	{ "shard-bytes", 0, PD_OPT_BYTES, "BYTES", "several files, each with at most BYTES, such as 5GB",
	  &what.shard_bytes, 1 },
	{ "model", 'm', PD_OPT_STRING, "FILE", "take the names from this model, profile or plan", &model_file },
	{ "quiet", 'q', PD_OPT_FLAG, NULL, "do not say what was written", &quiet },
	{ 0 }
};

static const struct pd_command command = {
	.name = "pd-export",
	.synopsis = "-o FOLDER [OPTION]... CHECKPOINT",
	.summary = "Write the parameters of a checkpoint as PyTorch and transformers have them.",
	.options = options,
	.max_operands = 1,
};

/* The model in a model, profile or plan; NULL: an error. */
static struct pd_model *read_model(const char *file, struct pd_error *err)
{
	json_t *value = pd_json_load_most(file, PD_MAX_LAYERS, err);
	struct pd_place root = pd_place_root(pd_document_name(file), value), profile = root, place = root;
	const char *format = pd_member_text(value, "format");
	struct pd_model *model = NULL;

	if (!value)
		return NULL;
	if (format && strcmp(format, "pd-plan") == 0)
		profile = place = pd_place_key(&root, "profile");
	if (format && strcmp(format, "pd-model") != 0)
		place = pd_place_key(&profile, "model");
	if (place.value)
		model = pd_model_parse_at(&place, err);
	else
		pd_place_expected(&place, err, "a model");
	json_decref(value);
	return model;
}

static void say(const struct pd_exported *done)
{
	pd_say("%s: step %" PRId64 ", %zu tensors of %s, %" PRId64 " bytes%s%s", what.folder, done->step,
	       done->tensors, done->dtype, done->bytes, done->files > 1 ? ", in several files" : "",
	       done->configured ? ", with config.json" : "");
}

static int run(const char *checkpoint, struct pd_error *err)
{
	struct pd_exported done;
	struct pd_model *model = NULL;
	int status;

	if (!checkpoint)
		return pd_error_input(err, "expected a checkpoint: a folder such as DIR/step-000000001500, or DIR for "
				      "the newest in it");
	if (!what.folder || !*what.folder)
		return pd_error_input(err, "expected --output=FOLDER, a new folder for what is written");
	if (model_file) {
		what.model = model = read_model(model_file, err);
		if (!model)
			return pd_error_prefix(err, "--model");
	}
	what.checkpoint = checkpoint;
	status = pd_export(&what, &done, err);
	if (status == 0 && !quiet)
		say(&done);
	pd_model_free(model);
	return status;
}

int main(int argc, char **argv)
{
	int first = pd_command_parse(&command, argc, argv);
	struct pd_error err;

	pd_mem_for("the tensor that is written");
	return run(first < argc ? argv[first] : NULL, &err) < 0 ? pd_command_fail(&err)
								 : pd_command_end(PD_EXIT_YES);
}
