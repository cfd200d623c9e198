/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/tensors/export.h"

#include "base/directory.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "checkpoint/info.h"
#include "doors/tensors/initial.h"
#include "model/outside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Names of a type: as an option has it, in a file of tensors, and PyTorch's in a config.json. */
#define DTYPES(X) X("f32", "F32", "float32") X("bf16", "BF16", "bfloat16") X("f16", "F16", "float16") \
	X("f64", "F64", "float64")
#define FIRST(option, file, torch) option,
#define SECOND(option, file, torch) file,
#define THIRD(option, file, torch) torch,
const char *const pd_export_dtypes[] = { DTYPES(FIRST) NULL };
static const char *const file_dtypes[] = { DTYPES(SECOND) NULL };
static const char *const torch_dtypes[] = { DTYPES(THIRD) NULL };

struct exporting {
	const struct pd_export *what;
	struct pd_exported *done;
	const struct pd_model *model;
	struct pd_initial *from;
	struct pd_outsides outsides;
	int dtype;
	size_t count;
	struct pd_tensor *tensors;              /* by name */
	const struct pd_outside **outside;      /* that each of them is */
	size_t first;                           /* of the file that is being written */
	float *data, *turned;                   /* of one tensor: as it is here, and as it is there */
	char *unfinished;                       /* folder */
};

/* ---- one tensor ---- */

static int read_part(const struct exporting *x, const struct pd_outside_part *part, struct pd_error *err)
{
	int64_t width = part->tensor->elements / part->tensor->size[0];
	char *name = pd_format("%s.%s", x->model->layers[part->layer].name, part->tensor->name);
	int status = pd_initial_read(x->from, name, part->tensor->elements, x->data + part->start * width, err);

	free(name);
	return status;
}

/* Makes [inputs][outputs] of [outputs][inputs]. */
static void turn(const float *from, int64_t outputs, int64_t inputs, float *to)
{
	for (int64_t i = 0; i < inputs; i++)
		for (int64_t o = 0; o < outputs; o++)
			to[i * outputs + o] = from[o * inputs + i];
}

static const float *give(void *context, size_t number, struct pd_error *err)
{
	struct exporting *x = context;
	const struct pd_outside *outside = x->outside[x->first + number];
	size_t elements = (size_t)outside->elements;

	x->data = pd_regrow(x->data, elements, sizeof(*x->data));
	for (int p = 0; p < outside->part_count; p++)
		if (read_part(x, &outside->parts[p], err) < 0)
			return NULL;
	if (!outside->transposed)
		return x->data;
	x->turned = pd_regrow(x->turned, elements, sizeof(*x->turned));
	turn(x->data, outside->size[1], outside->size[0], x->turned);
	return x->turned;
}

/* ---- all tensors ---- */

static int by_name(const void *a, const void *b)
{
	const struct pd_outside *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static void list_tensors(struct exporting *x)
{
	const struct pd_outsides *all = &x->outsides;

	x->outside = pd_calloc((size_t)all->count, sizeof(*x->outside));
	x->tensors = pd_calloc((size_t)all->count, sizeof(*x->tensors));
	for (int i = 0; i < all->count; i++)
		if (all->all[i].exported)
			x->outside[x->count++] = &all->all[i];
	qsort(x->outside, x->count, sizeof(*x->outside), by_name);
	for (size_t i = 0; i < x->count; i++) {
		const struct pd_outside *outside = x->outside[i];
		struct pd_tensor *tensor = &x->tensors[i];

		tensor->name = outside->name;
		tensor->dtype = file_dtypes[x->dtype];
		tensor->dims = outside->dims;
		memcpy(tensor->size, outside->size, sizeof(outside->size));
		x->done->bytes += pd_tensor_bytes(tensor);
	}
	x->done->tensors = x->count;
}

/* Returns how many tensors from `first` on are in one file. */
static size_t shard(const struct exporting *x, size_t first)
{
	int64_t bytes = 0;
	size_t n = 0;

	while (first + n < x->count) {
		bytes += pd_tensor_bytes(&x->tensors[first + n]);
		if (n > 0 && x->what->shard_bytes > 0 && bytes > x->what->shard_bytes)
			break;
		n++;
	}
	return n;
}

static size_t count_files(const struct exporting *x)
{
	size_t files = 0;

	for (size_t first = 0; first < x->count; first += shard(x, first))
		files++;
	return files;
}

static int write_file(struct exporting *x, size_t count, const char *name, struct pd_error *err)
{
	char *path = pd_format("%s/%s", x->unfinished, name);
	json_t *metadata = json_pack("{s:s}", "format", "pt");
	uint64_t checksum;
	int status = pd_safetensors_write_each(path, x->tensors + x->first, count, metadata, give, x,
					       &checksum, err);

	json_decref(metadata);
	free(path);
	return status;
}

static int write_json(const struct exporting *x, const char *name, const json_t *value, struct pd_error *err)
{
	char *path = pd_format("%s/%s", x->unfinished, name);
	size_t digits = (size_t)pd_json_digits(value);
	struct pd_file file;
	int status = pd_file_create(&file, path, err);

	free(path);
	if (status < 0)
		return -1;
	json_dumpf(value, file.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));   /* the commit */
	fputc('\n', file.stream);                                                       /* finds a failure */
	return pd_file_commit(&file, err);
}

/* Writes the files, and which of them has a tensor where there are several. */
static int write_files(struct exporting *x, struct pd_error *err)
{
	size_t files = count_files(x), n = 0;
	json_t *map = json_object(), *index;
	int status = 0;

	for (size_t count; x->first < x->count && status == 0; x->first += count) {
		char *name = files == 1 ? pd_strdup("model.safetensors")
			: pd_format("model-%05zu-of-%05zu.safetensors", ++n, files);

		count = shard(x, x->first);
		for (size_t i = 0; i < count; i++)
			pd_json_set(map, x->tensors[x->first + i].name, json_string(name));
		status = write_file(x, count, name, err);
		free(name);
	}
	index = json_pack("{s:{s:I, s:I}, s:O}", "metadata", "total_parameters",
			  (json_int_t)pd_model_parameters(x->model), "total_size", (json_int_t)x->done->bytes,
			  "weight_map", map);
	if (status == 0 && files > 1)
		status = write_json(x, "model.safetensors.index.json", index, err);
	json_decref(index);
	json_decref(map);
	x->done->files = files;
	return status;
}

/* ---- config.json ---- */

static const char *dtype_key(const json_t *config)
{
	return json_object_get(config, "torch_dtype") ? "torch_dtype" : "dtype";
}

/* The type that the source says, or f32. */
static int source_dtype(const struct pd_model *model)
{
	const json_t *config = pd_model_config(model);
	const char *name = pd_member_text(config, dtype_key(config));
	int found = name ? pd_names_index(torch_dtypes, name) : 0;

	return found < 0 ? 0 : found;
}

/* As it was, but for the type of what is beside it. */
static int write_config(const struct exporting *x, struct pd_error *err)
{
	json_t *config = json_copy(pd_model_config(x->model));
	const char *key = dtype_key(config);
	int status = 0;

	if (config && (json_object_get(config, key) || x->dtype > 0))
		pd_json_set(config, key, json_string(torch_dtypes[x->dtype]));
	if (config)
		status = write_json(x, "config.json", config, err);
	x->done->configured = config;
	json_decref(config);
	return status;
}

/* ---- the folder ---- */

/* It is new, or empty. */
static int check_folder(const char *folder, struct pd_error *err)
{
	struct pd_directory all;
	size_t count;
	struct stat st;

	if (stat(folder, &st) != 0)
		return errno == ENOENT ? 0 : pd_error_input(err, "%s: cannot be made: %s", folder,
							    strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return pd_error_input(err, "%s: expected a new folder, found a file", folder);
	if (pd_directory_read(folder, &all) < 0)
		return pd_error_input(err, "%s: cannot read: %s", folder, strerror(errno));
	count = all.count;
	pd_directory_release(&all);
	return count == 0 ? 0 : pd_error_input(err, "%s: expected a new or an empty folder, found one with "
					       "something in it", folder);
}

/* Returns .NAME.tmp beside the folder, which is made; NULL: an error. */
static char *make_unfinished(const char *folder, struct pd_error *err)
{
	const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
	char *path = pd_format("%.*s.%s.tmp", (int)(name - folder), folder, name);

	if (pd_remove_tree(path, err) == 0) {
		if (mkdir(path, 0777) == 0)
			return path;
		pd_error_input(err, "%s: cannot be made: %s", folder, strerror(errno));
	}
	free(path);
	return NULL;
}

static int publish(const char *unfinished, const char *folder, struct pd_error *err)
{
	const char *slash = strrchr(folder, '/');
	char *parent = !slash ? pd_strdup(".") : pd_format("%.*s", slash > folder ? (int)(slash - folder) : 1,
							   folder);
	int status = pd_sync_directory(unfinished, err);

	if (status == 0 && rename(unfinished, folder) != 0)
		status = pd_error_failed(err, "%s: cannot be named: %s", folder, strerror(errno));
	if (status == 0)
		status = pd_sync_directory(parent, err);
	free(parent);
	return status;
}

static int write_folder(struct exporting *x, const char *folder, struct pd_error *err)
{
	int status;

	x->unfinished = make_unfinished(folder, err);
	if (!x->unfinished)
		return -1;
	status = write_files(x, err) == 0 && write_config(x, err) == 0 ? publish(x->unfinished, folder, err) : -1;
	if (status < 0)
		pd_remove_tree(x->unfinished, NULL);
	free(x->unfinished);
	return status;
}

/* ---- from the checkpoint ---- */

static int export_from(struct exporting *x, const char *path, struct pd_error *err)
{
	size_t length = strlen(x->what->folder);
	char *folder;
	int status = -1;

	while (length > 1 && x->what->folder[length - 1] == '/')
		length--;
	folder = pd_format("%.*s", (int)length, x->what->folder);
	x->dtype = x->what->dtype >= 0 ? x->what->dtype : source_dtype(x->model);
	x->done->dtype = file_dtypes[x->dtype];
	x->from = pd_initial_open(path, x->model, NULL, err);
	if (x->from && pd_outsides_make(x->model, false, &x->outsides, err) == 0 &&
	    check_folder(folder, err) == 0) {
		list_tensors(x);
		status = write_folder(x, folder, err);
	}
	pd_initial_close(x->from);
	pd_outsides_release(&x->outsides);
	free(x->tensors);
	free(x->outside);
	free(x->data);
	free(x->turned);
	free(folder);
	return status;
}

/* The model that a checkpoint carries; NULL: an error. */
static struct pd_model *own_model(const struct pd_checkpoint *ck, const char *path, struct pd_error *err)
{
	json_t *document = pd_checkpoint_info(ck)->model;
	char *name = pd_format("%s/" PD_CHECKPOINT_DOCUMENT ": model", path);
	struct pd_model *model = document ? pd_model_parse(name, document, err) : NULL;

	if (!document)
		pd_error_input(err, "%s: expected the model, found none, since an older version wrote it: "
			       "--model says it", path);
	free(name);
	return model;
}

int pd_export(const struct pd_export *what, struct pd_exported *done_p, struct pd_error *err)
{
	struct exporting x = { .what = what, .done = done_p, .model = what->model };
	struct pd_checkpoint *ck = pd_checkpoint_open_path(what->checkpoint, err);
	struct pd_model *own = NULL;
	char *path;
	int status;

	*done_p = (struct pd_exported){ 0 };
	if (!ck)
		return -1;
	done_p->step = pd_checkpoint_info(ck)->step;
	path = pd_strdup(pd_checkpoint_opened(ck));
	if (!x.model)
		x.model = own = own_model(ck, path, err);
	status = x.model ? export_from(&x, path, err) : -1;
	pd_checkpoint_close(ck);
	pd_model_free(own);
	free(path);
	return status;
}
