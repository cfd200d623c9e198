/* SPDX-License-Identifier: Apache-2.0 */
/* An update is one pass over the arenas, in the CPU's order of operations. */
#include "run/device/cuda/host_device.cuh"

#include "run/device/cuda/grid.cuh"
#include "run/device/cuda/kernels.h"
#include "run/device/cuda/typed.cuh"

__global__ static void global_norm(struct pd_update update, struct pd_kernel_choice *choice,
				   struct pd_outcome *outcome)
{
	struct pd_outcome out;
	struct pd_scale next;

	update.count -= update.norm.before->skipped;
	choice->factor = pd_global_norm_factor(&update.norm, &next, &out);
	choice->skip = out.skip;
	choice->rate = update.rate;
	choice->weight_decay = update.weight_decay;
	choice->factors = pd_factors_of(&update);
	*update.norm.next = next;
	*outcome = out;
}

cudaError_t pd_kernel_global_norm(cudaStream_t stream, const struct pd_update *update,
				  struct pd_kernel_choice *choice, struct pd_outcome *outcome)
{
	struct pd_update given = *update;

	given.norm.outcome = NULL;      /* the caller's, where the GPU cannot write */
	global_norm<<<1, 1, 0, stream>>>(given, choice, outcome);
	return cudaGetLastError();
}

/*
 * An update moves f32 weights into the next version, or the master in place, from which the next
 * version of type T is rounded.
 */
template <typename T>
struct moved {
	const float *from;
	float *to;
	T *next;                        /* NULL where `to` is the next version */
};

template <typename T>
__device__ static struct moved<T> moved_of(const struct pd_update &u)
{
	float *master = (float *)u.master;
	struct moved<T> m = { master ? master : (const float *)u.weights,
			      master ? master : (float *)u.next, master ? (T *)u.next : NULL };

	return m;
}

/* The next version of an element that is skipped equals this one. */
template <typename T>
__device__ static bool skipped(bool skip, const struct moved<T> &m, size_t i)
{
	if (!skip)
		return false;
	if (m.to != m.from)
		m.to[i] = m.from[i];
	if (m.next)
		m.next[i] = (T)m.from[i];
	return true;
}

template <typename T>
__device__ static void finish(const struct pd_update &u, const struct moved<T> &m, float old, size_t i)
{
	if (m.next)
		m.next[i] = (T)m.to[i];
	if (u.delta)
		((T *)u.corrected)[i] = (T)pd_corrected((float *)u.delta, old, m.to[i], i, (float)u.keep,
							(float)(1 - u.keep), (float)u.delay);
}

__device__ static struct pd_factors factors_of(const struct pd_kernel_update &u,
					       const struct pd_kernel_choice &choice)
{
	struct pd_factors f = choice.factors;

	if (u.norms)
		f.rate = (float)(choice.rate * pd_lars_local(u.how.hyper.trust,
							     u.spared ? 0 : choice.weight_decay,
							     u.norms->weights, u.norms->gradient,
							     choice.factor));
	return f;
}

/* Takes weight decay from the factors, or gives it back.  *k_p: the ends before, or 0 at first. */
__device__ static void spare(const struct pd_kernel_update &u,
			     const struct pd_kernel_choice &choice, size_t i, int *k_p,
			     struct pd_factors *f)
{
	bool spared;

	while (*k_p < u.ends && i >= u.end[*k_p])
		(*k_p)++;
	spared = u.spared != (*k_p % 2 == 1);
	f->shrink = spared ? 1 : choice.factors.shrink;
	f->decay = spared ? 0 : choice.factors.decay;
}

/* A kernel for each element function; its moments are those of element i. */
#define KERNEL(name, ...) \
template <typename T> \
__global__ static void name(struct pd_kernel_update u, size_t begin, size_t count) \
{ \
	const struct moved<T> m = moved_of<T>(u.how); \
	const struct pd_kernel_choice choice = u.choice ? *u.choice : u.chosen; \
	const float *gradients = (const float *)u.how.gradients; \
	struct pd_factors f = factors_of(u, choice); \
	int ends = 0; \
\
	PD_FOR_EACH(k, count) { \
		size_t i = begin + k; \
		float old = m.from[i]; \
\
		if (skipped(choice.skip || (u.how.places && u.how.places[i / u.how.chunk] < 0), m, i)) \
			continue; \
		spare(u, choice, i, &ends, &f); \
		m.to[i] = pd_move_##name(old, pd_scaled(gradients[i], choice.factor), __VA_ARGS__); \
		finish(u.how, m, old, i); \
	} \
}
#define KERNEL_0(name) KERNEL(name, &f)
#define KERNEL_1(name) KERNEL(name, (float *)u.how.velocity + i, &f)
#define KERNEL_2(name) KERNEL(name, (float *)u.how.velocity + i, (float *)u.how.second + i, &f)

KERNEL_0(plain)
#define OPTIMIZER(symbol, name, moments, ...) KERNEL_##moments(name)
#include "engine/device/optimizer.def"
#undef OPTIMIZER

typedef void (*kernel)(struct pd_kernel_update, size_t, size_t);

template <typename T>
static void move(cudaStream_t stream, const struct pd_kernel_update *u, size_t begin, size_t count)
{
	static const kernel table[] = {
#define OPTIMIZER(symbol, name, ...) name<T>,
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	};
	kernel moves = u->how.velocity ? table[u->how.kind] : plain<T>;

	moves<<<pd_grid_blocks(count), PD_THREADS, 0, stream>>>(*u, begin, count);
}

cudaError_t pd_kernel_update(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_update *u,
			     size_t begin, size_t end)
{
	if (end > begin)
		PD_BY_TYPE(dtype, T, (move<T>(stream, u, begin, end - begin)));
	return cudaGetLastError();
}
