/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a file from one host's folder to another's. */
#include "checkpoint/info.h"

#include "base/mem.h"
#include "checkpoint/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *pd_checkpoint_document(const char *directory, int64_t step, size_t *bytes_p,
			     struct pd_error *err)
{
	char *folder = pd_checkpoint_folder(directory, step), *text;
	char *path = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, folder);

	text = pd_file_read(path, PD_CHECKPOINT_DOCUMENT_BYTES_MOST, bytes_p, err);
	free(path);
	free(folder);
	return text;
}

int pd_checkpoint_send(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
		       FILE *to, struct pd_error *err)
{
	char *folder = pd_checkpoint_folder(directory, step), *path = pd_checkpoint_path(folder, file);
	char buffer[65536];
	FILE *from = fopen(path, "re");
	int status = 0;
	size_t n;

	if (!from)
		status = pd_error_failed(err, "%s: cannot open: %s", path, strerror(errno));
	while (status == 0 && (n = fread(buffer, 1, sizeof(buffer), from)) > 0)
		if (fwrite(buffer, 1, n, to) != n)
			status = pd_error_failed(err, "%s: cannot be sent: %s", path,
						 strerror(errno));
	if (status == 0 && ferror(from))
		status = pd_error_failed(err, "%s: cannot read: %s", path, strerror(errno));
	if (status == 0 && fflush(to) != 0)
		status = pd_error_failed(err, "%s: cannot be sent: %s", path, strerror(errno));
	if (from)
		fclose(from);
	free(folder);
	free(path);
	return status;
}

int pd_checkpoint_receive(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
			  struct pd_file *coming, struct pd_error *err)
{
	char *path = pd_checkpoint_unfinished_path(directory, step, file);
	int status = pd_checkpoint_join(directory, step, err);

	if (status == 0)
		status = pd_file_create(coming, path, err);
	free(path);
	return status;
}

int pd_checkpoint_received(const char *directory, const struct pd_checkpoint_info *info,
			   const struct pd_checkpoint_file *file, struct pd_file *coming,
			   struct pd_error *err)
{
	char *path = pd_checkpoint_unfinished_path(directory, info->step, file);
	struct pd_safetensors *st = NULL;
	int status = pd_file_commit(coming, err);

	if (status == 0) {
		st = pd_safetensors_open(path, err);
		status = st && pd_stage_check(st, info, file, err) == 0 &&
			 pd_stage_verify(st, info, file->stage, err) == 0 ? 0 : -1;
		pd_safetensors_close(st);
		if (status < 0)
			unlink(path);
	}
	free(path);
	return status;
}

int pd_checkpoint_adopt(const char *directory, int64_t step, const struct pd_checkpoint_file *file,
			struct pd_error *err)
{
	char *from = pd_checkpoint_unfinished_path(directory, step, file);
	char *folder = pd_checkpoint_folder(directory, step), *to = pd_checkpoint_path(folder, file);
	int status = 0;

	if (rename(from, to) != 0)
		status = pd_error_failed(err, "%s: cannot rename to %s: %s", from, to,
					 strerror(errno));
	else
		status = pd_sync_directory(folder, err);
	pd_checkpoint_abandon(directory, step);
	free(folder);
	free(from);
	free(to);
	return status;
}
