/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds that take plain inputs get copies in scratch of inputs whose channels are last. */
#include "run/device/cuda/cuda.h"

struct plain {
	bool turned;
	size_t forward, backward, gradient;     /* offsets in scratch */
};

static const struct pd_layout *layout_of(const struct pd_compiled_layer *l, int i)
{
	return l->net->tensors[l->layer->inputs[i]].layout;
}

int pd_cuda_plain_prepare(struct pd_compiled_layer *l, struct pd_error *err)
{
	struct plain *plain = pd_calloc((size_t)l->layer->input_count, sizeof(*plain));

	l->plain = plain;
	for (int i = 0; i < l->layer->input_count; i++) {
		size_t bytes = pd_cuda_batch_bytes(l, l->in_shape[i]);

		plain[i].turned = pd_cuda_unlike(layout_of(l, i), NULL, l->in_shape[i]);
		if (!plain[i].turned)
			continue;
		plain[i].forward = pd_take(&l->forward_bytes, bytes);
		plain[i].backward = pd_take(&l->backward_bytes, bytes);
		if (l->wants[i])
			plain[i].gradient = pd_take(&l->backward_bytes, bytes);
	}
	return 0;
}

const void *pd_cuda_plain_input(struct pd_compiled_layer *l, int i, bool back,
				struct pd_error *err)
{
	const struct plain *plain = (const struct plain *)l->plain + i;
	char *to = (char *)l->temporary + (back ? plain->backward : plain->forward);

	if (!plain->turned)
		return l->src[i];
	return pd_cuda_turn(l, to, NULL, l->src[i], l->in_shape[i], err) < 0 ? NULL : to;
}

void *pd_cuda_plain_room(struct pd_compiled_layer *l, int i)
{
	const struct plain *plain = (const struct plain *)l->plain + i;

	return plain->turned ? (char *)l->temporary + plain->gradient : l->diff_src[i];
}

int pd_cuda_plain_gradient(struct pd_compiled_layer *l, int i, void *gradient,
			   struct pd_error *err)
{
	const struct plain *plain = (const struct plain *)l->plain + i;

	if (!plain->turned)
		return 0;
	return pd_cuda_turn(l, gradient, layout_of(l, i), (char *)l->temporary + plain->gradient,
			    l->in_shape[i], err);
}
