/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a file of that name; freed by the caller. */
static char *directory_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? pd_format("%.*s", slash > name ? (int)(slash - name) : 1, name)
		     : pd_strdup(".");
}

/* -1 with errno, EOPNOTSUPP where a file system has no such files. */
static int open_nameless(const char *directory, mode_t mode)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);

	if (fd < 0 && errno == EISDIR)
		errno = EOPNOTSUPP;
	return fd;
}

int pd_file_nameless(const char *name)
{
	char *directory = directory_of(name), *temporary;
	int fd = open_nameless(directory, 0600);

	free(directory);
	if (fd >= 0 || errno != EOPNOTSUPP)
		return fd;
	temporary = pd_format("%s.XXXXXX", name);
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd >= 0)
		unlink(temporary);
	free(temporary);
	return fd;
}

/* Under another name in the same directory, file->temporary; -1 with errno. */
static int open_named(struct pd_file *file)
{
	mode_t mask = umask(0);
	int fd, why;

	umask(mask);
	file->temporary = pd_format("%s.XXXXXX", file->name);
	fd = mkostemp(file->temporary, O_CLOEXEC);
	if (fd >= 0 && fchmod(fd, 0666 & ~mask) == 0)
		return fd;
	why = errno;
	if (fd >= 0) {
		close(fd);
		unlink(file->temporary);
	}
	free(file->temporary);
	file->temporary = NULL;
	errno = why;
	return -1;
}

/* In the same directory, without a name where that can be given later; NULL with errno. */
static FILE *open_beside(struct pd_file *file)
{
	char *directory = directory_of(file->name);
	int fd = -1;

	errno = EOPNOTSUPP;
	if (access("/proc/self/fd", X_OK) == 0)
		fd = open_nameless(directory, 0666);
	free(directory);
	file->nameless = fd >= 0;
	if (fd < 0 && errno == EOPNOTSUPP)
		fd = open_named(file);
	return fd >= 0 ? fdopen(fd, "w") : NULL;
}

/*
 * Its name, at once where there was no such file.  What is replaced is so by a rename: between
 * these two calls alone something is left behind if the process is killed, and that is whole.
 */
static int give_name(const struct pd_file *file)
{
	char *self = pd_format("/proc/self/fd/%d", fileno(file->stream)), *temporary;
	int bad = linkat(AT_FDCWD, self, AT_FDCWD, file->name, AT_SYMLINK_FOLLOW);

	for (int i = 0; bad && errno == EEXIST && i < 1000; i++) {
		temporary = pd_format("%s.%ld-%d", file->name, (long)getpid(), i);
		bad = linkat(AT_FDCWD, self, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW);
		if (!bad && rename(temporary, file->name) != 0) {
			int why = errno;

			unlink(temporary);
			free(temporary);
			free(self);
			errno = why;
			return -1;
		}
		free(temporary);
	}
	free(self);
	return bad;
}

int pd_file_create(struct pd_file *file, const char *name, struct pd_error *err)
{
	struct stat st;

	*file = (struct pd_file){ 0 };
	if (!name || strcmp(name, "-") == 0) {
		file->stream = stdout;
		return 0;
	}
	file->name = pd_strdup(name);
	/* what is not a regular file (/dev/null, a pipe) is written as it is */
	if (stat(name, &st) == 0 && !S_ISREG(st.st_mode))
		file->stream = fopen(name, "we");
	else
		file->stream = open_beside(file);
	if (file->stream)
		return 0;
	pd_error_failed(err, "%s: cannot create: %s", name, strerror(errno));
	pd_file_abandon(file);
	return -1;
}

int pd_file_commit(struct pd_file *file, struct pd_error *err)
{
	const char *name = file->name ? file->name : "standard output";
	bool bad = ferror(file->stream) || fflush(file->stream) != 0;

	if (!bad && (file->temporary || file->nameless))
		bad = fsync(fileno(file->stream)) != 0;
	if (!bad && file->nameless)
		bad = give_name(file) != 0;
	if (!bad && file->name) {
		bad = fclose(file->stream) != 0;
		file->stream = NULL;
	}
	if (!bad && file->temporary)
		bad = rename(file->temporary, file->name) != 0;
	if (bad) {
		pd_error_failed(err, "%s: cannot write: %s", name,
				strerror(errno ? errno : EIO));
		pd_file_abandon(file);
		return -1;
	}
	free(file->temporary);
	free(file->name);
	*file = (struct pd_file){ 0 };
	return 0;
}

void pd_file_abandon(struct pd_file *file)
{
	if (file->stream && file->stream != stdout)
		fclose(file->stream);
	if (file->temporary)
		unlink(file->temporary);
	free(file->temporary);
	free(file->name);
	*file = (struct pd_file){ 0 };
}

int pd_sync_directory(const char *name, struct pd_error *err)
{
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int bad = fd < 0 || fsync(fd) != 0;

	if (fd >= 0)
		close(fd);
	return bad ? pd_error_failed(err, "%s: cannot flush to disk: %s", name, strerror(errno)) : 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *walk)
{
	(void)st, (void)flag, (void)walk;
	return remove(path);
}

int pd_remove_tree(const char *name, struct pd_error *err)
{
	if (nftw(name, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
		return pd_error_failed(err, "%s: cannot remove: %s", name, strerror(errno));
	return 0;
}
