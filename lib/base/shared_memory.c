/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shared_memory.h"

#include "base/mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define NAME "pd-%016llx"

struct block {
	struct block *next;
	char *begin;
	size_t bytes;
	int fd;
	uint64_t token;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

/* A file that is too long for the user's limit would end the process by a signal. */
static bool is_allowed(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

static int open_memory(size_t bytes, uint64_t token)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), NAME, (unsigned long long)token);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && fallocate(fd, 0, 0, (off_t)bytes) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool make(struct block *block, size_t bytes)
{
	block->bytes = bytes;
	if (bytes == 0 || !is_allowed(bytes) ||
	    getrandom(&block->token, sizeof(block->token), 0) != sizeof(block->token))
		return false;
	block->fd = open_memory(bytes, block->token);
	if (block->fd < 0)
		return false;
	block->begin = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    block->fd, 0);
	if (block->begin == MAP_FAILED)
		close(block->fd);
	return block->begin != MAP_FAILED;
}

void *pd_shared_alloc(size_t bytes)
{
	struct block *block = pd_zalloc(sizeof(*block));

	if (!make(block, bytes)) {
		free(block);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	block->next = blocks;
	blocks = block;
	pthread_mutex_unlock(&lock);
	return block->begin;
}

static struct block *remove_block(const void *ptr)
{
	struct block **at, *block;

	pthread_mutex_lock(&lock);
	for (at = &blocks; *at && (*at)->begin != ptr; at = &(*at)->next)
		;
	block = *at;
	if (block)
		*at = block->next;
	pthread_mutex_unlock(&lock);
	return block;
}

bool pd_shared_free(void *ptr)
{
	struct block *block = remove_block(ptr);

	if (!block)
		return false;
	munmap(block->begin, block->bytes);
	close(block->fd);
	free(block);
	return true;
}

static void name_host(char host[PD_SHARED_HOST])
{
	memset(host, 0, PD_SHARED_HOST);
	gethostname(host, PD_SHARED_HOST - 1);
}

struct pd_shared_place pd_shared_place_of(const void *ptr)
{
	struct pd_shared_place place = { 0 };

	pthread_mutex_lock(&lock);
	for (const struct block *block = blocks; block; block = block->next) {
		uintptr_t offset = (uintptr_t)ptr - (uintptr_t)block->begin;

		if (offset < block->bytes)
			place = (struct pd_shared_place){ getpid(), block->fd, block->token, offset };
	}
	pthread_mutex_unlock(&lock);
	if (place.pid != 0)
		name_host(place.host);
	return place;
}

/* Tells whether the link leads to the memory of that place: numbers of processes are used again. */
static bool leads_to(const char *link, const struct pd_shared_place *place)
{
	char name[32], target[64] = "";

	snprintf(name, sizeof(name), NAME, (unsigned long long)place->token);
	return readlink(link, target, sizeof(target) - 1) > 0 && strstr(target, name);
}

static int open_place(const struct pd_shared_place *place)
{
	char link[64], host[PD_SHARED_HOST];

	name_host(host);
	if (memcmp(host, place->host, sizeof(host)) != 0)
		return -1;
	snprintf(link, sizeof(link), "/proc/%lld/fd/%lld", (long long)place->pid,
		 (long long)place->fd);
	return leads_to(link, place) ? open(link, O_RDWR | O_CLOEXEC) : -1;
}

/* Returns how far behind the beginning of a page a place or a pointer into a mapping of it is. */
static size_t in_page(uint64_t offset)
{
	return (size_t)(offset & (uint64_t)(sysconf(_SC_PAGESIZE) - 1));
}

void *pd_shared_map(const struct pd_shared_place *place, size_t bytes)
{
	size_t skip = in_page(place->offset);
	int fd = open_place(place);
	char *begin;

	if (fd < 0)
		return NULL;
	begin = mmap(NULL, bytes + skip, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
		     (off_t)(place->offset - skip));
	close(fd);
	return begin == MAP_FAILED ? NULL : begin + skip;
}

void pd_shared_unmap(void *ptr, size_t bytes)
{
	size_t skip = in_page((uintptr_t)ptr);

	munmap((char *)ptr - skip, bytes + skip);
}
