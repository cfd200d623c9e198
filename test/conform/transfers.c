/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of transfers between GPUs against plain C: messages from every rank to every other, and
 * all-reduce, by NCCL and staged.  There are two and four ranks, which share GPUs if there are fewer.
 * One rank is killed, which the others notice.
 */
#include "engine/device/submit.h"
#include "tap.h"
#include "unit/ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "run/transport/nccl/nccl.h"
#include "unit/dense_open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

static const size_t sizes[] = { 1, 0, 4099, 64, 3 << 20 };
#define SIZES PD_COUNT(sizes)

static char content(int from, int to, size_t k, size_t i)
{
	return (char)(from * 71 + to * 31 + (int)k * 13 + (int)(i % 251));
}

static bool copy_now(struct rank *me, void *dst, const void *src, size_t bytes, enum pd_copy way)
{
	struct pd_stream *stream = me->device->ops->stream.open(me->device, NULL);
	struct pd_event ev;

	pd_event_arm(&ev);
	pd_submit_copy(stream, dst, src, bytes, way, &ev);
	pd_event_wait(&ev, &me->gate);
	me->device->ops->stream.close(stream);
	return !pd_event_failed(&ev);
}

struct message {
	char *host, *out, *in;          /* out, in: device memory */
	struct pd_event ready, sent, came;
};

/*
 * Allocates a message's memory.  Memory is allocated and freed only while no transfer is in progress:
 * both may wait until the GPU is idle, while a transfer on it may wait for this process to go on.
 */
static void take(struct rank *me, struct message *m, int peer, size_t k)
{
	const struct pd_device_ops *ops = me->device->ops;

	m->host = malloc(sizes[k] + 1);
	m->out = ops->memory.alloc(me->device, sizes[k], NULL);
	m->in = ops->memory.alloc(me->device, sizes[k], NULL);
	for (size_t i = 0; i < sizes[k]; i++)
		m->host[i] = content(me->rank, peer, k, i);
}

static void begin(struct rank *me, struct pd_stream *stream, struct message *m, int peer, size_t k)
{
	pd_event_arm(&m->ready);
	/* The message is sent once the GPU has the copy, without the host's knowledge. */
	pd_submit_copy(stream, m->out, m->host, sizes[k], PD_COPY_TO_DEVICE, &m->ready);
	ranks_send(me, peer, 100 + k, m->out, sizes[k], &m->ready, &m->sent);
}

static bool end(struct rank *me, struct message *m)
{
	return ranks_until(me, &m->sent) == 0 && ranks_until(me, &m->came) == 0;
}

static bool check(struct rank *me, struct message *m, int peer, size_t k)
{
	const struct pd_device_ops *ops = me->device->ops;
	bool good = copy_now(me, m->host, m->in, sizes[k], PD_COPY_TO_HOST);

	for (size_t i = 0; i < sizes[k]; i++)
		good = good && m->host[i] == content(peer, me->rank, k, i);
	ops->memory.free(me->device, m->out);
	ops->memory.free(me->device, m->in);
	free(m->host);
	return good;
}

static int messages(struct rank *me)
{
	struct pd_stream *stream = me->device->ops->stream.open(me->device, NULL);
	struct message all[4][SIZES];
	int bad = 0;

	for (int round = 0; round < 3; round++) {
		for (int r = 0; r < me->ranks; r++)
			for (size_t k = 0; k < SIZES; k++)
				take(me, &all[r][k], r, k);
		for (int r = 0; r < me->ranks; r++)
			for (size_t k = 0; k < SIZES; k++)
				begin(me, stream, &all[r][k], r, k);
		for (int r = 0; r < me->ranks; r++)
			for (size_t k = SIZES; k-- > 0;)        /* not in the sender's order */
				ranks_recv(me, r, 100 + k, all[r][k].in, sizes[k], NULL,
					   &all[r][k].came);
		for (int r = 0; r < me->ranks; r++)
			for (size_t k = 0; k < SIZES; k++)
				bad += !rank_ok(me, end(me, &all[r][k]), "it comes");
		for (int r = 0; r < me->ranks; r++)
			for (size_t k = 0; k < SIZES; k++)
				bad += !rank_ok(me, check(me, &all[r][k], r, k), "what came");
	}
	me->device->ops->stream.close(stream);
	return bad;
}

static float value(int rank, size_t i)
{
	return (float)((int)((i * 2654435761u + (size_t)rank * 40503u) % 16777216u) - 8388608) *
	       (rank % 2 ? 1.0f / 1048576 : 1);
}

static int reduce(struct rank *me, struct pd_allreduce how, size_t floats)
{
	const struct pd_device_ops *ops = me->device->ops;
	struct pd_stream *stream = ops->stream.open(me->device, NULL);
	size_t bytes = floats * sizeof(float);
	float *host = malloc(bytes), *buf = ops->memory.alloc(me->device, bytes, NULL);
	int ranks[] = { 0, 1, 2, 3 };
	struct pd_error err;
	struct pd_reduction *c = dense_open(&(struct pd_reduction_config){
			.transport = me->transport, .device = me->device, .stream = stream,
			.ranks = ranks, .me = me->rank, .floats = floats }, &how, &err);
	struct pd_event done;
	bool good = true;

	for (size_t i = 0; i < floats; i++)
		host[i] = value(me->rank, i);
	copy_now(me, buf, host, bytes, PD_COPY_TO_DEVICE);
	pd_event_arm(&done);
	good = c->ops->start(c, buf, 0, NULL, &done) == 0;
	while (good && !pd_event_done(&done))
		good = ranks_step(me, 100) >= 0 && c->ops->progress(c, PD_REDUCTION_ALL) >= 0;
	good = good && copy_now(me, host, buf, bytes, PD_COPY_TO_HOST);
	for (size_t i = 0; i < floats; i++) {
		float sum = value(0, i);

		for (int r = 1; r < me->ranks; r++)
			sum += value(r, i);
		good = good && memcmp(&sum, &host[i], sizeof(sum)) == 0;
	}
	ops->stream.close(stream);
	c->ops->close(c);
	ops->memory.free(me->device, buf);
	free(host);
	return !rank_ok(me, good, "the sum in the order of the ranks, bit for bit");
}

static int reductions(struct rank *me)
{
	const struct pd_allreduce kinds[] = {
		{ me->ranks, 1, 3 * me->ranks }, { me->ranks, me->ranks, 2 * me->ranks },
		{ me->ranks, (me->ranks + 1) / 2, 6 },
	};
	int bad = 0;

	for (size_t i = 0; i < PD_COUNT(kinds); i++) {
		bad += reduce(me, kinds[i], 1);
		ranks_barrier(me);
		bad += reduce(me, kinds[i], 100003);
		ranks_barrier(me);
		bad += reduce(me, kinds[i], (size_t)1 << 22);
		ranks_barrier(me);
	}
	return bad;
}

/* Kills the last rank while the others wait for a message from it. */
static int killed(struct rank *me)
{
	char *in = me->device->ops->memory.alloc(me->device, 64, NULL);
	int victim = me->ranks - 1;
	int64_t begun_ns;
	struct pd_event came;

	ranks_barrier(me);
	if (me->rank == victim)
		kill(getpid(), SIGKILL);
	begun_ns = pd_now_ns();
	ranks_recv(me, victim, 7, in, 64, NULL, &came);
	while (ranks_step(me, 100) >= 0 && pd_now_ns() - begun_ns < 20 * SECOND_NS)
		;
	return !rank_ok(me, strstr(me->gate.err.text, "lost rank") != NULL,
			"a lost rank is noticed");
}

static void test(int n, const char *how)
{
	const char *name = how ? how : "by default";

	ranks_device = &pd_device_cuda;
	ranks_how = how;
	is_int(run_ranks(n, messages, NULL, -1), 0, "%d ranks, %s: all with all", n, name);
	is_int(run_ranks(n, reductions, NULL, -1), 0, "%d ranks, %s: all-reduce", n, name);
	if (how && strcmp(how, "nccl") == 0)
		is_int(run_ranks(n, killed, NULL, n - 1), 0, "%d ranks, %s: one is killed", n, name);
}

/* Tells whether a GPU can be used; a child process asks, since CUDA does not survive a later fork. */
static bool usable(char *why, size_t size)
{
	const char *wanted = getenv("PD_TEST_DEVICE");
	int wires[2], status;
	ssize_t n;
	pid_t pid;

	if ((wanted && strcmp(wanted, "cuda") != 0) || pipe(wires) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		struct pd_error err = { .text = "" };
		int count = pd_device_cuda.count(&err);

		_exit(write(wires[1], err.text, strlen(err.text)) < 0 || count == 0);
	}
	close(wires[1]);
	n = read(wires[0], why, size - 1);
	why[n > 0 ? n : 0] = '\0';
	close(wires[0]);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Runs the tests, or, with --has-nccl, only tells a script whether this build has NCCL. */
int main(int argc, char **argv)
{
	static const bool peers[2] = { true, true };
	struct pd_error err = { .text = "" };
	char why[512] = "it is not asked for";
	char *ids = pd_nccl_ids(0, 1, peers, &err);
	bool nccl = ids != NULL;

	free(ids);
	if (argc > 1 && strcmp(argv[1], "--has-nccl") == 0)
		return !nccl;
	if (!usable(why, sizeof(why))) {
		absent(why, "transfers between GPUs");
		return done_testing();
	}
	ranks_limit_s = 240;
	for (int n = 2; n <= 4; n += 2) {
		test(n, NULL);
		test(n, "staged");
		if (nccl)
			test(n, "nccl");
		else
			absent(err.text, "NCCL");
	}
	return done_testing();
}
