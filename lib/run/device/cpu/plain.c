/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that take plain inputs get copies in scratch where the inputs have another layout. */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

struct plain {
	struct pd_reorder forward, backward, gradient;
};

int64_t pd_cpu_rows(const struct pd_compiled *net, const struct pd_shape *shape)
{
	return net->batch * pd_shape_rows(shape);
}

const struct pd_layout *pd_cpu_matrix(struct pd_compiled *net, const struct pd_shape *shape)
{
	return pd_layout_plain(net->engine, 2, (int64_t[]){ pd_cpu_rows(net, shape),
							    pd_shape_width(shape) });
}

int pd_cpu_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct plain *plain = pd_calloc((size_t)l->layer->input_count, sizeof(*plain));

	l->plain = plain;
	for (int i = 0; i < l->layer->input_count; i++) {
		const struct pd_layout *from = l->net->tensors[l->layer->inputs[i]].layout, *to;

		if (!from)
			continue;       /* an i32 input */
		to = pd_cpu_plain(l->net, l->in_shape[i]);
		if (pd_reorder_prepare(l, &plain[i].forward, from, to, false, &l->forward_bytes,
				       err) < 0 ||
		    pd_reorder_prepare(l, &plain[i].backward, from, to, false, &l->backward_bytes,
				       err) < 0 ||
		    (l->wants[i] && pd_reorder_prepare(l, &plain[i].gradient, to, from, true,
						       &l->backward_bytes, err) < 0))
			return -1;
	}
	return 0;
}

const void *pd_cpu_plain_input(struct pd_compiled_layer *l, int i, bool back,
			       struct pd_error *err)
{
	const struct plain *plain = l->plain;

	return pd_reorder_in(l, back ? &plain[i].backward : &plain[i].forward, l->src[i], err);
}

void *pd_cpu_plain_room(struct pd_compiled_layer *l, int i)
{
	const struct plain *plain = l->plain;

	return pd_reorder_buffer(l, &plain[i].gradient, l->diff_src[i]);
}

int pd_cpu_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient, struct pd_error *err)
{
	const struct plain *plain = l->plain;

	return pd_reorder_out(l, &plain[i].gradient, gradient, err);
}
