/* SPDX-License-Identifier: Apache-2.0 */
/* Reads checkpoints. */
#include "checkpoint/info.h"

#include "base/directory.h"
#include "base/mem.h"
#include "checkpoint/hold.h"
#include "checkpoint/stage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES 1000 /* of a folder whose checkpoints are replaced all the time */

struct pd_checkpoint {
	char *folder;
	int held;                       /* pd_checkpoint_hold() */
	struct pd_checkpoint_info info;
	struct pd_safetensors **files;  /* one for each of info.files; NULL: it is not here */
};

void pd_checkpoint_close(struct pd_checkpoint *ck)
{
	if (!ck)
		return;
	for (int i = 0; ck->files && i < ck->info.file_count; i++)
		pd_safetensors_close(ck->files[i]);
	free(ck->files);
	if (ck->held >= 0)
		close(ck->held);
	pd_checkpoint_info_release(&ck->info);
	free(ck->folder);
	free(ck);
}

static int open_file(struct pd_checkpoint *ck, int number, struct pd_error *err)
{
	const struct pd_checkpoint_file *file = &ck->info.files[number];
	char *path = pd_checkpoint_path(ck->folder, file);
	struct pd_safetensors *st = pd_safetensors_open(path, err);

	free(path);
	if (st && pd_stage_check(st, &ck->info, file, err) < 0) {
		pd_safetensors_close(st);
		st = NULL;
	}
	ck->files[number] = st;
	return st ? 0 : -1;
}

/* part: files that cannot be opened are left out. */
static int open_files(struct pd_checkpoint *ck, bool part, struct pd_error *err)
{
	ck->files = pd_calloc((size_t)ck->info.file_count, sizeof(*ck->files));
	for (int i = 0; i < ck->info.file_count; i++)
		if (open_file(ck, i, err) < 0 && !part)
			return -1;
	return 0;
}

static int open_all(struct pd_checkpoint *ck, int64_t step, bool part, struct pd_error *err)
{
	if (pd_checkpoint_info_read(ck->folder, &ck->info, err) < 0)
		return -1;
	if (ck->info.step != step)
		return pd_error_input(err, "%s/" PD_CHECKPOINT_DOCUMENT ": step: expected %" PRId64
				      ", as its folder is named, found %" PRId64, ck->folder, step,
				      ck->info.step);
	return open_files(ck, part, err);
}

/*
 * Opens a checkpoint, and verifies all of it if that is wanted.  *gone_p: it is removed, or
 * replaced, meanwhile.
 */
static struct pd_checkpoint *open_some(const char *directory, int64_t step, bool part, bool whole,
				       bool *gone_p, struct pd_error *err)
{
	struct pd_checkpoint *ck = pd_zalloc(sizeof(*ck));

	ck->folder = pd_checkpoint_folder(directory, step);
	*gone_p = !pd_checkpoint_hold(ck->folder, &ck->held);
	if (*gone_p)
		pd_error_input(err, "%s: cannot open: it is removed meanwhile, or is not there",
			       ck->folder);
	else if (open_all(ck, step, part, err) == 0 &&
		 (!whole || pd_checkpoint_verify(ck, err) == 0))
		return ck;
	*gone_p = *gone_p || pd_checkpoint_is_replaced(ck->folder, ck->held);
	pd_checkpoint_close(ck);
	return NULL;
}

struct pd_checkpoint *pd_checkpoint_open(const char *directory, int64_t step,
					 struct pd_error *err)
{
	bool gone;

	return open_some(directory, step, false, false, &gone, err);
}

struct pd_checkpoint *pd_checkpoint_open_part(const char *directory, int64_t step,
					      struct pd_error *err)
{
	bool gone;

	return open_some(directory, step, true, false, &gone, err);
}

static int verify(const struct pd_checkpoint *ck, int number, struct pd_error *err)
{
	return pd_stage_verify(ck->files[number], &ck->info, ck->info.files[number].stage, err);
}

bool pd_checkpoint_holds(const struct pd_checkpoint *ck, int number)
{
	return ck->files[number] && verify(ck, number, NULL) == 0;
}

int pd_checkpoint_verify(const struct pd_checkpoint *ck, struct pd_error *err)
{
	for (int i = 0; i < ck->info.file_count; i++)
		if (verify(ck, i, err) < 0)
			return -1;
	return 0;
}

int pd_checkpoint_highest(const char *directory, int64_t below, int64_t *step_p, struct pd_error *err)
{
	struct pd_directory all;

	if (pd_directory_read(directory, &all) < 0)
		return pd_error_input(err, "%s: cannot read: %s", directory, strerror(errno));
	*step_p = -1;
	for (size_t i = 0; i < all.count; i++) {
		int64_t step = pd_checkpoint_folder_step(all.names[i]);

		if (step < below && step > *step_p)
			*step_p = step;
	}
	pd_directory_release(&all);
	return 0;
}

struct passed {
	int64_t step;
	struct pd_error why;
};

struct pd_checkpoint *pd_checkpoint_newest(const char *directory,
					   void (*passed_over)(void *context, int64_t step,
							       const struct pd_error *why),
					   void *context, struct pd_error *err)
{
	struct pd_checkpoint *ck = NULL;
	struct passed *passed = NULL;
	size_t count = 0, room = 0;
	int64_t step = INT64_MAX;
	struct pd_error why;
	int tries = 0;
	bool gone;

	pd_error_input(err, "%s: no complete checkpoint found", directory);
	while (!ck) {
		if (pd_checkpoint_highest(directory, step, &step, &why) < 0) {
			pd_error_input(err, "no complete checkpoint found: %.400s", why.text);
			free(passed);
			return NULL;
		}
		if (step < 0)
			break;
		ck = open_some(directory, step, false, true, &gone, &why);
		if (!ck && gone && ++tries < TRIES) {
			/* a run trains here, and has a newer one by now */
			step = INT64_MAX;
			count = 0;
		} else if (!ck) {
			passed = pd_grow(passed, &room, count + 1, sizeof(*passed));
			passed[count++] = (struct passed){ step, why };
		}
	}
	for (size_t i = 0; ck && i < count; i++)
		passed_over(context, passed[i].step, &passed[i].why);
	if (!ck && count > 0)
		pd_error_input(err, "%s: no complete checkpoint found: %.400s", directory,
			       passed[0].why.text);
	free(passed);
	return ck;
}

static void say_passed_over(void *unused, int64_t step, const struct pd_error *why)
{
	(void)unused, (void)step;
	pd_say("%s", why->text);
}

struct pd_checkpoint *pd_checkpoint_open_path(const char *path, struct pd_error *err)
{
	size_t length = strlen(path), begin;
	char *last, *directory, *document = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, path);
	bool one = access(document, F_OK) == 0;
	struct pd_checkpoint *ck = NULL;
	int64_t step;

	free(document);
	if (!one)
		return pd_checkpoint_newest(path, say_passed_over, NULL, err);
	while (length > 1 && path[length - 1] == '/')
		length--;
	for (begin = length; begin > 0 && path[begin - 1] != '/';)
		begin--;
	last = pd_format("%.*s", (int)(length - begin), path + begin);
	directory = begin == 0 ? pd_strdup(".") : pd_format("%.*s", begin > 1 ? (int)begin - 1 : 1, path);
	step = pd_checkpoint_folder_step(last);
	if (step < 0)
		pd_error_input(err, "%s: expected the name that the checkpoint's folder was given, "
			       "step- and twelve digits", path);
	else
		ck = pd_checkpoint_open(directory, step, err);
	free(last);
	free(directory);
	return ck;
}

const char *pd_checkpoint_opened(const struct pd_checkpoint *ck)
{
	return ck->folder;
}

const struct pd_checkpoint_info *pd_checkpoint_info(const struct pd_checkpoint *ck)
{
	return &ck->info;
}

int pd_checkpoint_stage_number(const struct pd_checkpoint *ck, const char *layer)
{
	for (int i = 0; i < ck->info.stage_count; i++)
		for (int k = 0; k < ck->info.stages[i].layer_count; k++)
			if (strcmp(ck->info.stages[i].layers[k], layer) == 0)
				return i;
	return -1;
}

const struct pd_checkpoint_stage *pd_checkpoint_stage_of(const struct pd_checkpoint *ck,
							 const char *layer)
{
	int number = pd_checkpoint_stage_number(ck, layer);

	return number < 0 ? NULL : &ck->info.stages[number];
}

/* Returns the stage that has a tensor, -1 if none has it. */
static int find_stage(const struct pd_checkpoint *ck, const char *name, const struct pd_tensor **tensor_p)
{
	for (int i = 0; i < ck->info.stage_count; i++) {
		if (!ck->files[i])
			continue;
		*tensor_p = pd_safetensors_find(ck->files[i], name);
		if (*tensor_p)
			return i;
	}
	return -1;
}

size_t pd_checkpoint_list(const struct pd_checkpoint *ck, const struct pd_tensor ***list_p)
{
	const struct pd_tensor *of;
	size_t count = 0, room = 0;

	*list_p = NULL;
	for (int i = 0; i < ck->info.stage_count; i++) {
		size_t tensors = ck->files[i] ? pd_safetensors_list(ck->files[i], &of) : 0;

		for (size_t t = 0; t < tensors; t++) {
			if (!pd_stage_is_newest(&of[t]))
				continue;
			*list_p = pd_grow(*list_p, &room, count + 1, sizeof(**list_p));
			(*list_p)[count++] = &of[t];
		}
	}
	return count;
}

bool pd_checkpoint_has(const struct pd_checkpoint *ck, const char *name)
{
	const struct pd_tensor *tensor;

	return find_stage(ck, name, &tensor) >= 0;
}

int64_t pd_checkpoint_elements(const struct pd_checkpoint *ck, const char *name)
{
	const struct pd_tensor *tensor;

	return find_stage(ck, name, &tensor) >= 0 ? tensor->elements : -1;
}

int pd_checkpoint_replicas_with(const struct pd_checkpoint *ck, const char *name)
{
	const struct pd_tensor *tensor;
	int stage = find_stage(ck, name, &tensor), count = 0;

	for (int i = 0; i < ck->info.file_count; i++)
		count += ck->info.files[i].stage == stage;
	return count;
}

int pd_checkpoint_read_replica(const struct pd_checkpoint *ck, const char *name, int replica,
			       int64_t elements, float *out, struct pd_error *err)
{
	const struct pd_tensor *tensor;
	int stage = find_stage(ck, name, &tensor);
	int number = pd_checkpoint_file_number(&ck->info, stage, replica);
	const struct pd_safetensors *st = number < 0 ? NULL : ck->files[number];

	if (replica == 0 || stage < 0)
		return pd_checkpoint_read(ck, name, -1, elements, out, err);
	tensor = st ? pd_safetensors_find(st, name) : NULL;
	if (!tensor || tensor->elements != elements)
		return pd_error_input(err, "%s: replica %d of stage %d has no \"%.120s\" of %" PRId64
				      " elements", ck->folder, replica, stage, name, elements);
	return pd_stage_read(st, &ck->info, stage, tensor, out, err);
}

int pd_checkpoint_read(const struct pd_checkpoint *ck, const char *name, int64_t version,
		       int64_t elements, float *out, struct pd_error *err)
{
	const struct pd_tensor *tensor;
	const struct pd_checkpoint_stage *had;
	int stage = find_stage(ck, name, &tensor);

	if (stage < 0)
		return pd_error_input(err, "%s: no tensor \"%.120s\" in any stage", ck->folder,
				      name);
	had = &ck->info.stages[stage];
	if (version >= 0 && version != had->versions[had->version_count - 1]) {
		char *old = pd_format("%s@%" PRId64, name, version);

		tensor = pd_safetensors_find(ck->files[stage], old);
		free(old);
	}
	if (!tensor)
		return pd_error_input(err, "%s: no version %" PRId64 " of \"%.120s\": it has %d, "
				      "the newest %" PRId64, pd_safetensors_file(ck->files[stage]),
				      version, name, had->version_count,
				      had->versions[had->version_count - 1]);
	if (tensor->elements != elements)
		return pd_error_input(err, "%s: \"%.120s\" has %" PRId64 " elements: expected %"
				      PRId64, pd_safetensors_file(ck->files[stage]), name,
				      tensor->elements, elements);
	return pd_stage_read(ck->files[stage], &ck->info, stage, tensor, out, err);
}
