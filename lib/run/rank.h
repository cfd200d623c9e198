/* SPDX-License-Identifier: Apache-2.0 */
/* The process of a rank, from the launcher's first message to its last. */
#ifndef PD_RUN_RANK_H
#define PD_RUN_RANK_H

#include "base/error.h"

/*
 * Runs rank `number`; fd leads to the launcher.  Returns the exit status.  Errors are reported to
 * the launcher, running out of memory included (pd_mem_on_end).
 */
enum pd_exit pd_rank_main(int number, int fd);

#endif
