/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write into a directory of checkpoints: one process at a time.  The lock is a record lock
 * (fcntl) on DIRECTORY/.lock, so it holds on network file systems too and ends with the process,
 * whatever becomes of it: children do not have it and cannot give it back.  The file says who has
 * it.  Within one process it keeps nobody out.
 */
#ifndef PD_CHECKPOINT_LOCK_H
#define PD_CHECKPOINT_LOCK_H

#include "base/error.h"

struct pd_checkpoint_lock;

/*
 * Makes the directory where it is missing (not its parents), takes the lock, says in it what the
 * process works at, `what`, removes what writers before left unfinished and sees whether a folder can
 * be made there.  Where the file system has no locks that is said on standard error, and it goes on
 * without.  Errors: failed; another process has the lock; nothing can be written there.
 */
struct pd_checkpoint_lock *pd_checkpoint_lock(const char *directory, const char *what,
					      struct pd_error *err);
/*
 * Before a checkpoint is begun: it is still ours.  Where the directory was removed in between it is
 * made and locked again.  Errors: failed; another process has taken it.
 */
int pd_checkpoint_lock_keep(struct pd_checkpoint_lock *lock, struct pd_error *err);
/* Gives it back; a directory that pd_checkpoint_lock() made goes with it if there is nothing in it.
 * NULL is fine. */
void pd_checkpoint_unlock(struct pd_checkpoint_lock *lock);

#endif
