/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of schedules and of weights, and what is known of each. */
#pragma once

#include <stdbool.h>

enum pd_schedule_kind {
#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) PD_SCHEDULE_##symbol,
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
	PD_SCHEDULE_KINDS
};

enum pd_weight_kind {
#define WEIGHT_KIND(symbol, name, facts, what) PD_WEIGHTS_##symbol,
#include "plan/weight_kind.def"
#undef WEIGHT_KIND
	PD_WEIGHT_KINDS
};

extern const char *const pd_schedule_kind_name[PD_SCHEDULE_KINDS + 1];  /* NULL-terminated */
extern const char *const pd_weight_kind_name[PD_WEIGHT_KINDS + 1];

enum pd_schedule_fact {
	PD_FACT_SPLITS = 1 << 0,        /* gradients of weights are operations of their own */
	PD_FACT_SHARES = 1 << 1,        /* a rank has several stages */
	PD_FACT_V = 1 << 9,             /* the other way for every second of them */
	PD_FACT_ORDERED = 1 << 10,      /* the plan has its order */
	PD_FACT_ROUNDS = 1 << 11,       /* microbatches take turns in rounds, whose length is the plan's */
	PD_FACT_STRAIGHT = 1 << 2,      /* no stage has replicas */
	PD_FACT_MINIBATCHES = 1 << 3,   /* warm-ups count minibatches */
	PD_FACT_LEADS = 1 << 4,         /* warm-ups and the start-up are the plan's */
	PD_FACT_FORWARDS_FIRST = 1 << 5, /* all of a group's come before its first backward */
	PD_FACT_ALONE = 1 << 6,         /* one microbatch at a time */
	PD_FACT_OPEN = 1 << 7,          /* a search over all schedules tries it */
	PD_FACT_PAIRS = 1 << 12,        /* forwards may be beside backwards */
	PD_FACT_FLOW = 1 << 8,          /* the recurrence of predict/flow.c is exact */
};

/* Without any of these there is one version, and each stage updates it as soon as it can. */
enum pd_weight_fact {
	PD_WEIGHTS_STASHES = 1 << 0,    /* a version stays until the last backward whose forward read it */
	PD_WEIGHTS_TAGS = 1 << 1,       /* the first stage's version is what the others read, too */
	PD_WEIGHTS_GROUPS = 1 << 2,     /* all stages update after the same microbatches, so they may agree on it, and
					   have copies of what layers share */
	PD_WEIGHTS_BEHIND = 1 << 3,     /* a group reads the version before its own, so there are two */
	PD_WEIGHTS_DRAINS = 1 << 4,     /* a group's last backward comes before the next one's first forward */
	PD_WEIGHTS_REREADS = 1 << 5,    /* backward reads the newest version, not that of its forward */
};

bool pd_weights_have(enum pd_weight_kind weights, enum pd_weight_fact fact);
/* Tells whether each stage stashes what it reads, by its own updates alone. */
bool pd_weights_stash_alone(enum pd_weight_kind weights);
bool pd_schedule_has(enum pd_schedule_kind kind, enum pd_schedule_fact fact);
/* Tells whether it can be combined with these weights. */
bool pd_schedule_goes_with(enum pd_schedule_kind kind, enum pd_weight_kind weights);
/* Returns the weights that it has unless others are asked for. */
enum pd_weight_kind pd_schedule_usual_weights(enum pd_schedule_kind kind);
/*
 * Returns the position of a stage on a path of so many ranks: stages go from one to the next over and over, or
 * with PD_FACT_V there and back again.
 */
int pd_schedule_position(enum pd_schedule_kind kind, int positions, int stage);
