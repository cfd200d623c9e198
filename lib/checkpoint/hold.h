/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder in which a run trains loses its older checkpoints all the time.  Who reads one holds it:
 * a shared record lock on its document, for which nothing is written.  Who removes one takes that
 * lock alone first, and leaves what is held for the next time.  Private to lib/checkpoint.
 */
#pragma once

#include <stdbool.h>

/*
 * Holds the checkpoint in a folder until *fd_p is closed; -1: its document cannot be opened.
 * Returns false if the checkpoint is being removed, or was.  Where a file system has no locks
 * nothing is held.
 */
bool pd_checkpoint_hold(const char *folder, int *fd_p);
/* Tells whether the folder has another checkpoint than the one that is held, or none. */
bool pd_checkpoint_is_replaced(const char *folder, int fd);
/* Returns whether nobody holds the checkpoint, and nobody can until *fd_p is closed, unless that is -1. */
bool pd_checkpoint_seize(const char *folder, int *fd_p);
