/* SPDX-License-Identifier: Apache-2.0 */
/* An update is one pass over the arenas, in the CPU's order of operations. */
#include "device/cuda/host_device.cuh"

#include "device/cuda/grid.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/typed.cuh"

__global__ static void global_norm(struct pd_global_norm norm, struct pd_adam adam,
				   struct pd_kernel_rates sgd, struct pd_kernel_choice *choice,
				   struct pd_outcome *outcome)
{
	struct pd_outcome out;
	struct pd_scale next;

	adam.count -= norm.before->skipped;
	choice->factor = pd_global_norm_factor(&norm, &next, &out);
	choice->skip = out.skip;
	choice->adam = pd_adam_factors(&adam);
	choice->sgd = sgd;
	*norm.next = next;
	*outcome = out;
}

cudaError_t pd_kernel_global_norm(cudaStream_t stream, const struct pd_global_norm *norm,
				  const struct pd_adam *adam, const struct pd_kernel_rates *sgd,
				  struct pd_kernel_choice *choice, struct pd_outcome *outcome)
{
	struct pd_global_norm given = *norm;

	given.outcome = NULL;           /* the caller's, where the GPU cannot write */
	global_norm<<<1, 1, 0, stream>>>(given, *adam, *sgd, choice, outcome);
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
__device__ static struct moved<T> moved_of(const void *weights, float *master, void *next)
{
	struct moved<T> m = { master ? master : (const float *)weights,
			      master ? master : (float *)next, master ? (T *)next : NULL };

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
__device__ static void finish(const struct pd_kernel_correction &c, const struct moved<T> &m,
			      float old, size_t i)
{
	if (m.next)
		m.next[i] = (T)m.to[i];
	if (c.delta)
		((T *)c.corrected)[i] = (T)pd_corrected(c.delta, old, m.to[i], i, c.keep, c.rest,
							c.delay);
}

template <typename T>
__global__ static void sgd(struct pd_kernel_sgd u, size_t begin, size_t count)
{
	const struct moved<T> m = moved_of<T>(u.weights, u.master, u.next);
	struct pd_kernel_rates r = u.choice ? u.choice->sgd : u.rates;
	double factor = u.choice ? u.choice->factor : 1;

	if (u.spared)
		r.decay = 0;
	if (u.norms)
		r.rate = (float)(r.exact_rate * pd_lars_local(u.trust, u.spared ? 0 : r.exact_decay,
							      u.norms->weights, u.norms->gradient,
							      factor));
	PD_FOR_EACH(k, count) {
		size_t i = begin + k;
		float old = m.from[i];

		if (skipped((u.choice && u.choice->skip) ||
			    (u.places && u.places[i / u.chunk] < 0), m, i))
			continue;
		if (u.velocity && u.lars)
			pd_lars_momentum(m.to, u.velocity, m.from, u.gradients, i, factor, r.rate,
					 r.keep, r.decay);
		else if (u.velocity)
			pd_sgd_momentum(m.to, u.velocity, m.from, u.gradients, i, factor, r.rate,
					r.keep, r.decay);
		else
			pd_sgd_plain(m.to, m.from, u.gradients, i, factor, r.rate, r.decay);
		finish(u.correction, m, old, i);
	}
}

cudaError_t pd_kernel_sgd(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_sgd *u,
			  size_t begin, size_t end)
{
	if (end > begin)
		PD_BY_TYPE(dtype, T, (sgd<T><<<pd_blocks(end - begin), PD_THREADS, 0, stream>>>(
			*u, begin, end - begin)));
	return cudaGetLastError();
}

template <typename T>
__global__ static void adam(struct pd_kernel_adam u, size_t begin, size_t count)
{
	const struct moved<T> m = moved_of<T>(u.weights, u.master, u.next);
	struct pd_adam_factors f = u.choice ? u.choice->adam : u.factors;
	double factor = u.choice ? u.choice->factor : 1;

	if (u.spared) {
		f.keep = 1;
		f.decay = 0;
	}
	PD_FOR_EACH(k, count) {
		size_t i = begin + k;
		float old = m.from[i];

		if (skipped(u.choice && u.choice->skip, m, i))
			continue;
		pd_adam_element(m.to, u.first, u.second, m.from, u.gradients, i, factor, &f);
		finish(u.correction, m, old, i);
	}
}

cudaError_t pd_kernel_adam(cudaStream_t stream, enum pd_dtype dtype,
			   const struct pd_kernel_adam *u, size_t begin, size_t end)
{
	if (end > begin)
		PD_BY_TYPE(dtype, T, (adam<T><<<pd_blocks(end - begin), PD_THREADS, 0, stream>>>(
			*u, begin, end - begin)));
	return cudaGetLastError();
}
