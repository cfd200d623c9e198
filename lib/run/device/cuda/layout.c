/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file decides which tensors have their channels last, and which have gaps between rows.
 *
 * Rows of logits in 16 bits that a linear layer makes and the loss alone reads begin at multiples
 * of 16 bytes on a GPU, whatever the number of classes (run/device/cuda/layout.c, pd_cuda_row): tensor
 * cores are fed so.  The gaps count in the plan's memory and in what crosses a stage.
 */
#include "run/device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

const struct pd_layout pd_cuda_last = { true };

/*
 * Tensor cores need channels last; with channels first the library would convert everything, to and
 * fro.  Grouped convolutions do not always have kernels for that, so these stay plain (conv2d.h).
 * PD_CUDA_LAYOUT=last or plain decides otherwise, for comparisons.
 */
bool pd_cuda_wants_last(const struct pd_compiled *net, bool tf32)
{
	const char *wish = getenv("PD_CUDA_LAYOUT");

	if (wish && strcmp(wish, "last") == 0)
		return true;
	if (wish && strcmp(wish, "plain") == 0)
		return false;
	return net->dtype != PD_F32 || tf32;
}

#define ROW_ELEMENTS 8          /* of 16 bits: the 16 bytes at whose multiples tensor cores want rows */

int64_t pd_cuda_row(const struct pd_compiled *net, int tensor)
{
	int64_t width = pd_shape_width(pd_model_shape(net->model, tensor));
	int producer = pd_model_producer(net->model, tensor), consumer;

	if (net->dtype == PD_F32 || producer < 0 ||
	    net->layers[producer].kind != &pd_cuda_linear ||
	    pd_model_consumers(net->model, tensor, NULL) != 1)
		return width;
	pd_model_consumers(net->model, tensor, &consumer);
	return net->layers[consumer].kind == &pd_cuda_softmax_cross_entropy
		? (width + ROW_ELEMENTS - 1) / ROW_ELEMENTS * ROW_ELEMENTS : width;
}

size_t pd_cuda_elements(const struct pd_compiled *net, int tensor)
{
	const struct pd_shape *shape = pd_model_shape(net->model, tensor);
	int64_t width = pd_shape_width(shape), row = pd_cuda_row(net, tensor);
	int64_t elements = net->batch * pd_shape_elements(shape);

	return (size_t)(row == width ? elements : elements / width * row);
}

int64_t pd_cuda_matrix_rows(const struct pd_compiled_layer *l, const struct pd_shape *shape)
{
	return l->net->batch * pd_shape_rows(shape);
}

bool pd_cuda_flat(const struct pd_shape *shape)
{
	return shape->dims != 3 || shape->size[0] == 1 || shape->size[1] * shape->size[2] == 1;
}

bool pd_cuda_unlike(const struct pd_layout *a, const struct pd_layout *b,
		    const struct pd_shape *shape)
{
	return (a != NULL) != (b != NULL) && !pd_cuda_flat(shape);
}

int pd_cuda_turn(struct pd_compiled_layer *l, void *dst, const struct pd_layout *to,
		 const void *src, const struct pd_shape *shape, struct pd_error *err)
{
	return pd_cuda_queued(l, pd_kernel_turn(pd_cuda_engine(l)->stream, l->net->dtype, dst, src,
						l->net->batch, shape->size[0],
						shape->size[1] * shape->size[2], to != NULL), err);
}

void pd_cuda_rows(const struct pd_compiled_layer *l, const struct pd_layout *layout,
		  const struct pd_shape *shape, int64_t *samples_p, int64_t *area_p)
{
	int64_t area = pd_shape_elements(shape) / shape->size[0];

	*samples_p = layout ? l->net->batch * area : l->net->batch;
	*area_p = layout ? 1 : area;
}

struct pd_kernel_channels pd_cuda_channels(const struct pd_compiled_layer *l)
{
	const struct pd_axis a = pd_compiled_around(l, 0);

	return (struct pd_kernel_channels){ .samples = a.outer, .channels = a.extent, .area = a.inner,
					    .last = l->in[0] && !pd_cuda_flat(l->in_shape[0]) };
}

bool pd_cuda_does_relu(const struct pd_compiled *net, int layer)
{
	const struct pd_cuda_engine *engine = net->engine;
	const struct pd_model *model = net->model;
	int tensor = model->input_count + layer, consumer;

	if (!net->layers[layer].kind->fuses_relu)
		return false;
	if (net->layers[layer].kind == &pd_cuda_batchnorm2d && !engine->last &&
	    net->dtype == PD_F32)
		return false;           /* cuDNN's kernels do no relu */
	if (pd_model_consumers(model, tensor, NULL) != 1)
		return false;
	pd_model_consumers(model, tensor, &consumer);
	return net->layers[consumer].kind->is_relu;
}
