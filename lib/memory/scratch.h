/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This rule places the gradients of a stage's activations and the layers' temporaries.  Devices
 * compute with it, and the planner adds up its bytes.
 *
 * The gradient of an activation is in scratch from the last consumer's backward to the producer's,
 * first fit.  Gradients of tensors that come in are made in gradient-out; gradients of tensors that
 * leave start from gradient-in.  The sum over consumers is taken from the last to the first,
 * left-associated, whatever the stage.
 *
 * A layer may pass its output's gradient on to its inputs unchanged (add).  Its inputs' gradients
 * can then share the place of the output's, and nothing is copied.  Nobody overwrites that place
 * until every backward that reads it has run; a sum is made elsewhere until then.
 *
 * Where backward comes in two parts, a gradient that the second part reads is made in the slot; one
 * that has arrived is copied there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum pd_buffer { PD_NOWHERE, PD_SLOT, PD_SCRATCH, PD_GRADIENT_IN, PD_GRADIENT_OUT };

struct pd_location {
	enum pd_buffer buffer;
	size_t offset;
};

/*
 * A layer's contribution to the gradient of one input: sum = before + part, if there is a part
 * before.
 */
struct pd_contribution {
	struct pd_location part, before, sum;
};

struct pd_scratch_tensor {
	size_t bytes;
	bool arrives, leaves;
	size_t out_offset;              /* in gradient-out, if the tensor arrives */
	size_t in_offset;               /* in gradient-in, if the tensor leaves; SIZE_MAX: it has no
					   gradient */
	bool stays;                     /* the weight part reads its gradient too */
	size_t slot_offset;             /* of the gradient, if that stays */
	struct pd_location gradient;	/* set by pd_scratch_place; zero before */
};

struct pd_scratch_layer {
	int input_count;
	const int *inputs;              /* tensors */
	const bool *wants;              /* whether a gradient of that input is wanted */
	bool in_place;                  /* its input's gradient may overwrite its output's */
	bool passes;                    /* its inputs' gradients equal its output's */
	size_t forward_bytes;           /* temporaries of forward, at 0 */
	size_t backward_bytes;          /* of backward, at `offset` */
	size_t again_bytes;             /* of layers that are computed again before, at `again_offset` */
	/* Set by pd_scratch_place; zero before. */
	size_t offset, again_offset;
	struct pd_location diff_dst_at;	/* the gradient of its output */
	struct pd_location diff_dst_from; /* the gradient is copied from here, if anywhere */
	struct pd_contribution *contributions;  /* by input; NULL: not wanted */
};

/*
 * Lays out count layers of a stage, whose outputs are the tensors from first_output on.  Returns
 * the bytes of scratch.
 */
size_t pd_scratch_place(struct pd_scratch_layer *layers, int count,
			struct pd_scratch_tensor *tensors, int first_output);
