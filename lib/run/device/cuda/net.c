/* SPDX-License-Identifier: Apache-2.0 */
/* A net on a GPU: libraries' handles, sizes, import and export of parameters, and updates. */
#include "base/half.h"
#include "run/device/cuda/conv2d.h"
#include "run/device/cuda/graph.h"
#include "run/device/cuda/stream.h"

#include <stdlib.h>

static const struct pd_compiled_kind *const kinds[PD_LAYER_KINDS] = {
#define LAYER_KIND(name, shape, inputs, attributes, parameters, states, flags, what) \
	[PD_LAYER_##name] = &pd_cuda_##name,
#include "model/layer_kind.def"
#undef LAYER_KIND
};

/* Labels are i32 and losses f32, whatever the net's dtype. */
static void set_tensor(struct pd_compiled *net, int t, const struct pd_layout *layout)
{
	int producer = pd_model_producer(net->model, t);
	bool four = pd_model_dtype(net->model, t) == PD_I32 ||
		    (producer >= 0 && pd_layer_is(net->layers[producer].layer, PD_KIND_LOSS));

	net->tensors[t].layout = layout;
	net->tensors[t].bytes = (four ? sizeof(float) : pd_dtype_bytes(net->dtype)) *
				pd_cuda_elements(net, t);
}

static void set_input(struct pd_compiled *net, int t)
{
	set_tensor(net, t, NULL);
}

static void set_parameter(struct pd_compiled *net, struct pd_compiled_layer *l, int p)
{
	net->parameters[l->owner][p].layout = l->parameter[p];
	net->parameters[l->owner][p].bytes =
		sizeof(float) * (size_t)l->layer->parameters[p].elements;
}

static void release(struct pd_compiled_layer *l)
{
	struct pd_cuda_own *own = l->own;

	if (own->release)
		own->release(own);
	free(own);
}

static int copy(struct pd_compiled *net, void *dst, const void *src, size_t bytes,
		struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;

	return pd_cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice,
					     engine->stream), "a copy", err);
}

static int zero(struct pd_compiled *net, void *dst, size_t bytes, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;

	return pd_cuda_check(cudaMemsetAsync(dst, 0, bytes, engine->stream), "clearing memory",
			     err);
}

static int add(struct pd_compiled *net, enum pd_dtype dtype, void *dst, const void *a,
	       const void *b, size_t count, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;

	return pd_cuda_check(pd_kernel_sum(engine->stream, dtype, dst,
					   (const void *const[]){ a, b }, 2, count, false),
			     "a sum", err);
}

static const struct pd_layout *plain(struct pd_compiled *net, const struct pd_shape *shape)
{
	return NULL;
}

static const struct pd_layout *plain_parameter(struct pd_compiled *net,
					       const struct pd_layer *layer, int which)
{
	return NULL;
}

static int add_relu(struct pd_compiled *net, void *dst, const void *a, const void *b,
		    const void *y, size_t count, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;

	return pd_cuda_check(pd_kernel_sum_relu(engine->stream, net->dtype, dst, a, b, y, count),
			     "a sum", err);
}

static const struct pd_compiled_device how = {
	.kinds = kinds,
	.set_tensor = set_tensor,
	.set_input = set_input,
	.set_parameter = set_parameter,
	.release = release,
	.copy = copy,
	.zero = zero,
	.add = add,
	.plain = plain,
	.plain_parameter = plain_parameter,
	.plain_prepare = pd_cuda_plain_prepare,
	.plain_input = pd_cuda_plain_input,
	.plain_room = pd_cuda_plain_room,
	.plain_gradient = pd_cuda_plain_gradient,
	.add_relu = add_relu,
};

/* Allocates pinned memory for the results of the loss layers of every pass in flight. */
static int take_losses(struct pd_compiled *net, struct pd_error *err)
{
	struct pd_cuda_engine *engine = net->engine;
	size_t count = PD_CUDA_SUBMISSIONS * (size_t)net->sizes.loss_count;

	return count == 0 ? 0 : pd_cuda_check(cudaHostAlloc((void **)&engine->losses,
							     count * sizeof(*engine->losses),
							     cudaHostAllocMapped), "memory", err);
}

static int open_engine(struct pd_compiled *net, struct pd_error *err)
{
	const struct pd_cuda_device *cuda = (struct pd_cuda_device *)net->base.device;
	struct pd_cuda_engine *engine = pd_zalloc(sizeof(*engine));

	net->engine = engine;
	engine->device = cuda->number;
	engine->tf32 = cuda->tf32;
	engine->last = pd_cuda_wants_last(net, cuda->tf32);
	engine->graphs = pd_cuda_graphs_new();
	if (pd_cuda_check(cudaSetDevice(cuda->number), "its device", err) < 0 ||
	    pd_cuda_check(cudaMalloc((void **)&engine->numbers, sizeof(*engine->numbers)), "memory",
			  err) < 0 ||
	    take_losses(net, err) < 0 ||
	    pd_cudnn_check(cudnnCreate(&engine->dnn), "it cannot be opened", err) < 0)
		return -1;
	return pd_cublas_check(cublasLtCreate(&engine->blas), "it cannot be opened", err);
}

struct pd_net *pd_cuda_net_open(struct pd_device *device, const struct pd_net_config *config,
				struct pd_error *err)
{
	struct pd_compiled *net = pd_compiled_new(device, &how, config, err);

	if (!net)
		return NULL;
	if (open_engine(net, err) < 0 || pd_compiled_build(net, err) < 0) {
		pd_cuda_net_close(&net->base);
		return NULL;
	}
	pd_cuda_conv_group(net);
	return &net->base;
}

void pd_cuda_net_close(struct pd_net *base)
{
	struct pd_compiled *net = (struct pd_compiled *)base;
	struct pd_cuda_engine *engine;

	if (!net)
		return;
	engine = net->engine;
	/* graphs go first, since their kernels use the layers' memory */
	if (engine) {
		cudaSetDevice(engine->device);
		pd_cuda_graphs_free(engine->graphs);
	}
	pd_compiled_free(net);
	if (!engine)
		return;
	if (engine->numbers)
		cudaFree(engine->numbers);
	if (engine->losses)
		cudaFreeHost(engine->losses);
	if (engine->dnn)
		cudnnDestroy(engine->dnn);
	if (engine->blas)
		cublasLtDestroy(engine->blas);
	free(engine);
}

int pd_cuda_net_settle(struct pd_net *base, int64_t turns, struct pd_error *err)
{
	struct pd_cuda_device *cuda = (struct pd_cuda_device *)base->device;
	struct pd_cuda_engine *engine = ((struct pd_compiled *)base)->engine;
	int status;

	cudaSetDevice(cuda->number);
	pthread_mutex_lock(&cuda->side_lock);
	status = pd_cuda_graphs_settle(engine->graphs, turns, cuda->look.side, err);
	pthread_mutex_unlock(&cuda->side_lock);
	return status;
}

/* ---- import and export of parameters and state ---- */

static float to_float(const void *at, size_t i, enum pd_dtype dtype)
{
	return dtype == PD_F32 ? ((const float *)at)[i]
		: dtype == PD_BF16 ? pd_from_bf16(((const uint16_t *)at)[i])
		: pd_from_f16(((const uint16_t *)at)[i]);
}

/* Converts elements side by side; a switch for each would take longer than what it chooses. */
static void narrow_all(void *to, const float *from, size_t count, enum pd_dtype dtype)
{
	if (dtype == PD_F32)
		memcpy(to, from, count * sizeof(*from));
	else
#pragma omp parallel for schedule(static) if (count > (1 << 16))
		for (size_t i = 0; i < count; i++)
			((uint16_t *)to)[i] = dtype == PD_BF16 ? pd_to_bf16(from[i]) : pd_to_f16(from[i]);
}

static void from_float(void *at, size_t i, enum pd_dtype dtype, float value)
{
	if (dtype == PD_F32)
		((float *)at)[i] = value;
	else
		((uint16_t *)at)[i] = dtype == PD_BF16 ? pd_to_bf16(value) : pd_to_f16(value);
}

/* A tensor's place in its arena, its type, and its layout. */
struct found {
	size_t offset, bytes;
	enum pd_dtype dtype;
	int64_t channels, area;         /* area: elements of each channel's plane; 1: plain */
};

static struct found find_parameter(const struct pd_compiled *net, const struct pd_named *n,
				   enum pd_form form)
{
	struct found f = { .dtype = PD_F32, .channels = 1, .area = 1 };

	f.offset = pd_compiled_offset(net, n);
	if (n->part == PD_PART_FROZEN || (form == PD_WORKING && n->part == PD_PART_PARAMETER))
		f.dtype = net->dtype;
	if (n->part == PD_PART_PARAMETER && f.dtype != PD_F32)
		f.offset = pd_compiled_working(net, f.offset);
	f.bytes = pd_dtype_bytes(f.dtype) * (size_t)n->elements;
	if (n->part != PD_PART_STATE && n->dims == 4 &&
	    net->parameters[net->layers[n->layer].owner][n->which].layout) {
		f.channels = n->size[1];
		f.area = n->size[2] * n->size[3];
	}
	return f;
}

/* Returns the plain index of element i of the arena's order. */
static size_t plain_place(const struct found *f, size_t i)
{
	size_t channels = (size_t)f->channels, area = (size_t)f->area;
	size_t c = i % channels, rest = i / channels;

	return (rest / area * channels + c) * area + rest % area;
}

int pd_cuda_net_export(struct pd_net *base, int named, enum pd_form form, const void *arena,
		       float *host)
{
	const struct pd_compiled *net = (struct pd_compiled *)base;
	const struct pd_named *n = &net->named[named];
	const struct found f = find_parameter(net, n, form);
	void *raw = pd_calloc(1, f.bytes);
	int status = pd_cuda_copy_blocking((struct pd_cuda_device *)base->device, raw,
					   (const char *)arena + f.offset, f.bytes, NULL);

	for (size_t i = 0; i < (size_t)n->elements; i++)
		host[plain_place(&f, i)] = to_float(raw, i, f.dtype);
	free(raw);
	return status;
}

int pd_cuda_net_import(struct pd_net *base, int named, enum pd_form form, void *arena,
		       const float *host)
{
	const struct pd_compiled *net = (struct pd_compiled *)base;
	const struct pd_named *n = &net->named[named];
	const struct found f = find_parameter(net, n, form);
	void *raw = pd_calloc(1, f.bytes);
	int status;

	if (f.channels == 1 || f.area == 1)
		narrow_all(raw, host, (size_t)n->elements, f.dtype);
	else
		for (size_t i = 0; i < (size_t)n->elements; i++)
			from_float(raw, i, f.dtype, host[plain_place(&f, i)]);
	status = pd_cuda_copy_blocking((struct pd_cuda_device *)base->device,
				       (char *)arena + f.offset, raw, f.bytes, NULL);
	free(raw);
	return status;
}

/* ---- updates ---- */

struct pd_kernel_choice pd_cuda_choice_of(const struct pd_update *u)
{
	return (struct pd_kernel_choice){ .factor = 1, .rate = u->rate, .weight_decay = u->weight_decay,
					  .factors = pd_factors_of(u) };
}

/* The parameters of an update, but for the elements that it moves. */
struct update {
	cudaStream_t stream;
	enum pd_dtype dtype;
	const struct pd_update *how;
	const struct pd_kernel_choice *choice;
	struct pd_cuda_norms *room;
};

static cudaError_t sum_squares(const struct update *u, const struct pd_compiled_tensor_range *tensor)
{
	const float *weights = u->how->master ? u->how->master : u->how->weights;
	const float *gradients = u->how->gradients;
	size_t count = tensor->end - tensor->begin;
	const struct pd_kernel_squared both[] = {
		{ &u->room->norms.weights, weights + tensor->begin, count },
		{ &u->room->norms.gradient, gradients + tensor->begin, count },
	};

	return pd_kernel_squares(u->stream, u->room->pieces, both, 2);
}

static struct pd_kernel_update update_begin(const struct update *u)
{
	struct pd_kernel_update update = {
		.how = *u->how, .chosen = pd_cuda_choice_of(u->how), .choice = u->choice,
	};

	update.how.norm = (struct pd_global_norm){ .vector = NULL };    /* parts of it are the host's */
	return update;
}

/* Moves each tensor by a kernel of its own, at a rate of its own unless it has one axis. */
static cudaError_t update_tensors(const struct update *u, const struct pd_compiled *net, int from,
				  int count)
{
	struct pd_kernel_update update = update_begin(u);
	struct pd_compiled_tensor_range tensor;
	cudaError_t status = cudaSuccess;
	int l = from, number = 0;

	while (status == cudaSuccess &&
	       pd_compiled_next_tensor(net, from + count, &l, &number, &tensor)) {
		update.spared = u->how->spares_vectors && tensor.vector;
		update.norms = tensor.vector ? NULL : &u->room->norms;
		if (!tensor.vector)
			status = sum_squares(u, &tensor);
		if (status == cudaSuccess)
			status = pd_kernel_update(u->stream, u->dtype, &update, tensor.begin,
						  tensor.end);
	}
	return status;
}

/* Adds where a tensor begins if it is spared and the one before is not, or the other way round. */
static cudaError_t update_turn(const struct update *u, struct pd_kernel_update *update,
			       size_t *begin_p, const struct pd_compiled_tensor_range *tensor)
{
	bool spared = update->spared != (update->ends % 2 == 1);
	cudaError_t status;

	if (tensor->vector == spared)
		return cudaSuccess;
	if (update->ends < PD_KERNEL_ENDS) {
		update->end[update->ends++] = tensor->begin;
		return cudaSuccess;
	}
	status = pd_kernel_update(u->stream, u->dtype, update, *begin_p, tensor->begin);
	*begin_p = tensor->begin;
	update->spared = tensor->vector;
	update->ends = 0;
	return status;
}

/* Moves all elements by one kernel, or a few where it turns more often than a kernel knows. */
static cudaError_t update_all(const struct update *u, const struct pd_compiled *net, int from,
			      int count)
{
	struct pd_kernel_update update = update_begin(u);
	cudaError_t status = cudaSuccess;
	size_t begin, end;

	pd_compiled_range(net, from, count, &begin, &end);
	for (int l = from + count - 1; l >= from && u->how->spares_vectors; l--) {
		struct pd_compiled_tensor_range tensor;
		int at = l, number = 0;

		while (status == cudaSuccess &&
		       pd_compiled_next_tensor(net, l + 1, &at, &number, &tensor))
			status = update_turn(u, &update, &begin, &tensor);
	}
	return status != cudaSuccess ? status
				     : pd_kernel_update(u->stream, u->dtype, &update, begin, end);
}

int pd_cuda_update(cudaStream_t stream, const struct pd_compiled *net, const struct pd_update *u,
		   int from, int count, struct pd_kernel_choice *choice, struct pd_cuda_norms *room,
		   struct pd_outcome *outcome, struct pd_error *err)
{
	const struct update update = { stream, net->dtype, u, choice, room };
	cudaError_t status = cudaSuccess;

	if (u->norm.vector)
		status = pd_kernel_global_norm(stream, u, choice, outcome);
	if (status == cudaSuccess)
		status = pd_optimizer_is(u->kind, PD_OPTIMIZER_NORMS)
			? update_tensors(&update, net, from, count)
			: update_all(&update, net, from, count);
	return pd_cuda_check(status, "an update", err);
}

int pd_cuda_squares(cudaStream_t stream, const struct pd_compiled *net,
		    const struct pd_squares *what, double *room, struct pd_error *err)
{
	size_t layers = (size_t)net->model->layer_count;
	struct pd_kernel_squared arrays[PD_KERNEL_SQUARED];
	cudaError_t status = cudaSuccess;
	int n = 0;

	if (what->clear)
		status = pd_kernel_fill(stream, what->vector, PD_ABSENT, layers + 1);
	for (int l = net->first; l < net->first + net->count && status == cudaSuccess; l++) {
		if (net->step_bytes[l] > 0)
			arrays[n++] = (struct pd_kernel_squared){
				&what->vector[net->layers[l].model_owner],
				(const float *)((const char *)what->gradients + net->step_offset[l]),
				net->step_bytes[l] / sizeof(float),
			};
		if (n == PD_KERNEL_SQUARED || (n > 0 && l + 1 == net->first + net->count)) {
			status = pd_kernel_squares(stream, room, arrays, n);
			n = 0;
		}
	}
	if (what->scale && status == cudaSuccess)
		status = cudaMemcpyAsync(&what->vector[layers], &what->scale->loss_scale,
					 sizeof(double), cudaMemcpyDeviceToDevice, stream);
	return pd_cuda_check(status, "sums of squares", err);
}
