/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"

#include "base/file.h"
#include "scratch.h"
#include "small_checkpoint.h"
#include "tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool same_info(const struct pd_checkpoint_info *got, int64_t step)
{
	struct pd_checkpoint_info info = small_info(step);
	const struct pd_checkpoint_stage *stages = info.stages;
	bool same = got->step == step && got->epoch == 3 && got->minibatch == 41 &&
		    got->seed == INT64_MAX && got->batch_size == 64 &&
		    strcmp(got->name, "small") == 0 && strcmp(got->dtype, "f32") == 0 &&
		    json_equal(got->optimizer, info.optimizer) && got->stage_count == 2;

	for (int i = 0; same && i < 2; i++) {
		same = got->stages[i].layer_count == 2 &&
		       got->stages[i].warmup == stages[i].warmup &&
		       got->stages[i].replicas == stages[i].replicas &&
		       got->stages[i].version_count == stages[i].version_count &&
		       memcmp(got->stages[i].versions, stages[i].versions,
			      (size_t)stages[i].version_count * sizeof(int64_t)) == 0;
		for (int k = 0; same && k < 2; k++)
			same = strcmp(got->stages[i].layers[k], stages[i].layers[k]) == 0;
	}
	json_decref(info.optimizer);
	return same;
}

static void count_passed_over(void *context, int64_t step, const struct pd_error *why)
{
	int *count = context;

	(*count)++;
	if (step < 0 || why->status != PD_EXIT_USAGE)
		diag("passed over %d: %s", (int)step, why->text);
}

static struct pd_checkpoint *open_newest(const char *directory, struct pd_error *err)
{
	int count = 0;

	return pd_checkpoint_newest(directory, count_passed_over, &count, err);
}

static bool holds(const struct pd_checkpoint *ck, const char *name, int64_t version, float first)
{
	struct pd_error err = { 0 };
	float data[6] = { 0 };

	if (pd_checkpoint_read(ck, name, version, 6, data, &err) < 0) {
		diag("%s", err.text);
		return false;
	}
	return data[0] == first && data[5] == first + 5;
}

static void test_round_trip(void)
{
	const char *directory = scratch_path("round");
	struct pd_error err = { 0 };
	struct pd_checkpoint *ck;
	float data[8];

	if (!ok(small_save(directory, 10, 2, &err) == 0, "a checkpoint is written"))
		diag("%s", err.text);
	is_int(scratch_entries(directory), 1, "one folder, nothing temporary");
	is_int(scratch_entries(scratch_path("round/step-000000000010")), 3, "three files in it");
	ck = open_newest(directory, &err);
	if (!ok(ck && same_info(pd_checkpoint_info(ck), 10), "its document comes back as it was")) {
		diag("%s", err.text);
		exit(1);
	}
	ok(holds(ck, "conv1.weight", -1, small_value(10, "conv1.weight", 0)) &&
	   holds(ck, "conv1.weight", 10, small_value(10, "conv1.weight", 0)), "the newest version");
	ok(holds(ck, "conv1.weight", 9, small_value(10, "conv1.weight@9", 0)), "an older version");
	ok(holds(ck, "bn1.running_mean", -1, small_value(10, "bn1.running_mean", 0)) &&
	   holds(ck, "block.0.fc.weight.velocity", -1, small_value(10, "block.0.fc.weight.velocity", 0)),
	   "state and velocity, from whichever stage");
	ok(pd_checkpoint_stage_of(ck, "block.0.fc") == &pd_checkpoint_info(ck)->stages[1] &&
	   pd_checkpoint_stage_of(ck, "bn1") == &pd_checkpoint_info(ck)->stages[0] &&
	   !pd_checkpoint_stage_of(ck, "bn"), "the stage of a layer");
	ok(pd_checkpoint_has(ck, "block.0.fc.bias") && !pd_checkpoint_has(ck, "conv1.bias"), "has");
	ok(pd_checkpoint_read(ck, "conv2.weight", -1, 6, data, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_USAGE, "step-000000000010", "no tensor \"conv2.weight\""),
	   "a tensor that no stage has");
	ok(pd_checkpoint_read(ck, "conv1.weight", 8, 6, data, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_USAGE, "stage-0", "no version 8"),
	   "a version that it does not hold");
	ok(pd_checkpoint_read(ck, "conv1.weight", -1, 8, data, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_USAGE, "stage-0", "has 6 elements: expected 8"),
	   "another size");
	pd_checkpoint_close(ck);
}

static bool exists(const char *directory, int64_t step)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/step-%012d", directory, (int)step);
	return access(path, F_OK) == 0;
}

static int64_t newest(const char *directory)
{
	struct pd_error err = { 0 };
	struct pd_checkpoint *ck = open_newest(directory, &err);
	int64_t step = ck ? pd_checkpoint_info(ck)->step : -1;

	pd_checkpoint_close(ck);
	return step;
}

static void test_keep(void)
{
	const char *directory = scratch_path("keep");
	struct pd_error err = { 0 };
	struct pd_checkpoint *ck;

	for (int64_t step = 1; step <= 5; step++)
		small_save(directory, step, 3, &err);
	ok(scratch_entries(directory) == 3 && exists(directory, 3) && exists(directory, 5),
	   "keep 3 of 5");
	scratch_write(scratch_path("keep/notes"), "mine", 4);
	mkdir(scratch_path("keep/step-7"), 0777);
	mkdir(scratch_path("keep/.step-000000000002.tmp"), 0777);
	scratch_write(scratch_path("keep/.step-000000000002.tmp/stage-0.safetensors"), "half", 4);
	small_save(directory, 6, 1, &err);
	ok(scratch_entries(directory) == 3 && exists(directory, 6) && !exists(directory, 5) &&
	   access(scratch_path("keep/notes"), F_OK) == 0 &&
	   access(scratch_path("keep/step-7"), F_OK) == 0,
	   "keep 1; unfinished ones go, what is not ours stays");
	ok(small_save(directory, 6, 2, &err) == 0 && newest(directory) == 6 &&
	   scratch_entries(directory) == 3,
	   "the same step again takes its place");
	small_save(directory, 9, 2, &err);
	small_save(directory, 7, 2, &err);
	ok(exists(directory, 9) && exists(directory, 6), "a higher step is left alone");
	ck = pd_checkpoint_open(directory, 6, &err);
	ok(ck && same_info(pd_checkpoint_info(ck), 6), "a step by its number");
	pd_checkpoint_close(ck);
	ok(!pd_checkpoint_open(directory, 8, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, "000008", "cannot open"),
	   "a step that is not there");
}

static void test_incomplete(void)
{
	const char *directory = scratch_path("incomplete");
	const char *document = scratch_path("incomplete/step-000000000002/checkpoint.json");
	const char *stage = scratch_path("incomplete/step-000000000002/stage-1.safetensors");
	struct pd_error err = { 0 };
	uint8_t *bytes;
	size_t count;
	bool all = true;

	ok(!open_newest(directory, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, directory, "no complete checkpoint found"),
	   "a missing directory");
	mkdir(directory, 0777);
	ok(!open_newest(directory, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, directory, "no complete checkpoint found"),
	   "an empty directory");
	small_save(directory, 1, 2, &err);
	small_save(directory, 2, 2, &err);
	is_int(newest(directory), 2, "the newest");
	bytes = scratch_read(document, &count);
	unlink(document);
	is_int(newest(directory), 1, "without its document, the one before");
	for (size_t n = 0; n + 1 < count; n++) {
		scratch_write(document, bytes, n);
		all = all && newest(directory) == 1;
	}
	ok(all, "with half a document, the one before");
	scratch_write(document, bytes, count);
	free(bytes);
	is_int(newest(directory), 2, "with its document, the newest again");
	bytes = scratch_read(stage, &count);
	scratch_write(stage, bytes, count - 1);
	is_int(newest(directory), 1, "with half a stage, the one before");
	free(bytes);
	unlink(stage);
	is_int(newest(directory), 1, "without a stage, the one before");
	unlink(scratch_path("incomplete/step-000000000001/checkpoint.json"));
	ok(!open_newest(directory, &err) &&
	   one_sentence(&err, PD_EXIT_USAGE, directory, "no complete checkpoint found") &&
	   one_sentence(&err, PD_EXIT_USAGE, "stage-1.safetensors", "cannot open"),
	   "none is complete: why the newest is not");
}

/* Tests that wrong values in checkpoint.json are refused, each put in the place of a right one. */
static void test_document(void)
{
	static const struct {
		const char *was, *is, *says;
	} cases[] = {
		{ "\"pd-checkpoint\"", "\"pd-plan\"", "format" },
		{ "\"version\": 2", "\"version\": 3", "version" },
		{ "\"step\": 4", "\"step\": 5", "changed since it was written" },
		{ "\"step\": 4", "\"stop\": 4", "unknown key" },
		{ "\"epoch\": 3", "\"epoch\": -3", "epoch" },
		{ "\"minibatch\": 41", "\"minibatch\": 4.1", "minibatch" },
		{ "\"batch_size\": 64", "\"batch_size\": 0", "batch_size" },
		{ "\"small\"", "\"\"", "name" },
		{ "\"f32\"", "32", "dtype" },
		{ "{\"kind\"", "[{\"kind\"", "not JSON" },
		{ "\"stage-1.safetensors\"", "\"../../etc/passwd\"", "stages[1].file" },
		{ "\"loss\"", "\"bn1\"", "stages[1].layers[1]: layer \"bn1\" stands twice" },
		{ "\"replicas\": 3", "\"replicas\": 0", "stages[0].replicas" },
		{ "\"warmup\": 2", "\"warmup\": null", "stages[0].warmup" },
		{ "[3, 4]", "[4, 4]", "stages[0].versions[1]" },
		{ "[3, 4]", "[]", "stages[0].versions" },
		{ "[3, 4]", "[\"3\"]", "stages[0].versions[0]" },
	};
	const char *directory = scratch_path("document");
	const char *document = scratch_path("document/step-000000000004/checkpoint.json");
	struct pd_error err = { 0 };
	size_t count;
	char *text;

	small_save(directory, 4, 1, &err);
	text = (char *)scratch_read(document, &count);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char changed[4096];
		char *at = strstr(text, cases[i].was);

		if (!ok(at != NULL, "%s is there", cases[i].was))
			continue;
		snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, cases[i].is,
			 at + strlen(cases[i].was));
		scratch_write(document, changed, strlen(changed));
		ok(!pd_checkpoint_open(directory, 4, &err) &&
		   one_sentence(&err, PD_EXIT_USAGE, "checkpoint.json", cases[i].says), "%s",
		   cases[i].is);
	}
	free(text);
}

static void test_fails(void)
{
	const char *directory = scratch_path("fails");
	struct rlimit small, before;
	struct pd_error err = { 0 };
	struct pd_checkpoint_info info;

	ok(small_save(scratch_path("no/such/place"), 1, 1, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, "no/such/place", "cannot create"),
	   "no parent directory");
	scratch_write(scratch_path("plain"), "x", 1);
	ok(small_save(scratch_path("plain"), 1, 1, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, "plain", "Not a directory"), "a file in its place");
	small_save(directory, 1, 1, &err);
	getrlimit(RLIMIT_FSIZE, &before);
	signal(SIGXFSZ, SIG_IGN);
	small = before;
	for (rlim_t most = 0; most < 500; most += 60) {
		small.rlim_cur = most;
		setrlimit(RLIMIT_FSIZE, &small);
		int status = small_save(directory, 2, 1, &err);
		setrlimit(RLIMIT_FSIZE, &before);
		if (!ok(status < 0 &&
			one_sentence(&err, PD_EXIT_FAILED, directory, "cannot write") &&
			scratch_entries(directory) == 1 && newest(directory) == 1,
			"files of at most %d bytes: the one before is left, and nothing else",
			(int)most))
			break;
	}
	info = small_info(2);
	pd_checkpoint_begin(directory, 2, &err);
	small_write_stage(directory, 2, 0, &err);
	ok(pd_checkpoint_finish(directory, &info, 1, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, "stage-1.safetensors",
			"expected the tensors of stage 1") &&
	   scratch_entries(directory) == 1, "a stage was not written");
	pd_checkpoint_begin(directory, 2, &err);
	small_write_stage(directory, 2, 0, &err);
	pd_checkpoint_abandon(directory, 2);
	ok(scratch_entries(directory) == 1, "abandoned: nothing is left");
	json_decref(info.optimizer);
	if (geteuid() == 0) {
		skip("root may write anywhere", "a directory that is read-only");
		return;
	}
	chmod(directory, 0555);
	ok(small_save(directory, 3, 1, &err) < 0 &&
	   one_sentence(&err, PD_EXIT_FAILED, directory, "Permission denied"),
	   "a directory that is read-only");
	chmod(directory, 0777);
}

/* Tests that a writer which is killed at any moment leaves a directory whose newest checkpoint is read. */
static void test_killed(void)
{
	const char *directory = scratch_path("killed");
	struct pd_error err = { 0 };
	int64_t last = 1;
	bool all = true;

	small_save(directory, 1, 2, &err);
	for (int i = 0; i < 40; i++) {
		int pipe_fd[2], status;
		int64_t said = last, found;
		pid_t child;

		if (pipe(pipe_fd) != 0 || (child = fork()) < 0)
			break;
		if (child == 0) {
			for (int64_t step = last + 1;; step++) {
				if (small_save(directory, step, 2, &err) < 0 ||
				    write(pipe_fd[1], &step, sizeof(step)) != sizeof(step))
					_exit(1);
			}
		}
		close(pipe_fd[1]);
		/* The first checkpoint is waited for, however slow the machine is. */
		if (read(pipe_fd[0], &said, sizeof(said)) != sizeof(said))
			all = false;
		usleep((useconds_t)(i * 397 % 9000));
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		while (read(pipe_fd[0], &said, sizeof(said)) == sizeof(said))
			;
		close(pipe_fd[0]);
		found = newest(directory);
		if (found < said || found > said + 1 || scratch_entries(directory) > 5) {
			diag("kill %d: found %d, finished %d, %d entries", i, (int)found, (int)said,
			     scratch_entries(directory));
			all = false;
		}
		last = found;
	}
	ok(all && last > 40, "killed at 40 moments: the newest finished one is there (step %d)",
	   (int)last);
}

int main(void)
{
	test_round_trip();
	test_keep();
	test_incomplete();
	test_document();
	test_fails();
	test_killed();
	return done_testing();
}
