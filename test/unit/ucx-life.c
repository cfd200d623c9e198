/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connected processes for test/t6*.sh, which all die with the first one:
 *     ucx-life idle SECONDS   sleeps, and prints how much processor time that took
 *     ucx-life churn          starts processes that talk and end, for ever
 */
#include "base/clock.h"
#include "unit/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds;

static double cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int talk(struct rank *me)
{
	enum { BYTES = 200000 };
	static char out[BYTES], in[RANKS_MAX][BYTES];
	struct pd_event sent[RANKS_MAX], received[RANKS_MAX];
	int bad = 0;

	for (int i = 0; i < 20; i++) {
		size_t bytes = i % 2 ? BYTES : 500;

		for (int r = 0; r < me->ranks; r++) {
			bad += ranks_recv(me, r, 1, in[r], bytes, NULL, &received[r]) != 0;
			bad += ranks_send(me, r, 1, out, bytes, NULL, &sent[r]) != 0;
		}
		for (int r = 0; r < me->ranks; r++)
			bad += ranks_until(me, &sent[r]) != 0 ||
			       ranks_until(me, &received[r]) != 0;
	}
	return bad;
}

static int idle(struct rank *me)
{
	int64_t end_ns;
	int bad = talk(me);

	ranks_barrier(me);
	me->result[0] = cpu_ms();
	end_ns = pd_now_ns() + (int64_t)(seconds * 1e9);
	while (pd_now_ns() < end_ns)
		if (ranks_step(me, (int)((end_ns - pd_now_ns()) / 1000000) + 1) < 0)
			return 1;
	me->result[0] = cpu_ms() - me->result[0];
	ranks_barrier(me);
	return bad;
}

int main(int argc, char **argv)
{
	double result[RANKS_MAX * RANKS_RESULT], most_ms = 0;
	int failed = 0;

	if (argc == 2 && strcmp(argv[1], "churn") == 0)
		while (!failed)
			failed = run_ranks(3, talk, NULL, -1);
	if (failed || argc != 3 || strcmp(argv[1], "idle") != 0)
		return 1;
	seconds = atof(argv[2]);
	failed = run_ranks(4, idle, result, -1);
	for (int r = 0; r < 4; r++)
		if (result[r * RANKS_RESULT] > most_ms)
			most_ms = result[r * RANKS_RESULT];
	printf("%.3f\n", most_ms);
	return failed;
}
