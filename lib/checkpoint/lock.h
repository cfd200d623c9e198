/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets one process at a time write into a directory of checkpoints.  The lock is a record lock
 * (fcntl) on DIRECTORY/.lock.  So it works on network file systems, too, and ends with the process
 * in any case; children do not have it and cannot release it.  The file says who holds the lock. 
 * It keeps nobody out within one process.
 */
#pragma once

#include "base/error.h"

struct pd_checkpoint_lock;

/*
 * Creates the directory if it is missing (not its parents) and takes the lock.  Writes `what`, the
 * process's work, into it.  Removes what earlier writers left unfinished, and checks that a folder
 * can be created there.  If the file system has no locks, it says so on standard error and
 * continues without.  Errors count as failed where another process has the lock, and as input where
 * nothing can be written there, or something is in the way of checkpoints.
 *
 * A run of several hosts gives its own name, equal nowhere else, and which rank keeps this folder,
 * 0 for the first process; pd_checkpoint_keeper() finds both there.  Otherwise run is "".
 */
struct pd_checkpoint_lock *pd_checkpoint_lock(const char *directory, const char *what,
					      const char *run, int keeper, struct pd_error *err);
/*
 * Checks before a checkpoint that the lock is still held.  If the directory was removed, it is
 * created and locked again.  Errors count as failed: another process has taken the lock.
 */
int pd_checkpoint_lock_keep(struct pd_checkpoint_lock *lock, struct pd_error *err);
/* Returns the rank that keeps this folder for that run; -1: none. */
int pd_checkpoint_keeper(const char *directory, const char *run);
/*
 * Releases the lock, and removes a directory that pd_checkpoint_lock() created if it is empty. 
 * NULL is allowed.
 */
void pd_checkpoint_unlock(struct pd_checkpoint_lock *lock);
