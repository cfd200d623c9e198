/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule_kind.h"

#include <stddef.h>

const char *const pd_schedule_kind_name[PD_SCHEDULE_KINDS + 1] = {
#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) name,
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
	NULL
};

const char *const pd_weight_kind_name[PD_WEIGHT_KINDS + 1] = {
#define WEIGHT_KIND(symbol, name, facts, what) name,
#include "plan/weight_kind.def"
#undef WEIGHT_KIND
	NULL
};

#define WITH(symbol) (1u << PD_WEIGHTS_##symbol)
#define FACT(symbol) (unsigned)PD_FACT_##symbol

static const struct {
	enum pd_weight_kind usual;
	unsigned weights, facts;
} rows[PD_SCHEDULE_KINDS] = {
#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) { PD_WEIGHTS_##usual, weights, facts },
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
};

#undef FACT
#define FACT(symbol) (unsigned)PD_WEIGHTS_##symbol

static const unsigned weight_facts[PD_WEIGHT_KINDS] = {
#define WEIGHT_KIND(symbol, name, facts, what) facts,
#include "plan/weight_kind.def"
#undef WEIGHT_KIND
};

bool pd_weights_have(enum pd_weight_kind weights, enum pd_weight_fact fact)
{
	return weight_facts[weights] & fact;
}

bool pd_weights_stash_alone(enum pd_weight_kind weights)
{
	return pd_weights_have(weights, PD_WEIGHTS_STASHES) && !pd_weights_have(weights, PD_WEIGHTS_TAGS);
}

bool pd_schedule_has(enum pd_schedule_kind kind, enum pd_schedule_fact fact)
{
	return rows[kind].facts & fact;
}

bool pd_schedule_goes_with(enum pd_schedule_kind kind, enum pd_weight_kind weights)
{
	return rows[kind].weights >> weights & 1;
}

enum pd_weight_kind pd_schedule_usual_weights(enum pd_schedule_kind kind)
{
	return rows[kind].usual;
}

int pd_schedule_position(enum pd_schedule_kind kind, int positions, int stage)
{
	int place = stage % positions;
	bool back = pd_schedule_has(kind, PD_FACT_V) && stage / positions % 2 == 1;

	return back ? positions - 1 - place : place;
}
