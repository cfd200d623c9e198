/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/colours.h"

#define DARKEST 0.6             /* share of black in the last chunk of a rank */
#define FEW 3                   /* steps between chunks that take all of the range */

/* These colours also differ in lightness, as far as their contrast allows. */
static const struct { const char *name; struct pd_colour colour; } style[PD_OP_KINDS] = {
	[PD_OP_forward] = { "forward", { 0x2f, 0x5f, 0x9b } },
	[PD_OP_recompute] = { "recompute", { 0x1f, 0x7d, 0x78 } },
	[PD_OP_backward] = { "backward", { 0xd6, 0x66, 0x10 } },
	[PD_OP_backward_input] = { "backward, inputs", { 0xd6, 0x66, 0x10 } },
	[PD_OP_backward_weight] = { "backward, weights", { 0x6b, 0x3a, 0x0c } },
	[PD_OP_step] = { "update", { 0x2f, 0x7a, 0x2f } },
	[PD_OP_load] = { "load", { 0x80, 0x80, 0x80 } },
	[PD_OP_recv_activation] = { NULL, { 0x4b, 0x89, 0xc8 } },
	[PD_OP_send_activation] = { "activations, in and out", { 0x4b, 0x89, 0xc8 } },
	[PD_OP_recv_gradient] = { NULL, { 0xc4, 0x76, 0x24 } },
	[PD_OP_send_gradient] = { "gradients, in and out", { 0xc4, 0x76, 0x24 } },
	[PD_OP_allreduce] = { "all-reduce", { 0x8e, 0x4f, 0x80 } },
	[PD_OP_norms] = { "norms", { 0xb4, 0x74, 0xa4 } },
	[PD_OP_agree] = { "agree", { 0x8a, 0x5a, 0x44 } },
};

/* Returns the lightest tint that still stands out from idle moments. */
static struct pd_colour lightest(struct pd_colour colour)
{
	struct pd_colour tint = colour;

	for (int percent = 1; percent < 100; percent++) {
		struct pd_colour next = pd_mix(colour, PD_WHITE, percent / 100.0);

		if (pd_contrast(next, PD_IDLE_COLOUR) < 3)
			break;
		tint = next;
	}
	return tint;
}

struct pd_colour pd_op_colour(enum pd_op_kind kind, int chunk, int chunks)
{
	struct pd_colour colour = style[kind].colour;

	if (chunks < 2)
		return colour;
	return pd_mix(lightest(colour), pd_mix(colour, PD_BLACK, DARKEST),
		      (double)chunk / (chunks > FEW ? chunks - 1 : FEW));
}

struct pd_colour pd_evaluation_colour(void)
{
	return (struct pd_colour){ 0x6a, 0x6f, 0x9e };
}

const char *pd_op_colour_name(enum pd_op_kind kind)
{
	return style[kind].name;
}
