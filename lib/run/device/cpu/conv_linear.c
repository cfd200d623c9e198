/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conv2d, conv_transpose2d and linear share this: three ops, and weights that stay in the layout which
 * forward prefers.  Where backward wants other layouts, it converts in its scratch; if both halves want
 * the same layout of the output's gradient, that is converted once.
 */
#include "base/mem.h"
#include "run/device/cpu/cpu.h"

struct conv_linear {
	struct pd_conv_linear_ops ops;
	size_t forward_scratch, data_scratch, weights_scratch;
	struct pd_reorder src, weights, bias, dst;	/* forward */
	struct pd_reorder data_weights, data_dst, data_src; /* gradient of the input */
	struct pd_reorder weights_src, weights_dst, weights_weights;
	bool shared;                                    /* data_dst equals weights_dst */
};

/* What the layer's input and output, and their gradients, are to the ops. */
static const struct ends {
	enum pd_arg src, dst;                   /* of forward */
	enum pd_arg data_dst, data_src;         /* of the gradient of the input */
	enum pd_arg weights_src, weights_dst;   /* of that of the weights */
} ends[] = {
	{ PD_ARG_SRC, PD_ARG_DST, PD_ARG_DIFF_DST, PD_ARG_DIFF_SRC, PD_ARG_SRC, PD_ARG_DIFF_DST },
	/* turned */
	{ PD_ARG_DIFF_DST, PD_ARG_DIFF_SRC, PD_ARG_SRC, PD_ARG_DST, PD_ARG_DIFF_DST, PD_ARG_SRC },
};

static const struct ends *ends_of(const struct conv_linear *w)
{
	return &ends[w->ops.turned];
}

/* Reserves scratch, from *bytes_p on, for inputs that both halves of backward read. */
static int prepare_shared(struct pd_compiled_layer *l, struct conv_linear *w, size_t *bytes_p,
			  struct pd_error *err)
{
	const struct ends *e = ends_of(w);
	const struct pd_layout *to = pd_primitive_layout(w->ops.weights, e->weights_dst);

	*bytes_p = 0;
	w->shared = w->ops.data &&
		    pd_layout_same(to, pd_primitive_layout(w->ops.data, e->data_dst));
	if (!w->shared)
		return 0;
	if (pd_reorder_prepare(l, &w->weights_dst, l->out, to, false, bytes_p, err) < 0)
		return -1;
	w->data_dst = w->weights_dst;
	return 0;
}

static int prepare_data(struct pd_compiled_layer *l, struct conv_linear *w, size_t bytes,
			struct pd_error *err)
{
	const struct pd_primitive *op = w->ops.data;
	const struct ends *e = ends_of(w);

	if (pd_primitive_prepare(l, w->ops.data, &w->data_scratch, &bytes, err) < 0 ||
	    pd_reorder_prepare(l, &w->data_weights, l->parameter[0],
			       pd_primitive_layout(op, PD_ARG_WEIGHTS), false, &bytes, err) < 0 ||
	    (!w->shared && pd_reorder_prepare(l, &w->data_dst, l->out,
					      pd_primitive_layout(op, e->data_dst), false,
					      &bytes, err) < 0) ||
	    pd_reorder_prepare(l, &w->data_src, pd_primitive_layout(op, e->data_src), l->in[0],
			       true, &bytes, err) < 0)
		return -1;
	l->backward_bytes = bytes;
	return 0;
}

static int prepare_weights(struct pd_compiled_layer *l, struct conv_linear *w, size_t bytes,
			   struct pd_error *err)
{
	const struct pd_primitive *op = w->ops.weights;
	const struct ends *e = ends_of(w);

	if (pd_primitive_prepare(l, w->ops.weights, &w->weights_scratch, &bytes, err) < 0 ||
	    pd_reorder_prepare(l, &w->weights_src, l->in[0], pd_primitive_layout(op, e->weights_src),
			       false, &bytes, err) < 0 ||
	    (!w->shared && pd_reorder_prepare(l, &w->weights_dst, l->out,
					      pd_primitive_layout(op, e->weights_dst), false,
					      &bytes, err) < 0) ||
	    pd_reorder_prepare(l, &w->weights_weights, pd_primitive_layout(op, PD_ARG_DIFF_WEIGHTS),
			       pd_layout_full(l->net->engine, l->parameter[0]), true, &bytes,
			       err) < 0)
		return -1;
	/* the halves of backward use this scratch in turn */
	if (bytes > l->backward_bytes)
		l->backward_bytes = bytes;
	return 0;
}

int pd_conv_linear_prepare(struct pd_compiled_layer *l, const struct pd_conv_linear_ops *ops,
			   struct pd_error *err)
{
	struct conv_linear *w = pd_zalloc(sizeof(*w));
	const struct ends *e = &ends[ops->turned];
	size_t shared;

	l->own = w;
	l->split_bytes = pd_layout_bytes(l->out);
	w->ops = *ops;
	if (pd_primitive_prepare(l, ops->forward, &w->forward_scratch, &l->forward_bytes,
				 err) < 0 ||
	    pd_reorder_prepare(l, &w->src, l->in[0], pd_primitive_layout(ops->forward, e->src),
			       false, &l->forward_bytes, err) < 0 ||
	    pd_reorder_prepare(l, &w->weights, l->parameter[0],
			       pd_primitive_layout(ops->forward, PD_ARG_WEIGHTS), false,
			       &l->forward_bytes, err) < 0 ||
	    pd_reorder_prepare(l, &w->dst, pd_primitive_layout(ops->forward, e->dst), l->out,
			       true, &l->forward_bytes, err) < 0)
		return -1;
	if (l->parameter[1] && !ops->turned &&
	    pd_reorder_prepare(l, &w->bias, l->parameter[1], pd_primitive_layout(ops->forward,
										 PD_ARG_BIAS),
			       false, &l->forward_bytes, err) < 0)
		return -1;
	if (prepare_shared(l, w, &shared, err) < 0 ||
	    (ops->data && prepare_data(l, w, shared, err) < 0))
		return -1;
	if (ops->transposed)
		l->backward_bytes = pd_linear_transposed_scratch(l);
	return prepare_weights(l, w, shared, err);
}

int pd_conv_linear_forward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			   struct pd_error *err)
{
	struct conv_linear *w = l->own;
	const struct ends *e = ends_of(w);
	const void *args[PD_ARGS] = {
		[PD_ARG_WEIGHTS] = pd_reorder_in(l, &w->weights, l->parameters[0], err),
		[PD_ARG_BIAS] = pd_reorder_in(l, &w->bias, l->parameters[1], err),
		[PD_ARG_SCRATCH] = (char *)l->temporary + w->forward_scratch,
	};

	args[e->src] = pd_reorder_in(l, &w->src, l->src[0], err);
	args[e->dst] = pd_reorder_buffer(l, &w->dst, l->dst);
	if (!args[e->src] || !args[PD_ARG_WEIGHTS] ||
	    pd_primitive_run(w->ops.forward, args, err) < 0)
		return -1;
	if (w->ops.behind)
		w->ops.behind(l, pd_primitive_layout(w->ops.forward, e->dst), (void *)args[e->dst]);
	return pd_reorder_out(l, &w->dst, l->dst, err);
}

static int backward_weights(struct pd_compiled_layer *l, struct conv_linear *w,
			    const void *diff_dst, struct pd_error *err)
{
	const struct ends *e = ends_of(w);
	const void *args[PD_ARGS] = {
		[PD_ARG_DIFF_WEIGHTS] = pd_reorder_buffer(l, &w->weights_weights,
							  l->diff_parameters[0]),
		[PD_ARG_DIFF_BIAS] = l->diff_parameters[1],
		[PD_ARG_SCRATCH] = (char *)l->temporary + w->weights_scratch,
	};

	args[e->weights_src] = pd_reorder_in(l, &w->weights_src, l->src[0], err);
	args[e->weights_dst] = diff_dst;
	if (!args[e->weights_src] || pd_primitive_run(w->ops.weights, args, err) < 0)
		return -1;
	return pd_reorder_out(l, &w->weights_weights, l->diff_parameters[0], err);
}

static int backward_data(struct pd_compiled_layer *l, struct conv_linear *w, const void *diff_dst,
			 struct pd_error *err)
{
	const struct ends *e = ends_of(w);
	const void *args[PD_ARGS] = {
		[PD_ARG_WEIGHTS] = pd_reorder_in(l, &w->data_weights, l->parameters[0], err),
		[PD_ARG_SCRATCH] = (char *)l->temporary + w->data_scratch,
	};

	args[e->data_dst] = diff_dst;
	args[e->data_src] = pd_reorder_buffer(l, &w->data_src, l->diff_src[0]);
	if (!args[PD_ARG_WEIGHTS] || pd_primitive_run(w->ops.data, args, err) < 0)
		return -1;
	return pd_reorder_out(l, &w->data_src, l->diff_src[0], err);
}

int pd_conv_linear_backward(struct pd_compiled_layer *l, const struct pd_pass *pass,
			    struct pd_error *err)
{
	bool weights = pass->part != PD_BACKWARD_INPUT;
	bool data = pass->part != PD_BACKWARD_WEIGHT && l->diff_src[0];
	struct conv_linear *w = l->own;
	const void *diff_dst = NULL;

	if (weights) {
		diff_dst = pd_reorder_in(l, &w->weights_dst, l->diff_dst, err);
		if (!diff_dst || backward_weights(l, w, diff_dst, err) < 0)
			return -1;
	}
	if (data && w->ops.transposed)
		pd_linear_transposed_backward(l);
	if (!data || w->ops.transposed)
		return 0;
	if (!weights || !w->shared)
		diff_dst = pd_reorder_in(l, &w->data_dst, l->diff_dst, err);
	return diff_dst ? backward_data(l, w, diff_dst, err) : -1;
}
