/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that other processes of the same host and user can map.  It has no name in a file
 * system, and ends with the last process that has it.  A host is what has a name: containers, or
 * namespaces with names of their own, are hosts even if they share a kernel.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_SHARED_HOST 64

/* Names a place in the shared memory of a process; all zero: none. */
struct pd_shared_place {
	int64_t pid, fd;
	uint64_t token;                 /* random: a process of another host has another one */
	uint64_t offset;
	char host[PD_SHARED_HOST];      /* the name of the process's host, cut off where it is longer */
};

/* Returns zeroed memory, aligned to pages; NULL where the system gives none. */
void *pd_shared_alloc(size_t bytes);
/* Returns false, and does nothing, where ptr is not from pd_shared_alloc(). */
bool pd_shared_free(void *ptr);
/* Returns the place of a pointer into memory of pd_shared_alloc(). */
struct pd_shared_place pd_shared_place_of(const void *ptr);
/* Maps bytes from a place on; NULL where this process cannot. */
void *pd_shared_map(const struct pd_shared_place *place, size_t bytes);
void pd_shared_unmap(void *ptr, size_t bytes);
