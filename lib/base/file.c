/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Returns the directory of the file; the caller frees it. */
static char *directory_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? pd_format("%.*s", slash > name ? (int)(slash - name) : 1, name)
		     : pd_strdup(".");
}

/* The longest part of a file's name to which something is added. */
#define ROOM_FOR_MORE 200

/* Returns another name, .NAME.MORE, in the directory of `name`; a long NAME is cut. */
static char *name_beside(const char *name, const char *more)
{
	const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;

	return pd_format("%.*s.%.*s.%s", (int)(last - name), name, ROOM_FOR_MORE, last, more);
}

/* Returns -1 with errno, EOPNOTSUPP if the file system has no unnamed files. */
static int open_unnamed(const char *directory, mode_t mode)
{
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);

	if (fd < 0 && errno == EISDIR)
		errno = EOPNOTSUPP;
	return fd;
}

int pd_file_unnamed(const char *name)
{
	char *directory = directory_of(name), *temporary;
	int fd = open_unnamed(directory, 0600);

	free(directory);
	if (fd >= 0 || errno != EOPNOTSUPP)
		return fd;
	temporary = name_beside(name, "XXXXXX");
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd >= 0)
		unlink(temporary);
	free(temporary);
	return fd;
}

/* Opens a file in the same directory under another name, file->temporary; -1 with errno. */
static int open_named(struct pd_file *file)
{
	mode_t mask = umask(0);
	int fd, why;

	umask(mask);
	file->temporary = name_beside(file->name, "XXXXXX");
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

/* Opens a file in the same directory, unnamed if it can be named later; NULL with errno. */
static FILE *open_beside(struct pd_file *file)
{
	char *directory = directory_of(file->name);
	int fd = -1;

	errno = EOPNOTSUPP;
	if (access("/proc/self/fd", X_OK) == 0)
		fd = open_unnamed(directory, 0666);
	free(directory);
	file->unnamed = fd >= 0;
	if (fd < 0 && errno == EOPNOTSUPP)
		fd = open_named(file);
	return fd >= 0 ? fdopen(fd, "w") : NULL;
}

/*
 * Gives the file its name.  A new name is given at once.  A file of that name is replaced by a
 * rename: only a process killed between these two calls leaves a file behind, which is complete.
 */
static int give_name(const struct pd_file *file)
{
	char *self = pd_format("/proc/self/fd/%d", fileno(file->stream)), *temporary, more[48];
	int bad = linkat(AT_FDCWD, self, AT_FDCWD, file->name, AT_SYMLINK_FOLLOW);

	for (int i = 0; bad && errno == EEXIST && i < 1000; i++) {
		snprintf(more, sizeof(more), "%ld-%d", (long)getpid(), i);
		temporary = name_beside(file->name, more);
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

int pd_file_check(const char *name, struct pd_error *err)
{
	char *directory;
	struct stat st;
	int status = 0;

	if (!name || strcmp(name, "-") == 0)
		return 0;
	if (!*name)
		return pd_error_input(err, "expected the name of a file, found none");
	if (stat(name, &st) == 0 && S_ISDIR(st.st_mode))
		return pd_error_input(err, "%s: expected a file, found a directory", name);
	/* pd_file_open_special() finds out whether a device or a pipe can be written. */
	if (stat(name, &st) == 0 && !S_ISREG(st.st_mode))
		return 0;
	/* The name itself may be wrong: too long, through a missing directory, or a loop of links. */
	if (lstat(name, &st) != 0 && errno != ENOENT)
		return pd_error_input(err, "%s: cannot create: %s", name, strerror(errno));
	directory = directory_of(name);
	if (access(directory, W_OK | X_OK) != 0)
		status = pd_error_input(err, "%s: cannot create: %s", name, strerror(errno));
	free(directory);
	return status;
}

#define READER_PATIENCE_MS 1000         /* the reader may be starting at the same time */

/* Returns a descriptor that something can be written to, or -1. */
static int open_taking(const char *name, bool pipe, struct pd_error *err)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	int fd = -1;

	for (int waited_ms = 0; waited_ms < READER_PATIENCE_MS; waited_ms += 10) {
		fd = open(name, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0 || !pipe || errno != ENXIO)
			break;
		nanosleep(&pause, NULL);
		errno = ENXIO;
	}
	if (fd < 0)
		return pipe && errno == ENXIO ?
			pd_error_input(err, "%s: nobody reads this pipe: expected a reader, which "
				       "is there before the work begins", name) :
			pd_error_input(err, "%s: cannot open: %s", name, strerror(errno));
	/* of nothing at all: a pipe does not mind, what never takes anything says so */
	if ((write(fd, "", 0) < 0 && errno != EAGAIN && errno != EINTR) ||
	    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) < 0) {
		pd_error_input(err, "%s: cannot write: %s", name, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

int pd_file_open_special(struct pd_file *file, const char *name, struct pd_error *err)
{
	struct stat st;
	int fd;

	*file = (struct pd_file){ 0 };
	if (!name || strcmp(name, "-") == 0 || stat(name, &st) != 0 || S_ISREG(st.st_mode))
		return 0;
	fd = open_taking(name, S_ISFIFO(st.st_mode), err);
	if (fd < 0)
		return -1;
	file->name = pd_strdup(name);
	file->stream = fdopen(fd, "w");
	return 0;
}

int pd_file_create(struct pd_file *file, const char *name, struct pd_error *err)
{
	if (pd_file_open_special(file, name, err) < 0) {
		if (err)
			err->status = PD_EXIT_FAILED;
		return -1;
	}
	if (!name || strcmp(name, "-") == 0)
		file->stream = stdout;
	if (file->stream)
		return 0;
	file->name = pd_strdup(name);
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

	if (!bad && (file->temporary || file->unnamed))
		bad = fsync(fileno(file->stream)) != 0;
	if (!bad && file->unnamed)
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

/* Reads up to most_bytes of an open file; returns how many there were, or -1 with errno. */
static int64_t read_bytes(int fd, char *text, int64_t most_bytes)
{
	int64_t done = 0;

	while (done < most_bytes) {
		ssize_t got = read(fd, text + done, (size_t)(most_bytes - done));

		if (got < 0)
			return -1;
		if (got == 0)
			break;
		done += got;
	}
	return done;
}

char *pd_file_read(const char *name, int64_t most_bytes, size_t *bytes_p, struct pd_error *err)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	struct stat st;
	int64_t bytes;

	if (fd < 0 || fstat(fd, &st) != 0) {
		pd_error_input(err, "%s: cannot open: %s", name, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		pd_error_input(err, "%s: expected a file, found a directory, pipe or device", name);
	} else if (st.st_size > most_bytes) {
		pd_error_input(err, "%s: %" PRId64 " bytes: expected at most %" PRId64, name,
			       (int64_t)st.st_size, most_bytes);
	} else {
		text = pd_zalloc((size_t)st.st_size + 1);
		bytes = read_bytes(fd, text, st.st_size);
		*bytes_p = (size_t)bytes;
		if (bytes < 0) {
			pd_error_input(err, "%s: cannot read: %s", name, strerror(errno));
			free(text);
			text = NULL;
		}
	}
	if (fd >= 0)
		close(fd);
	return text;
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
