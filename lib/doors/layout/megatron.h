/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of Megatron-LM (--pipeline-model-parallel-layout): stages with | between them, E for the embedding, t for
 * a decoder layer, L for the loss.  Commas mean nothing; (..)*N and X*N repeat a group, without groups in it, and
 * then a letter.
 */
#pragma once

#include "base/error.h"

/* Its arguments for a layout, for the ranks of a pipeline, the stages of a rank where all are alike, and for the microbatches that go through a stage before its rank's next one. */
#define PD_MEGATRON_LAYOUT "--pipeline-model-parallel-layout"
#define PD_MEGATRON_RANKS "--pipeline-model-parallel-size"
#define PD_MEGATRON_VIRTUAL "--num-virtual-stages-per-pipeline-rank"
#define PD_MEGATRON_ROUND "--microbatch-group-size-per-virtual-pipeline-stage"

/* What a stage has. */
struct pd_megatron_stage {
	int decoders;
	int embedding, loss;            /* 0 or 1 in a layout that is right */
};

#define PD_MEGATRON_MOST (1 << 20)      /* letters of a layout once it is spelled out */

/*
 * Reads a layout into *stages_p, which the caller frees, and returns the number of stages; or returns -1: a letter
 * that it cannot have, E that is not the first letter, L that is not the last, either of them not there once.
 */
int pd_megatron_read(const char *text, struct pd_megatron_stage **stages_p, struct pd_error *err);
/* Returns the shortest text for stages; free() it. */
char *pd_megatron_text(const struct pd_megatron_stage *stages, int count);
