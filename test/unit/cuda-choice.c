/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the CUDA device chooses algorithms and records its choice (lib/run/device/cuda/choice.h). */
#include "tap.h"

#include "run/device/cuda/engine_name.h"

static void test_codes(void)
{
	bool good = true;

	for (int f = 0; f < 100; f += 9)
		for (int d = 0; d < 100; d += 11)
			for (int w = 0; w < 100; w += 3) {
				int64_t n = pd_choice_with(0, PD_BACKWARD_WEIGHTS, w);

				n = pd_choice_with(n, PD_FORWARD, f);
				n = pd_choice_with(n, PD_BACKWARD_DATA, d);
				good = good && pd_choice_code(n, PD_FORWARD) == f &&
				       pd_choice_code(n, PD_BACKWARD_DATA) == d &&
				       pd_choice_code(n, PD_BACKWARD_WEIGHTS) == w;
			}
	ok(good, "three codes in one number");
	ok(pd_choice_code(0, PD_BACKWARD_DATA) == 0, "none in 0");
	ok(pd_choice_code(INT64_MAX, PD_BACKWARD_WEIGHTS) < 100, "a number that nobody wrote has codes");
}

static void test_fastest(void)
{
	ok(pd_choice_fastest((float[]){ 3, 1, 2 }, 3) == 1, "the fastest");
	ok(pd_choice_fastest((float[]){ 1, 0.99f, 0.98f }, 3) == 0,
	   "the heuristics' first where the others are hardly faster");
	ok(pd_choice_fastest((float[]){ -1, 2, 1 }, 3) == 2, "not one that failed");
	ok(pd_choice_fastest((float[]){ -1, -1 }, 2) == -1, "none where all did");
	ok(pd_choice_fastest((float[]){ 0 }, 1) == 0, "the only one");
}

/* A GPU that is half as fast at first, and compiles each candidate when it runs for the first time. */
struct made_up_gpu {
	int n, calls, counts[4], last, out_of_turn;
	float busy_ms;
	const float *ms;                /* time of each candidate when warm; below 0: it fails */
};

static float made_up_time(void *context, int candidate)
{
	struct made_up_gpu *gpu = context;
	float ms = gpu->ms[candidate] * (gpu->busy_ms < PD_CHOICE_WARM_MS ? 2 : 1);
	bool first = gpu->counts[candidate]++ == 0;

	gpu->calls++;
	gpu->out_of_turn += candidate == gpu->last && gpu->n > 1;
	gpu->last = candidate;
	if (gpu->ms[candidate] < 0)
		return -1;
	if (first)
		return 1000;
	gpu->busy_ms += ms;
	/* Another program has the GPU now and then, during any candidate's turn. */
	return gpu->calls % 5 == 0 ? 3 * ms : ms;
}

static struct made_up_gpu measure(const float *ms, int n, float *shortest)
{
	struct made_up_gpu gpu = { .n = n, .last = -1, .ms = ms };

	pd_choice_measure(shortest, n, &(struct pd_choice_timer){ made_up_time, &gpu, 1 });
	return gpu;
}

static void test_measure(void)
{
	const float ms[] = { 3, 2, -1, 9 }, tiny[] = { 0 }, none[] = { -1, -1 };
	float shortest[4];
	struct made_up_gpu gpu = measure(ms, 4, shortest);

	ok(shortest[0] == 3 && shortest[1] == 2 && shortest[3] == 9,
	   "the shortest time of each, of a GPU that runs at full speed");
	ok(shortest[2] < 0 && gpu.counts[2] == 1, "what fails is not tried again");
	ok(gpu.out_of_turn == 0, "candidates take turns");
	ok(gpu.counts[0] == gpu.counts[1] && gpu.counts[0] > gpu.counts[3] && gpu.counts[3] > 1,
	   "what is far behind does not go on to the end");
	ok(gpu.busy_ms >= PD_CHOICE_WARM_MS + PD_CHOICE_ROUNDS * 5, "the GPU gets warm before");
	gpu = measure(tiny, 1, shortest);
	ok(gpu.calls == 1 + PD_CHOICE_WARM_ROUNDS + PD_CHOICE_ROUNDS && shortest[0] == 0,
	   "what takes no time at all comes to an end");
	gpu = measure(none, 2, shortest);
	ok(gpu.calls == 2 && pd_choice_fastest(shortest, 2) == -1, "nothing works");
}

/* A candidate that calls twice for each time has the GPU warm in half as many rounds. */
static void test_calls(void)
{
	const float ms[] = { 1, 2 };
	struct made_up_gpu once = { .n = 2, .last = -1, .ms = ms }, twice = once;
	float shortest[2];

	pd_choice_measure(shortest, 2, &(struct pd_choice_timer){ made_up_time, &once, 1 });
	pd_choice_measure(shortest, 2, &(struct pd_choice_timer){ made_up_time, &twice, 2 });
	ok(once.calls - 2 - 2 * PD_CHOICE_ROUNDS > 3 * (twice.calls - 2 - 2 * PD_CHOICE_ROUNDS) / 2,
	   "all calls of a candidate warm the GPU");
}

static void test_alike(void)
{
	struct pd_choice_maker makers[] = { { .what = { 1, 2, 3 }, .layer = "first" },
					    { .what = { 1, 2, 4 }, .layer = "second" } };
	struct pd_choice_maker like = { .what = { 1, 2, 4 } };
	const struct pd_choice_maker *found = pd_choice_alike(makers, 2, &like);

	ok(found && strcmp(found->layer, "second") == 0, "a layer that computes the same");
	like.what[PD_CHOICE_WHAT - 1] = 1;
	ok(!pd_choice_alike(makers, 2, &like), "none where one number differs");
}

static bool reads(const char *text, int way, int64_t index, int knobs)
{
	struct pd_engine_name name;

	return pd_engine_find(text, way, &name) && name.index == index &&
	       name.knob_count == knobs;
}

static void test_engines(void)
{
	static const char *const bad[] = {
		"", "forward", "forward ", "forward x", "forward -1", "forward 29 2", "forward 29 2=",
		"forward 29 =5", "forward 29 2=5,", "forward 29  2=5", "forwards 29", " forward 29",
		"forward 99999999999999999999", "forward 29 99999999999=1", "data 29", "forward 2 -2=1",
		"forward 2 2=-", "forward 2 2=--1",
	};
	const char *text = "forward 29 2=5 14=-1; weights 12";
	struct pd_engine_name many = { .index = INT64_MAX / 1000 }, name;
	char written[PD_ENGINE_TEXT], long_one[PD_ENGINE_TEXT + 16];
	bool good = true;

	ok(reads(text, PD_FORWARD, 29, 2) && reads(text, PD_BACKWARD_WEIGHTS, 12, 0),
	   "the engines of two ways");
	ok(!pd_engine_find(text, PD_BACKWARD_DATA, &name) && !pd_engine_find(NULL, PD_BACKWARD_DATA, &name),
	   "none where there is none");
	pd_engine_find(text, PD_FORWARD, &name);
	ok(name.knobs[0].type == 2 && name.knobs[0].value == 5 && name.knobs[1].type == 14 &&
	   name.knobs[1].value == -1, "knobs and their values");
	pd_engine_print(written, PD_FORWARD, &name);
	is_str(written, "forward 29 2=5 14=-1", "written as it was read");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (pd_engine_find(bad[i], PD_FORWARD, &name)) {
			diag("\"%s\" was taken", bad[i]);
			good = false;
		}
	ok(good, "what is no engine is none");
	for (many.knob_count = 0; many.knob_count < PD_ENGINE_KNOBS; many.knob_count++) {
		many.knobs[many.knob_count].type = many.knob_count;
		many.knobs[many.knob_count].value = -INT64_MAX / 1000;
	}
	pd_engine_print(written, PD_BACKWARD_DATA, &many);
	snprintf(long_one, sizeof(long_one), "forward 1; %s", written);
	ok(reads(long_one, PD_BACKWARD_DATA, many.index, PD_ENGINE_KNOBS) &&
	   reads(long_one, PD_FORWARD, 1, 0), "the longest fits");
	strcat(long_one, " 2=5");
	ok(!pd_engine_find(long_one, PD_BACKWARD_DATA, &name), "not more knobs than there are");
}

int main(void)
{
	test_engines();
	test_codes();
	test_fastest();
	test_measure();
	test_calls();
	test_alike();
	return done_testing();
}
