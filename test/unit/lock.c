/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that one process at a time writes into a directory of checkpoints. */
#include "checkpoint/lock.h"

#include "base/mem.h"
#include "scratch.h"
#include "tap.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that has the lock of a directory, maybe with a child of its own that does not have it. */
struct other {
	pid_t pid;
	int said;                       /* the end of a pipe that has a byte when the lock is taken */
};

static struct other start(const char *directory, bool child)
{
	struct other other = { 0 };
	int fd[2];

	if (pipe(fd) != 0)
		pd_bug("pipe");
	other.pid = fork();
	if (other.pid == 0) {
		struct pd_checkpoint_lock *lock = pd_checkpoint_lock(directory, "plan.json (net)", "", 0, NULL);

		if (child && fork() == 0) {
			close(fd[1]);
			sleep(5);
			_exit(0);
		}
		if (write(fd[1], lock ? "y" : "n", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(fd[1]);
	other.said = fd[0];
	return other;
}

static bool has_it(const struct other *other)
{
	char byte = 0;

	return read(other->said, &byte, 1) == 1 && byte == 'y';
}

static void end(struct other *other)
{
	kill(other->pid, SIGKILL);
	waitpid(other->pid, NULL, 0);
	close(other->said);
}

static bool taken(const char *directory, struct pd_error *err)
{
	struct pd_checkpoint_lock *lock = pd_checkpoint_lock(directory, "another", "", 0, err);

	pd_checkpoint_unlock(lock);
	return lock;
}

static void test_one(void)
{
	const char *directory = scratch_path("one");
	struct pd_error err = { 0 };
	char *number;
	struct other other;

	ok(taken(directory, &err) && access(directory, F_OK) != 0,
	   "taken and given back: a directory made for it goes too");
	mkdir(directory, 0777);
	ok(taken(directory, &err) && scratch_entries(directory) == 0,
	   "one that was there stays, and nothing is left in it");
	other = start(directory, true);
	ok(has_it(&other), "another process takes it");
	ok(!taken(directory, &err) && one_sentence(&err, PD_EXIT_FAILED, directory,
						   "another run writes its checkpoints there"),
	   "it keeps others out");
	number = pd_format("process %ld on ", (long)other.pid);
	ok(strstr(err.text, number) && strstr(err.text, ", since 20") &&
	   strstr(err.text, "with plan.json (net)"), "they are told who has it: %s", err.text);
	free(number);
	end(&other);
	err = (struct pd_error){ 0 };
	ok(taken(directory, &err), "killed, it has it no more, though its child lives");
	if (err.text[0])
		diag("%s", err.text);
	ok(scratch_entries(directory) == 0, "nothing of it is left");
}

/* Tests that a stale note names nobody, and that the present holder of the lock is waited for. */
static void test_stale(void)
{
	const char *directory = scratch_path("stale"), *file = scratch_path("stale/.lock");
	const char *notes[] = { "", "{", "[]", "{\"host\": 1}",
				"{\"host\": \"old\", \"pid\": 1, \"since\": \"1999\", \"what\": \"x\"}" };

	mkdir(directory, 0777);
	for (size_t i = 0; i < PD_COUNT(notes); i++) {
		struct pd_error err = { 0 };
		struct other other;
		char *number;

		scratch_write(file, notes[i], strlen(notes[i]));
		other = start(directory, false);
		ok(has_it(&other) && !taken(directory, &err) && strstr(err.text, "with plan.json"),
		   "over the note %s", *notes[i] ? notes[i] : "(empty)");
		scratch_write(file, notes[i], strlen(notes[i]));
		number = pd_format("process %ld;", (long)other.pid);
		ok(!taken(directory, &err) && strstr(err.text, number),
		   "with that note while another has it: %s", number);
		free(number);
		end(&other);
	}
	ok(taken(directory, NULL), "and by nobody");
}

static void test_refused(void)
{
	struct pd_error err = { 0 };
	const char *plain = scratch_path("plain"), *odd = scratch_path("odd/.lock");

	ok(!taken(scratch_path("no/such/place"), &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, "no/such/place", "cannot create"),
	   "no parent directory");
	scratch_write(plain, "x", 1);
	ok(!taken(plain, &err) && one_sentence(&err, PD_EXIT_USAGE, plain, "Not a directory"),
	   "a file in its place");
	mkdir(scratch_path("odd"), 0777);
	mkfifo(odd, 0600);
	ok(!taken(scratch_path("odd"), &err) &&
	   one_sentence(&err, PD_EXIT_FAILED, odd, "expected a file"), "a pipe in the lock's place");
	unlink(odd);
	if (symlink("elsewhere", odd) == 0)
		ok(!taken(scratch_path("odd"), &err) &&
		   one_sentence(&err, PD_EXIT_USAGE, "odd", "cannot write there"),
		   "a link in the lock's place is not followed");
	unlink(odd);
	if (geteuid() == 0) {
		skip("root may write anywhere", "a directory that is read-only");
		return;
	}
	chmod(scratch_path("odd"), 0555);
	ok(!taken(scratch_path("odd"), &err) &&
	   one_sentence(&err, PD_EXIT_FAILED, "odd", "Permission denied"),
	   "a directory that is read-only");
	chmod(scratch_path("odd"), 0777);
}

static void test_removed(void)
{
	const char *directory = scratch_path("removed"), *file = scratch_path("removed/.lock");
	struct pd_error err = { 0 };
	struct pd_checkpoint_lock *lock = pd_checkpoint_lock(directory, "first", "", 0, &err);
	struct other other;

	ok(lock && pd_checkpoint_lock_keep(lock, &err) == 0, "kept");
	unlink(file);
	rmdir(directory);
	ok(pd_checkpoint_lock_keep(lock, &err) == 0 && access(file, F_OK) == 0,
	   "the directory was removed: made and locked again");
	unlink(file);
	other = start(directory, false);
	ok(has_it(&other) && pd_checkpoint_lock_keep(lock, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, directory, "another run"),
	   "another took it after that: lost");
	pd_checkpoint_unlock(lock);
	ok(access(file, F_OK) == 0 && !taken(directory, NULL), "and the other's lock stays");
	end(&other);
}

/* Tests that of many processes which take the lock for a moment never two have it at once. */
static void test_contest(void)
{
	enum { PROCESSES = 6, TURNS = 150 };
	const char *directory = scratch_path("contest"), *inside = scratch_path("contest-inside");
	int twice = 0, turns = 0;

	for (int p = 0; p < PROCESSES; p++)
		if (fork() == 0) {
			int met = 0, had = 0;

			for (int i = 0; i < TURNS; i++) {
				struct pd_checkpoint_lock *lock = pd_checkpoint_lock(directory, "turn", "", 0,
										     NULL);

				if (!lock)
					continue;
				had++;
				met += mkdir(inside, 0700) != 0;
				sched_yield();
				rmdir(inside);
				pd_checkpoint_unlock(lock);
			}
			_exit(met ? 1 : had ? 0 : 2);
		}
	for (int p = 0; p < PROCESSES; p++) {
		int status;

		wait(&status);
		twice += !WIFEXITED(status) || WEXITSTATUS(status) == 1;
		turns += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	ok(twice == 0 && turns > 0, "%d processes contend for it: never do two have it", PROCESSES);
}

int main(void)
{
	test_one();
	test_stale();
	test_refused();
	test_removed();
	test_contest();
	return done_testing();
}
