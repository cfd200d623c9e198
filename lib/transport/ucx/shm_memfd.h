/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory without a name.
 *
 * UCX makes a file in /dev/shm, fills it, and then removes its name, because peers open it
 * through /proc/PID/fd.  A process killed in between leaves the file for ever.  So programs
 * with this transport have a shm_open of their own: what UCX wants made is a memfd, which
 * ends with the last process that has it open, whatever happens.  (It also does not count
 * against the size of /dev/shm, which containers like to make small.)  All other names go
 * to the C library.
 */
#ifndef PD_TRANSPORT_UCX_SHM_MEMFD_H
#define PD_TRANSPORT_UCX_SHM_MEMFD_H

/* From now on, unless UCX has been told to use names (UCX_POSIX_USE_PROC_LINK). */
void pd_ucx_shm_memfd(void);

#endif
