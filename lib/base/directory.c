/* SPDX-License-Identifier: Apache-2.0 */
#include "base/directory.h"

#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the next name, or NULL with errno, 0 at the end. */
static const char *next(DIR *dir)
{
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(dir);
	} while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
	return entry ? entry->d_name : NULL;
}

int pd_directory_read(const char *path, struct pd_directory *out_p)
{
	struct pd_directory directory = { 0 };
	DIR *dir = opendir(path);
	size_t capacity = 0;
	const char *name;
	int error;

	if (!dir)
		return -1;
	while ((name = next(dir))) {
		directory.names = pd_grow(directory.names, &capacity, directory.count + 1,
					  sizeof(*directory.names));
		directory.names[directory.count++] = pd_strdup(name);
	}
	error = errno;
	closedir(dir);
	if (error) {
		pd_directory_release(&directory);
		errno = error;
		return -1;
	}
	*out_p = directory;
	return 0;
}

void pd_directory_release(struct pd_directory *directory)
{
	for (size_t i = 0; i < directory->count; i++)
		free(directory->names[i]);
	free(directory->names);
	*directory = (struct pd_directory){ 0 };
}
