/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file gives UCX shared memory without a name.
 *
 * UCX makes a file in /dev/shm, fills it, and then removes its name; peers open it through
 * /proc/PID/fd.  A process killed in between leaves the file for ever.  So programs with this
 * transport have a shm_open() of their own: where UCX wants a new file, it gets a memfd, which ends
 * with the last process that has it open.  A memfd also does not count against the size of
 * /dev/shm, which is often small in containers.  All other names go to the C library.
 */
#pragma once

/* Replaces names from now on, unless UCX was told to use them (UCX_POSIX_USE_PROC_LINK). */
void pd_ucx_shm_memfd(void);
