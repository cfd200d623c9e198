/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/tensors/tensors.h"

#include "base/checksum.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLED 64                      /* elements of a tensor in a checksum */

struct pd_tensors {
	const struct pd_tensors_ops *ops;
	void *of;
	char *path;
	size_t count;
	const struct pd_tensor **all;   /* by name */
	const struct pd_tensor *kept;   /* that was read last, where all of one is read; or NULL */
	float *elements;
};

static bool is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns FOLDER/NAME if it is there, else NULL; free() it. */
static char *inside(const char *folder, const char *name)
{
	char *path = pd_format("%s%s%s", folder, pd_name_ends(folder, "/") ? "" : "/", name);

	if (access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

static bool has(const char *folder, const char *name)
{
	char *path = inside(folder, name);

	free(path);
	return path;
}

static bool is_checkpoint(const char *folder)
{
	return has(folder, "checkpoint.json");
}

static bool has_checkpoints(const char *folder)
{
	int64_t step;

	return pd_checkpoint_highest(folder, INT64_MAX, &step, NULL) == 0 && step >= 0;
}

static const struct pd_tensors_ops *open_in(const char *folder, const char *name, pd_tensors_opener *open,
					    void **of_p, struct pd_error *err)
{
	char *path = inside(folder, name);
	const struct pd_tensors_ops *ops = open(path, of_p, err);

	free(path);
	return ops;
}

static const struct pd_tensors_ops *nothing_in(const char *folder, struct pd_error *err)
{
	if (has(folder, "pytorch_model.bin") || has(folder, "pytorch_model.bin.index.json"))
		pd_error_input(err, "%.200s: expected model.safetensors, found pytorch_model.bin; in Python, "
			       "save_pretrained(NEW) of the model that from_pretrained() makes of it writes one",
			       folder);
	else
		pd_error_input(err, "%.200s: expected a folder with model.safetensors or model.safetensors.index.json, or "
			       "with checkpoints, found none of them", folder);
	return NULL;
}

static const struct pd_tensors_ops *open_folder(const char *path, void **of_p, struct pd_error *err)
{
	if (is_checkpoint(path) || has_checkpoints(path))
		return pd_tensors_of_checkpoint(path, of_p, err);
	if (has(path, "model.safetensors"))
		return open_in(path, "model.safetensors", pd_tensors_of_file, of_p, err);
	if (has(path, "model.safetensors.index.json"))
		return open_in(path, "model.safetensors.index.json", pd_tensors_of_index, of_p, err);
	return nothing_in(path, err);
}

static const struct pd_tensors_ops *open_any(const char *path, void **of_p, struct pd_error *err)
{
	if (is_folder(path))
		return open_folder(path, of_p, err);
	if (pd_name_ends(path, ".onnx"))
		return pd_tensors_of_onnx(path, of_p, err);
	return pd_name_ends(path, ".json") ? pd_tensors_of_index(path, of_p, err)
					: pd_tensors_of_file(path, of_p, err);
}

static int by_name(const void *a, const void *b)
{
	const struct pd_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

struct pd_tensors *pd_tensors_open(const char *path, struct pd_error *err)
{
	struct pd_tensors *tensors;
	void *of;
	const struct pd_tensors_ops *ops = open_any(path, &of, err);

	if (!ops)
		return NULL;
	tensors = pd_zalloc(sizeof(*tensors));
	tensors->ops = ops;
	tensors->of = of;
	tensors->path = pd_strdup(path);
	tensors->count = ops->list(of, &tensors->all);
	if (tensors->count > 0)
		qsort(tensors->all, tensors->count, sizeof(*tensors->all), by_name);
	return tensors;
}

void pd_tensors_close(struct pd_tensors *tensors)
{
	if (!tensors)
		return;
	tensors->ops->close(tensors->of);
	free(tensors->all);
	free(tensors->path);
	free(tensors->elements);
	free(tensors);
}

char *pd_tensors_find_held(const char *path, struct pd_checkpoint **held_p, struct pd_error *err)
{
	*held_p = NULL;
	if (!is_folder(path) || (!is_checkpoint(path) && !has_checkpoints(path)))
		return pd_strdup(path);
	*held_p = pd_checkpoint_open_path(path, err);
	return *held_p ? pd_strdup(pd_checkpoint_opened(*held_p)) : NULL;
}

const char *pd_tensors_path(const struct pd_tensors *tensors)
{
	return tensors->path;
}

bool pd_tensors_are_ours(const struct pd_tensors *tensors)
{
	return tensors->ops->ours;
}

bool pd_tensors_have_constants(const struct pd_tensors *tensors)
{
	return tensors->ops->constants;
}

size_t pd_tensors_list(const struct pd_tensors *tensors, const struct pd_tensor *const **list_p)
{
	*list_p = tensors->all;
	return tensors->count;
}

const struct pd_tensor *pd_tensors_find(const struct pd_tensors *tensors, const char *name)
{
	struct pd_tensor key = { .name = (char *)(uintptr_t)name };
	const struct pd_tensor *wanted = &key;
	const struct pd_tensor **found = tensors->count == 0 ? NULL
		: bsearch(&wanted, tensors->all, tensors->count, sizeof(*tensors->all), by_name);

	return found ? *found : NULL;
}

int pd_tensors_read(struct pd_tensors *tensors, const struct pd_tensor *tensor, int64_t first, int64_t count,
		    float *out, struct pd_error *err)
{
	const struct pd_tensors_ops *ops = tensors->ops;

	if (ops->read_some)
		return ops->read_some(tensors->of, tensor, first, count, out, err);
	if (count == tensor->elements)
		return ops->read_all(tensors->of, tensor, out, err);
	if (tensors->kept != tensor) {
		tensors->elements = pd_regrow(tensors->elements, (size_t)tensor->elements,
					      sizeof(*tensors->elements));
		tensors->kept = NULL;
		if (ops->read_all(tensors->of, tensor, tensors->elements, err) < 0)
			return -1;
		tensors->kept = tensor;
	}
	memcpy(out, tensors->elements + first, (size_t)count * sizeof(*out));
	return 0;
}

/* Adds what a tensor is, and elements from its middle. */
static int add_tensor(struct pd_tensors *tensors, const struct pd_tensor *tensor,
		      struct pd_checksum *sum, struct pd_error *err)
{
	int64_t count = tensor->elements < SAMPLED ? tensor->elements : SAMPLED;
	float numbers[SAMPLED];

	pd_checksum_add(sum, tensor->name, strlen(tensor->name) + 1);
	pd_checksum_add(sum, tensor->dtype, strlen(tensor->dtype) + 1);
	pd_checksum_add(sum, tensor->size, (size_t)tensor->dims * sizeof(*tensor->size));
	if (!tensors->ops->read_some || !pd_tensor_is_float(tensor))
		return 0;
	if (pd_tensors_read(tensors, tensor, (tensor->elements - count) / 2, count, numbers,
			    err) < 0)
		return -1;
	pd_checksum_add(sum, numbers, (size_t)count * sizeof(*numbers));
	return 0;
}

int pd_tensors_checksum(struct pd_tensors *tensors, uint64_t *sum_p, struct pd_error *err)
{
	struct pd_checksum sum;

	pd_checksum_begin(&sum, 0);
	for (size_t i = 0; i < tensors->count && !tensors->ops->ours; i++)
		if (add_tensor(tensors, tensors->all[i], &sum, err) < 0)
			return -1;
	*sum_p = tensors->ops->ours ? pd_checkpoint_info(tensors->of)->document_checksum
				    : pd_checksum_end(&sum);
	return 0;
}
