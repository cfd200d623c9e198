/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of a plan that a test makes up. */
#pragma once

#include "base/json.h"
#include "base/mem.h"
#include "predict/replay.h"

/* The number of devices, each of which has a link of its own of 1 byte per ns. */
#define REPLAYED_DEVICES 2048

/* Returns a plan of these "layers" and "stages", and frees both. */
static inline struct pd_plan *plan_of_stages(json_t *layers, json_t *stages, int64_t latency_ns,
					     const char *schedule, const char *weights,
					     const char *startup, int microbatches)
{
	json_t *json = json_pack(
		"{ss si s{ss si ss si ss s{ss ss si si} so}"
		" s{ss si s{si} s[{si sI sI}]} ss ss ss si so}",
		"format", "pd-plan", "version", 1,
		"profile", "format", "pd-profile", "version", 1, "name", "made up",
		"batch_size", 8, "dtype", "f32",
		"device", "kind", "cpu", "name", "none", "threads", 1, "memory_bytes", 0,
		"layers", layers,
		"topology", "format", "pd-topology", "version", 1, "device", "memory_bytes", 0,
		"levels", "count", REPLAYED_DEVICES, "bandwidth_bytes_per_s",
		INT64_C(1000000000), "latency_ns", latency_ns,
		"schedule", schedule, "weights", weights, "startup", startup,
		"microbatches", microbatches, "stages", stages);
	struct pd_place place = pd_place_root("made up", json);
	struct pd_error err;
	struct pd_plan *plan = pd_plan_parse_at(&place, &err);

	if (!plan)
		pd_bug("%s", err.text);
	json_decref(json);
	return plan;
}

/* Returns the trace of a replay of the plan, and frees the plan. */
static inline struct pd_trace *replayed_plan(struct pd_plan *plan, int64_t microbatches)
{
	struct pd_replay_options with = { .microbatches = microbatches };
	struct pd_error err;
	struct pd_trace *trace = pd_replay(plan, &with, &err);

	if (!trace)
		pd_bug("%s", err.text);
	pd_plan_free(plan);
	return trace;
}
