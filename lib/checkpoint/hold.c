/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/hold.h"

#include "base/mem.h"
#include "checkpoint/info.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Locks all of a document.  The lock is the open file's, not the process's, which opens and closes
 * it more than once.  Returns false if another has a lock that excludes it.
 */
static bool lock_document(int fd, short type)
{
	struct flock all = { .l_type = type, .l_whence = SEEK_SET };

	return fcntl(fd, F_OFD_SETLK, &all) == 0 || (errno != EAGAIN && errno != EACCES);
}

static int open_document(const char *folder, int how)
{
	char *path = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, folder);
	int fd = open(path, how | O_CLOEXEC | O_NONBLOCK);

	free(path);
	return fd;
}

bool pd_checkpoint_is_replaced(const char *folder, int fd)
{
	char *path = pd_format("%s/" PD_CHECKPOINT_DOCUMENT, folder);
	struct stat held, named;
	bool same = fd < 0 ? access(folder, F_OK) == 0
			   : fstat(fd, &held) == 0 && stat(path, &named) == 0 &&
			     held.st_dev == named.st_dev && held.st_ino == named.st_ino;

	free(path);
	return !same;
}

bool pd_checkpoint_hold(const char *folder, int *fd_p)
{
	*fd_p = open_document(folder, O_RDONLY);
	return (*fd_p < 0 || lock_document(*fd_p, F_RDLCK)) && !pd_checkpoint_is_replaced(folder, *fd_p);
}

bool pd_checkpoint_seize(const char *folder, int *fd_p)
{
	*fd_p = open_document(folder, O_RDWR);
	return *fd_p < 0 || lock_document(*fd_p, F_WRLCK);
}
