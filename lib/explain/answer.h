/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan comes to, in the words of those who train: does it fit, how is it laid out, how fast is it, what limits
 * it, what is next best.
 *
 * A step is one update of the weights, of the global batch.  The FLOPs of a step are three times those of the
 * products of one forward of the global batch, two for each pair of numbers: forward, and both gradients.  An
 * attention counts all its scores, masked or not, and what is recomputed counts nothing (Chowdhery et al., PaLM,
 * 2022, appendix B; 6 N + 12 L H Q T of a transformer).  MFU is their rate over what the device's specification says
 * of dense products in the profile's dtype.
 */
#pragma once

#include "plan/plan.h"

#include <stdio.h>

struct pd_answer {
	int64_t global_batch;           /* samples of an update; 0: stages update after different numbers */
	int64_t sample_tokens;          /* 0: samples are no tokens */
	int64_t parameters;             /* shared ones once */
	int64_t devices;                /* that the plan uses */
	int64_t step_ns, step_low_ns, step_high_ns;     /* of a microbatch where global_batch is 0; 0: unknown */
	double samples_per_s;
	double step_flops;              /* of the same samples as step_ns; 0: the profile has no model */
	double device_flops_per_s;      /* 0: unknown */
	double peak_flops_per_s;        /* of one device, dense; 0: unknown */
	int fullest;                    /* the stage with the fullest device */
	int64_t fullest_bytes, memory_bytes;    /* what that uses, and has; 0: not known */
};

/*
 * Works it out.  memory_bytes is what one device may use; 0: the plan's topology or profile says it.
 */
void pd_answer_of(const struct pd_plan *plan, int64_t memory_bytes, struct pd_answer *answer_p);
/* Prints some ten lines, each with its noun in front. */
void pd_answer_print(const struct pd_plan *plan, int64_t memory_bytes, FILE *out);
