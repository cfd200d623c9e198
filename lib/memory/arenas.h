/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas of a rank, one table (arenas.def): who allocates each, of how many bytes, how many.
 * The worker allocates by it, predictions and searches add it up, and checkpoints take arenas by its names.
 */
#pragma once

#include "memory/memory.h"

enum pd_arena_kind {
#define PD_ARENA(name, part, owner, saved, each, count) PD_ARENA_##name,
#include "memory/arenas.def"
#undef PD_ARENA
	PD_ARENAS
};

enum pd_arena_owner {
	PD_ARENA_OF_WORKER, PD_ARENA_OF_WEIGHTS, PD_ARENA_OF_REDUCER, PD_ARENA_OF_RANK
};

extern const char *const pd_arena_name[PD_ARENAS];
extern const enum pd_arena_owner pd_arena_owner[PD_ARENAS];
extern const bool pd_arena_saved[PD_ARENAS];

struct pd_arena_counts {
	/* The schedule and the optimizer give these numbers for a stage. */
	int versions, slots, kept, inboxes, outboxes;
	int arriving, leaving;          /* gradients of activations */
	int moments;                    /* SGD's velocity: 1; Adam's: 2 */
	bool corrects;                  /* PipeMare's correction of late gradients */
	/* These are the plan's. */
	int sums;                       /* of gradients, of groups that are open at once */
	bool accumulates;               /* a replica sums several microbatches: each is computed apart and then added */
	bool sparse;
	int64_t scale_bytes;            /* of a loss scale, behind each version and each sum of gradients */
	int64_t least_bytes;            /* of a version and of what has a scale, where there are no parameters */
};

struct pd_arena_need {
	int64_t count, each_bytes;
};

/* Returns those numbers with what the plan says of a stage. */
struct pd_arena_counts pd_arena_counts_of(const struct pd_plan *plan, int stage, struct pd_arena_counts counts);
/* Returns what takes their place in another program: it has one version, and no inbox for what comes next. */
struct pd_arena_counts pd_arena_counts_elsewhere(const struct pd_arena_counts *counts);
void pd_arenas_need(const struct pd_arena_counts *has, const struct pd_stage_memory *sizes,
		    struct pd_arena_need needs[PD_ARENAS]);

/*
 * Has the stages of a rank, whose needs of slots these are, share so many, each as large as the largest of theirs,
 * if that takes less: all of them then stand in the first one's needs.  Tells whether they do.
 */
bool pd_arenas_share(struct pd_arena_need *const *slots, int stages, int64_t count);

/* Adds a stage's arenas to what its rank has; total_bytes, too. */
void pd_arenas_add(const struct pd_arena_need needs[PD_ARENAS], struct pd_memory *memory);
