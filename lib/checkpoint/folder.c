/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes checkpoints.  Everything goes to DIRECTORY/.step-N.tmp, which is renamed to step-N when
 * all of it is on the disk.  A folder is removed by way of such a name, too.  So a step-N is
 * complete whenever a process or the machine stops.
 */
#include "checkpoint/info.h"

#include "base/directory.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/hold.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS 12

char *pd_checkpoint_folder(const char *directory, int64_t step)
{
	return pd_format("%s/step-%0*" PRId64, directory, DIGITS, step);
}

static char *unfinished_folder(const char *directory, int64_t step)
{
	return pd_format("%s/.step-%0*" PRId64 ".tmp", directory, DIGITS, step);
}

char *pd_checkpoint_path(const char *folder, const struct pd_checkpoint_file *file)
{
	char *name = pd_checkpoint_file_name(file), *path = pd_format("%s/%s", folder, name);

	free(name);
	return path;
}

char *pd_checkpoint_unfinished_path(const char *directory, int64_t step,
				    const struct pd_checkpoint_file *file)
{
	char *folder = unfinished_folder(directory, step), *path = pd_checkpoint_path(folder, file);

	free(folder);
	return path;
}

int64_t pd_checkpoint_folder_step(const char *name)
{
	size_t digits;
	int64_t step;

	if (strncmp(name, "step-", 5) != 0)
		return -1;
	digits = strspn(name + 5, "0123456789");
	if (digits < DIGITS || name[5 + digits] || (digits > DIGITS && name[5] == '0'))
		return -1;
	errno = 0;
	step = strtoll(name + 5, NULL, 10);
	return errno ? -1 : step;
}

bool pd_checkpoint_exists(const char *directory, int64_t step)
{
	char *folder = pd_checkpoint_folder(directory, step);
	bool exists = access(folder, F_OK) == 0;

	free(folder);
	return exists;
}

static bool is_unfinished(const char *name)
{
	size_t length = strlen(name);

	return strncmp(name, ".step-", 6) == 0 && length > 10 &&
	       strcmp(name + length - 4, ".tmp") == 0 && isdigit((unsigned char)name[6]);
}

int pd_checkpoint_check_names(const char *directory, struct pd_error *err)
{
	struct pd_directory all;
	int status = 0;

	if (pd_directory_read(directory, &all) < 0)
		return pd_error_input(err, "%s: cannot read: %s", directory, strerror(errno));
	for (size_t i = 0; i < all.count && status == 0; i++) {
		char *path = pd_format("%s/%s", directory, all.names[i]);
		struct stat st;

		if (pd_checkpoint_folder_step(all.names[i]) >= 0 &&
		    (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
			status = pd_error_input(err, "%s: expected a folder, as those of checkpoints are "
						"called so, found something else", path);
		free(path);
	}
	pd_directory_release(&all);
	return status;
}

/* Removes what earlier writers left unfinished. */
static int sweep(const char *directory, struct pd_error *err)
{
	struct pd_directory all;
	int status = 0;

	if (pd_directory_read(directory, &all) < 0)
		return pd_error_failed(err, "%s: cannot read: %s", directory, strerror(errno));
	for (size_t i = 0; i < all.count && status == 0; i++)
		if (is_unfinished(all.names[i])) {
			char *path = pd_format("%s/%s", directory, all.names[i]);

			status = pd_remove_tree(path, err);
			free(path);
		}
	pd_directory_release(&all);
	return status;
}

static int make(const char *folder, struct pd_error *err)
{
	if (mkdir(folder, 0777) == 0 || errno == EEXIST)
		return 0;
	return pd_error_failed(err, "%s: cannot create: %s", folder, strerror(errno));
}

int pd_checkpoint_join(const char *directory, int64_t step, struct pd_error *err)
{
	char *folder = unfinished_folder(directory, step);
	int status = make(folder, err);

	free(folder);
	return status;
}

int pd_checkpoint_begin(const char *directory, int64_t step, struct pd_error *err)
{
	return make(directory, err) < 0 || sweep(directory, err) < 0 ? -1 :
	       pd_checkpoint_join(directory, step, err);
}

void pd_checkpoint_abandon(const char *directory, int64_t step)
{
	char *folder = unfinished_folder(directory, step);

	pd_remove_tree(folder, NULL);
	free(folder);
}

/* Removes a checkpoint, which is complete until it is gone, unless somebody reads it. */
static int remove_checkpoint(const char *directory, int64_t step, struct pd_error *err)
{
	char *folder = pd_checkpoint_folder(directory, step);
	char *doomed = unfinished_folder(directory, step);
	int fd, status = 0;

	if (pd_checkpoint_seize(folder, &fd))
		status = rename(folder, doomed) == 0 ? pd_remove_tree(doomed, err)
			: pd_error_failed(err, "%s: cannot remove: %s", folder, strerror(errno));
	if (fd >= 0)
		close(fd);
	free(doomed);
	free(folder);
	return status;
}

static int descending(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x < *y) - (*x > *y);
}

int pd_checkpoint_prune(const char *directory, int64_t step, int keep, struct pd_error *err)
{
	struct pd_directory all;
	int64_t *steps;
	size_t count = 0;
	int status = 0;

	if (pd_directory_read(directory, &all) < 0)
		return pd_error_failed(err, "%s: cannot read: %s", directory, strerror(errno));
	steps = pd_calloc(all.count, sizeof(*steps));
	for (size_t i = 0; i < all.count; i++) {
		int64_t other = pd_checkpoint_folder_step(all.names[i]);

		if (other >= 0 && other < step)
			steps[count++] = other;
	}
	pd_directory_release(&all);
	if (count)
		qsort(steps, count, sizeof(*steps), descending);
	for (size_t i = (size_t)keep - 1; i < count && status == 0; i++)
		status = remove_checkpoint(directory, steps[i], err);
	free(steps);
	return status;
}

static int check_files(const char *directory, const struct pd_checkpoint_info *info,
		       struct pd_error *err)
{
	for (int i = 0; i < info->file_count; i++) {
		const struct pd_checkpoint_file *file = &info->files[i];
		char *path = pd_checkpoint_unfinished_path(directory, info->step, file);
		int missing = file->in_other_folder ? 0 : access(path, R_OK);

		if (missing)
			pd_error_failed(err, "%s: expected the tensors of stage %d: %s", path,
					file->stage, strerror(errno));
		free(path);
		if (missing)
			return -1;
	}
	return 0;
}

/*
 * Gives the folder its name.  A folder of that name is replaced, in one step if the file system
 * can.
 */
static int publish(const char *temporary, const char *folder, const char *aside,
		   struct pd_error *err)
{
	if (rename(temporary, folder) == 0)
		return 0;
	if ((errno == EEXIST || errno == ENOTEMPTY) &&
	    renameat2(AT_FDCWD, temporary, AT_FDCWD, folder, RENAME_EXCHANGE) == 0)
		return pd_remove_tree(temporary, err);
	if (errno == EINVAL && rename(folder, aside) == 0 && rename(temporary, folder) == 0)
		return pd_remove_tree(aside, err);
	return pd_error_failed(err, "%s: cannot rename to %s: %s", temporary, folder,
			       strerror(errno));
}

static int write_document(const char *folder, const char *document, size_t bytes,
			  struct pd_error *err)
{
	char *name = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, folder);
	struct pd_file file;
	int status = pd_file_create(&file, name, err);

	if (status == 0) {
		fwrite(document, 1, bytes, file.stream);        /* the commit finds a failure */
		status = pd_file_commit(&file, err);
	}
	free(name);
	return status;
}

int pd_checkpoint_publish(const char *directory, int64_t step, const char *document, size_t bytes,
			  struct pd_error *err)
{
	char *temporary = unfinished_folder(directory, step);
	char *folder = pd_checkpoint_folder(directory, step);
	char *aside = pd_format("%s/.step-%" PRId64 ".old.tmp", directory, step);
	int status = 0;

	if (make(temporary, err) < 0 || write_document(temporary, document, bytes, err) < 0 ||
	    pd_sync_directory(temporary, err) < 0 ||
	    publish(temporary, folder, aside, err) < 0) {
		pd_checkpoint_abandon(directory, step);
		status = -1;
	}
	free(temporary);
	free(folder);
	free(aside);
	return status < 0 ? -1 : pd_sync_directory(directory, err);
}

int pd_checkpoint_finish(const char *directory, const struct pd_checkpoint_info *info, int keep,
			 struct pd_error *err)
{
	size_t bytes;
	char *document;
	int status;

	if (keep < 1)
		pd_bug("checkpoint: keep %d", keep);
	if (check_files(directory, info, err) < 0) {
		pd_checkpoint_abandon(directory, info->step);
		return -1;
	}
	document = pd_checkpoint_info_text(info, &bytes);
	status = pd_checkpoint_publish(directory, info->step, document, bytes, err);
	free(document);
	return status < 0 ? -1 : pd_checkpoint_prune(directory, info->step, keep, err);
}
