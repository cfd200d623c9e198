/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "base/file.h"
#include "engine/data/dataset.h"
#include "tap.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[256];
static pid_t owner;

static void cleanup(void)
{
	if (getpid() == owner)
		pd_remove_tree(directory, NULL);
}

static void need(bool worked, const char *what)
{
	if (worked)
		return;
	perror(what);
	exit(99);
}

const char *scratch(void)
{
	const char *tmp = getenv("TMPDIR");

	if (*directory)
		return directory;
	snprintf(directory, sizeof(directory), "%s/pd-unit.XXXXXX", tmp ? tmp : "/tmp");
	need(mkdtemp(directory), directory);
	owner = getpid();
	atexit(cleanup);
	return directory;
}

const char *scratch_path(const char *fmt, ...)
{
	static char paths[8][512];
	static int turn;
	char *path = paths[turn++ % 8];
	int used = snprintf(path, sizeof(paths[0]), "%s/", scratch());
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(path + used, sizeof(paths[0]) - (size_t)used, fmt, ap);
	va_end(ap);
	return path;
}

void scratch_write(const char *path, const void *bytes, size_t count)
{
	FILE *out = fopen(path, "wb");

	need(out && fwrite(bytes, 1, count, out) == count && fclose(out) == 0, path);
}

uint8_t *scratch_read(const char *path, size_t *count_p)
{
	FILE *in = fopen(path, "rb");
	uint8_t *bytes;
	long size = 0;

	need(in && fseek(in, 0, SEEK_END) == 0 && (size = ftell(in)) >= 0, path);
	rewind(in);
	bytes = malloc((size_t)size + 1);
	need(bytes && fread(bytes, 1, (size_t)size, in) == (size_t)size, path);
	bytes[size] = 0;
	fclose(in);
	*count_p = (size_t)size;
	return bytes;
}

int scratch_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			count++;
	closedir(dir);
	return count;
}

bool one_sentence(const struct pd_error *err, enum pd_exit status, const char *name,
		  const char *what)
{
	bool good = err->status == status && *err->text && !strchr(err->text, '\n') &&
		    strstr(err->text, name) && strstr(err->text, what);

	if (!good)
		diag("status %d, \"%s\"; expected status %d, \"%s\" and \"%s\"", (int)err->status,
		     err->text, (int)status, name, what);
	return good;
}

bool refuses(const char *folder, const struct pd_model *model, const char *name, const char *what)
{
	struct pd_dataset train = { 0 }, test = { 0 };
	struct pd_error err = { .text = "" };

	if (pd_dataset_open(scratch_path("%s", folder), model, &train, &test, &err) == 0) {
		diag("accepted");
		pd_dataset_release(&train);
		pd_dataset_release(&test);
		return false;
	}
	return one_sentence(&err, PD_EXIT_USAGE, name, what);
}
