/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a directory is fcntl's and the supervisor's: children do not inherit it, and closing
 * what they inherit does not give it back.
 */
#include "checkpoint/lock.h"

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_FILE ".lock"
#define NOTE_BYTES_MOST 4096
#define TRIES 1000                      /* attempts while another run is about to release it */
#define NOTE_TRIES 200                  /* attempts to read who holds it */
#define PAUSE_NS 1000000

struct pd_checkpoint_lock {
	char *directory, *path, *what, *run;
	int keeper, fd;
	bool made;                      /* this process created the directory */
};

/* Describes the whole file, and all that may be written behind its end. */
static struct flock whole(void)
{
	return (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

static bool same_file(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 &&
	       open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

/* ---- what is written in it ---- */

static void write_note(const struct pd_checkpoint_lock *lock)
{
	time_t now = time(NULL);
	char host[256] = "", since[32], *text;
	struct tm utc;
	json_t *note;

	gethostname(host, sizeof(host) - 1);
	strftime(since, sizeof(since), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	note = json_pack("{s:o, s:I, s:s, s:o}", "host", pd_json_shown(host), "pid",
			 (json_int_t)getpid(), "since", since, "what", pd_json_shown(lock->what));
	if (*lock->run) {
		pd_json_set(note, "run", json_string(lock->run));
		pd_json_set(note, "keeper", json_integer(lock->keeper));
	}
	text = json_dumps(note, 0);
	json_decref(note);
	/*
	 * If this cannot be written, the lock still works, and others are told a process's number.
	 */
	if (text && ftruncate(lock->fd, 0) == 0 &&
	    pwrite(lock->fd, text, strlen(text), 0) != (ssize_t)strlen(text))
		pd_say("%s: cannot say there who has it: %s", lock->path, strerror(errno));
	free(text);
	/* other hosts may look before this one closes the file */
	fsync(lock->fd);
}

static json_t *read_note(int fd)
{
	char text[NOTE_BYTES_MOST];
	ssize_t bytes = pread(fd, text, sizeof(text), 0);

	return bytes > 0 ? json_loadb(text, (size_t)bytes, 0, NULL) : NULL;
}

int pd_checkpoint_keeper(const char *directory, const char *run)
{
	char *path = pd_format("%s/" LOCK_FILE, directory);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), keeper = -1;
	json_t *note = fd < 0 ? NULL : read_note(fd);
	const char *found = pd_member_text(note, "run");

	if (found && strcmp(found, run) == 0)
		keeper = (int)pd_member_int(note, "keeper");
	json_decref(note);
	if (fd >= 0)
		close(fd);
	free(path);
	return keeper;
}

/* Returns "process 4711 on node3, since 2026-11-22T13:44:06Z, with plan.json"; free() it. */
static char *describe_holder(const json_t *note, pid_t pid)
{
	const char *host = pd_member_text(note, "host");
	const char *since = pd_member_text(note, "since");
	const char *what = pd_member_text(note, "what");
	int64_t noted = pd_member_int(note, "pid");

	if (host && since && what)
		return pd_format("process %" PRId64 " on %.64s, since %.32s, with %.120s", noted, host,
				 since, what);
	return pid > 0 ? pd_format("process %ld", (long)pid) : pd_strdup("a process");
}

/*
 * Returns who holds the lock, or NULL if it was released.  A new holder may not have written its
 * note yet.  The process that the system names is waited for, if it is on this machine.
 */
static char *holder(int fd)
{
	struct flock other = whole();
	json_t *note = NULL;
	char *text;

	for (int i = 0; i < NOTE_TRIES; i++) {
		other = whole();
		if (fcntl(fd, F_GETLK, &other) != 0 || other.l_type == F_UNLCK)
			return NULL;
		json_decref(note);
		note = read_note(fd);
		if (note && (other.l_pid <= 0 || pd_member_int(note, "pid") == other.l_pid))
			break;
		json_decref(note);
		note = NULL;
		pause_shortly();
	}
	text = describe_holder(note, other.l_pid);
	json_decref(note);
	return text;
}

/* ---- taking it ---- */

/* Returns 1: taken, 0: to be tried again, -1: error. */
static int try_once(struct pd_checkpoint_lock *lock, struct pd_error *err)
{
	struct flock mine = whole();
	struct stat st;
	char *who;

	lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	if (lock->fd < 0)
		return pd_error_input(err, "%s: cannot write there: %s: %s", lock->directory,
				      LOCK_FILE, strerror(errno));
	if (fstat(lock->fd, &st) != 0 || !S_ISREG(st.st_mode))
		return pd_error_failed(err, "%s: expected a file", lock->path);
	if (fcntl(lock->fd, F_SETLK, &mine) == 0)
		/* A holder removes the file before it releases the lock. */
		return same_file(lock->fd, lock->path);
	if (errno != EAGAIN && errno != EACCES) {
		pd_say("%s: its file system has no locks (%s): nothing keeps another run from "
		       "writing there", lock->directory, strerror(errno));
		return 1;
	}
	who = holder(lock->fd);
	if (!who)
		return 0;
	pd_error_failed(err, "%s: another run writes its checkpoints there: %s; expected another "
			"--checkpoint directory, or that run to end first", lock->directory, who);
	free(who);
	return -1;
}

static void close_file(struct pd_checkpoint_lock *lock)
{
	if (lock->fd >= 0)
		close(lock->fd);
	lock->fd = -1;
}

static int lock_file(struct pd_checkpoint_lock *lock, struct pd_error *err)
{
	int taken = 0;

	if (mkdir(lock->directory, 0777) == 0)
		lock->made = true;
	else if (errno != EEXIST)
		return pd_error_input(err, "%s: cannot create: %s", lock->directory,
				      strerror(errno));
	for (int i = 0; i < TRIES && taken == 0; i++) {
		if (i > 0)
			pause_shortly();
		taken = try_once(lock, err);
		if (taken <= 0)
			close_file(lock);
	}
	if (taken == 0)
		return pd_error_failed(err, "%s: other runs take and leave it all the time",
				       lock->directory);
	if (taken > 0)
		write_note(lock);
	return taken > 0 ? 0 : -1;
}

struct pd_checkpoint_lock *pd_checkpoint_lock(const char *directory, const char *what,
					      const char *run, int keeper, struct pd_error *err)
{
	struct pd_checkpoint_lock *lock = pd_zalloc(sizeof(*lock));

	*lock = (struct pd_checkpoint_lock){
		.directory = pd_strdup(directory), .path = pd_format("%s/" LOCK_FILE, directory),
		.what = pd_strdup(what), .run = pd_strdup(run), .keeper = keeper, .fd = -1,
	};
	if (lock_file(lock, err) < 0 || pd_checkpoint_check_names(directory, err) < 0) {
		pd_checkpoint_unlock(lock);
		return NULL;
	}
	/* Creating a folder and removing it shows that checkpoints can be written. */
	if (pd_checkpoint_begin(directory, 0, err) < 0) {
		if (err)                /* nothing has been done yet: it is the place that is wrong */
			err->status = PD_EXIT_USAGE;
		pd_checkpoint_unlock(lock);
		return NULL;
	}
	pd_checkpoint_abandon(directory, 0);
	return lock;
}

int pd_checkpoint_lock_keep(struct pd_checkpoint_lock *lock, struct pd_error *err)
{
	struct flock mine = whole();
	char *who;

	if (!same_file(lock->fd, lock->path)) {
		close_file(lock);
		if (lock_file(lock, err) == 0)
			return 0;
		if (err)
			err->status = PD_EXIT_FAILED;
		return -1;
	}
	if (fcntl(lock->fd, F_SETLK, &mine) == 0 || (errno != EAGAIN && errno != EACCES))
		return 0;
	who = holder(lock->fd);
	pd_error_failed(err, "%s: the lock was lost to another run: %s", lock->directory,
			who ? who : "it has ended");
	free(who);
	close_file(lock);
	return -1;
}

void pd_checkpoint_unlock(struct pd_checkpoint_lock *lock)
{
	if (!lock)
		return;
	if (lock->fd >= 0) {
		if (same_file(lock->fd, lock->path))
			unlink(lock->path);
		close(lock->fd);
	}
	if (lock->made)
		rmdir(lock->directory);
	free(lock->directory);
	free(lock->path);
	free(lock->what);
	free(lock->run);
	free(lock);
}
