/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank's process does, from the launcher's first message to its last. */
#ifndef PD_RUN_RANK_H
#define PD_RUN_RANK_H

#include "base/error.h"

/*
 * `number` is this process among those started; fd leads to the launcher.  Returns the exit status.
 * What goes wrong is told to the launcher, and running out of memory too (pd_mem_on_end).
 */
enum pd_exit pd_rank_main(int number, int fd);

#endif
