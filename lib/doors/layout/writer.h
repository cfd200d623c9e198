/* SPDX-License-Identifier: Apache-2.0 */
/* A writer of layouts: what it is given, and what it can ask.  There is one for each row of layout_kind.def. */
#pragma once

#include "doors/layout/blocks.h"
#include "doors/layout/megatron.h"
#include "plan/plan.h"

#include <stdio.h>

/* Modules of each block that a system can compute again by themselves. */
struct pd_rerun_module {
	const char *name;               /* as Megatron has it in --recompute-modules */
	enum pd_layer_kind kinds[2];
};
#define PD_RERUN_MODULES 2
extern const struct pd_rerun_module pd_rerun_modules[PD_RERUN_MODULES];

/* A plan that its system can train, and what of it is known. */
struct pd_layout {
	const struct pd_plan *plan;
	const char *who;
	struct pd_blocks blocks;
	bool recompute;                 /* all stages do, or none */
	bool again[PD_RERUN_MODULES];   /* only these are computed again */
	int ranks;                      /* of one pipeline */
	FILE *out;
};

typedef int pd_layout_writer(const struct pd_layout *layout, struct pd_error *err);
#define LAYOUT_KIND(name, ...) pd_layout_writer pd_layout_write_##name;
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND

/* Returns the module with which a stage begins; of the stage behind the last: how many modules there are. */
int pd_layout_begin_of(const struct pd_layout *layout, int stage);
/* Counts what a stage has in Megatron's words; fails where it begins beside the blocks. */
int pd_layout_letters_of(const struct pd_layout *layout, int stage, struct pd_megatron_stage *out_p,
			 struct pd_error *err);
/* Returns the microbatches of a step of each replica. */
int64_t pd_layout_local(const struct pd_layout *layout);
/* Returns the samples of a microbatch that each of the devices has that share the weights out fully, or a rank. */
int64_t pd_layout_each(const struct pd_layout *layout);
/* Tells whether 1f1b has as many forwards ahead as any system that knows it by name. */
bool pd_layout_has_usual_leads(const struct pd_layout *layout);
/* Prints a number with as many digits as bring it back. */
void pd_layout_print_real(const struct pd_layout *layout, double value);
/* Returns the stages of a rank. */
int pd_layout_virtual(const struct pd_layout *layout);
/* Prints "pp 4 x tp 2 x dp 2, interleaved, 8 microbatches of 1 sample" without the end of the line. */
void pd_layout_print_degrees(const struct pd_layout *layout);
/*
 * Prints torchrun with the processes of each host, as the innermost level of the machine has them, and with several
 * hosts where they meet; a blank at the end.
 */
void pd_layout_print_torchrun(const struct pd_layout *layout);
