/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In 16 bits cuDNN writes the gradient of a convolution's weights in the net's type (narrow), and a
 * kernel of our own widens it into the arena of gradients; one kernel does so for several layers.
 *
 * Until then a narrow gradient waits where it takes no extra memory: in the arena of gradients
 * itself, at the place of another convolution whose backward comes later in the same pass.
 * Backward overwrites that place anyway.  Each narrow gradient lies inside one tensor, so the gaps
 * between tensors stay zero.  Before a layer's turn comes at whose place others wait, these are
 * widened.  The last layer of a group waits nowhere: its narrow gradient is in its scratch, as for
 * a layer alone.  The part of the arena that is left shrinks from group to group: ResNet-50's 53
 * convolutions are 13 groups, VGG-16's 13 are nine.
 *
 * A pass over some of a stage's layers cannot know that places of layers before them will be
 * overwritten, so there each gradient is widened alone.  The same holds for weights that layers
 * share, whose gradients are added layer by layer.
 */
#include "run/device/cuda/conv2d.h"

#include <stdlib.h>

/* Convolutions in the order of backward, with the bytes already used at each one's place. */
struct order {
	struct pd_compiled_layer **layers;
	size_t *used;
	int count;
	int first;                      /* the first of the group; those before it wait no more */
};

static struct pd_cuda_conv *conv_of(const struct pd_compiled_layer *l)
{
	return l->own;
}

static size_t place_of(const struct pd_compiled_layer *l)
{
	return l->net->parameters[l->owner][0].offset;
}

/* A conv2d or one of its relatives, which share its functions. */
static bool convolves(const struct pd_compiled_layer *l)
{
	return l->kind->forward == pd_cuda_conv2d.forward && !l->frozen;
}

static bool shares(const struct pd_compiled_layer *l)
{
	return l->may_add_gradient || l->model_owner != l->index;
}

static void list(struct order *o, struct pd_compiled *net)
{
	for (int i = net->first + net->count - 1; i >= net->first; i--) {
		struct pd_compiled_layer *l = &net->layers[i];

		/* where nothing depends on the output, backward only clears the gradient */
		if (convolves(l) && conv_of(l)->narrow_bytes > 0 &&
		    l->diff_dst_at.buffer != PD_NOWHERE && !shares(l))
			o->layers[o->count++] = l;
	}
}

/* Finds a later convolution, the last with room, at whose place number k waits; false: none. */
static bool find_place(struct order *o, int k)
{
	struct pd_cuda_conv *c = conv_of(o->layers[k]);

	for (int r = o->count - 1; r > k; r--) {
		const struct pd_compiled_layer *l = o->layers[r];

		if (o->used[r] + c->narrow_bytes > l->net->parameters[l->owner][0].bytes)
			continue;
		c->waits_at = place_of(l) + o->used[r];
		o->used[r] += c->narrow_bytes;
		return true;
	}
	return false;
}

/* Makes numbers o->first to last a group. */
static void close_group(struct order *o, int last)
{
	for (int k = o->first; k <= last; k++) {
		struct pd_cuda_conv *c = conv_of(o->layers[k]);

		c->waits = k < last;
		c->waiting = k > o->first ? o->layers[k - 1] : NULL;
	}
	for (int k = 0; k < o->count; k++)
		o->used[k] = 0;
	o->first = last + 1;
}

void pd_cuda_conv_group(struct pd_compiled *net)
{
	struct order o = {
		.layers = pd_calloc((size_t)net->count, sizeof(struct pd_compiled_layer *)),
		.used = pd_calloc((size_t)net->count, sizeof(size_t)),
	};

	list(&o, net);
	for (int k = 0; k < o.count; k++) {
		if (o.used[k] > 0)
			close_group(&o, k - 1);
		if (k - o.first == PD_KERNEL_WIDENED - 1 || !find_place(&o, k))
			close_group(&o, k);
	}
	free(o.layers);
	free(o.used);
}

static void *waiting_at(const struct pd_compiled_layer *l, const struct pd_pass *pass)
{
	return (char *)pass->gradients + conv_of(l)->waits_at;
}

void *pd_cuda_conv_narrow(const struct pd_compiled_layer *l, const struct pd_pass *pass,
			  void *room)
{
	return pd_cuda_engine(l)->whole && conv_of(l)->waits ? waiting_at(l, pass) : room;
}

static void add(struct pd_kernel_widen *w, const struct pd_compiled_layer *l, const void *narrow)
{
	w->arrays[w->n++] = (struct pd_kernel_widened){
		.dst = l->diff_parameters[0], .src = narrow,
		.count = (size_t)l->layer->parameters[0].elements,
	};
}

int pd_cuda_conv_widen(struct pd_compiled_layer *l, const struct pd_pass *pass, void *narrow,
		       struct pd_error *err)
{
	const struct pd_cuda_engine *engine = pd_cuda_engine(l);
	struct pd_kernel_widen w = { .n = 0 };

	if (engine->whole && conv_of(l)->waits)
		return 0;
	add(&w, l, narrow);
	for (const struct pd_compiled_layer *other = conv_of(l)->waiting; other && engine->whole;
	     other = conv_of(other)->waiting)
		add(&w, other, waiting_at(other, pass));
	return pd_cuda_queued(l, pd_kernel_widen(engine->stream, l->net->dtype, &w), err);
}
