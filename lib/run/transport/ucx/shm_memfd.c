/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/ucx/shm_memfd.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PREFIX "/ucx_shm_posix_"

static bool uses_memfd;

void pd_ucx_shm_memfd(void)
{
	uses_memfd = !getenv("UCX_POSIX_USE_PROC_LINK");
}

static bool is_ours(const char *name)
{
	return uses_memfd && strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* This symbol is exported, since UCX must find it before the C library's. */
__attribute__((visibility("default")))
int shm_open(const char *name, int flags, mode_t mode)
{
	int (*original)(const char *, int, mode_t);

	if (is_ours(name) && flags & O_CREAT)
		return memfd_create(name + 1, flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	*(void **)&original = dlsym(RTLD_NEXT, "shm_open");
	if (original)
		return original(name, flags, mode);
	errno = ENOSYS;
	return -1;
}

__attribute__((visibility("default")))
int shm_unlink(const char *name)
{
	int (*original)(const char *);

	if (is_ours(name))
		return 0;
	*(void **)&original = dlsym(RTLD_NEXT, "shm_unlink");
	if (original)
		return original(name);
	errno = ENOSYS;
	return -1;
}
