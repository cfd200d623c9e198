/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: the directory that PD_UNREADABLE names cannot be read to its end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static DIR *unreadable;

DIR *opendir(const char *name)
{
	DIR *(*open)(const char *) = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
	const char *asked = getenv("PD_UNREADABLE");
	DIR *dir = open(name);

	if (asked && strcmp(name, asked) == 0)
		unreadable = dir;
	return dir;
}

int closedir(DIR *dir)
{
	int (*close)(DIR *) = (int (*)(DIR *))dlsym(RTLD_NEXT, "closedir");

	if (dir == unreadable)
		unreadable = NULL;
	return close(dir);
}

struct dirent *readdir(DIR *dir)
{
	struct dirent *(*read)(DIR *) = (struct dirent *(*)(DIR *))dlsym(RTLD_NEXT, "readdir");

	if (dir != unreadable)
		return read(dir);
	errno = EIO;
	return NULL;
}

struct dirent64 *readdir64(DIR *dir)
{
	return (struct dirent64 *)readdir(dir);
}
