/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In 16 bits cuDNN makes the gradient of a convolution's weights in the net's type (narrow), and a
 * kernel of ours widens it into the arena of gradients.  One kernel does so for several layers.
 *
 * Meanwhile a narrow gradient waits where it takes no memory: in the arena of gradients itself,
 * where the gradient of another convolution will be whose turn comes later in the same pass.  As
 * backward overwrites that anyway, nothing is lost; the gaps between tensors stay zero, since each
 * waits inside of one tensor.  Before a layer joins in whose place others wait, these are widened.
 * The last of a group waits nowhere: its narrow gradient is in its scratch, like that of a layer
 * alone.  What is left of the arena shrinks from group to group: ResNet-50's 53 convolutions are
 * 13 groups, VGG-16's 13 are nine.
 *
 * A pass over some of a stage's layers does not know that those before them will be overwritten:
 * there each gradient is widened alone.  So is one of weights that layers share, which are added
 * up layer by layer.
 */
#include "device/cuda/conv2d.h"

#include <stdlib.h>

/* Convolutions in the order of backward, and the bytes at each one's place that others wait in. */
struct order {
	struct pd_compiled_layer **layers;
	size_t *used;
	int count;
	int first;                      /* of the group; none before it is waited for any more */
};

static struct pd_cuda_conv *conv_of(const struct pd_compiled_layer *l)
{
	return l->own;
}

static size_t place_of(const struct pd_compiled_layer *l)
{
	return l->net->parameters[l->owner][0].offset;
}

static bool shares(const struct pd_compiled_layer *l)
{
	return l->adds_room || l->group != l->index;
}

static void list(struct order *o, struct pd_compiled *net)
{
	for (int i = net->first + net->count - 1; i >= net->first; i--) {
		struct pd_compiled_layer *l = &net->layers[i];

		/* where nothing depends on the output backward is not run: the gradient is cleared */
		if (l->kind == &pd_cuda_conv2d && conv_of(l)->narrow_bytes > 0 &&
		    l->diff_dst_at.buffer != PD_NOWHERE && !shares(l))
			o->layers[o->count++] = l;
	}
}

/* A place for number k's at one that comes later, the last that has room: false, there is none. */
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

/* Numbers o->first to last are a group. */
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
