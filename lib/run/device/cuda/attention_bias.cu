/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bias of attention by how far keys are from queries: its numbers are laid out by diagonals of the scores, as
 * tiles read them.  The blocks of queries_back have made a part of its gradient each.
 */
#include "run/device/cuda/attention.cuh"

#include "run/device/cuda/grid.cuh"

int64_t pd_kernel_attention_diagonals(const struct pd_kernel_attention *a)
{
	return a->queries + a->keys - 1 + 2 * TILE;
}

size_t pd_kernel_attention_bias_floats(const struct pd_kernel_attention *a)
{
	return (size_t)(a->heads * a->diagonals);
}

size_t pd_kernel_attention_parts_floats(const struct pd_kernel_attention *a)
{
	return (size_t)(a->batch * a->heads * tiles_of(a->queries) * a->buckets);
}

template <typename T>
__global__ static void lay_out(struct pd_kernel_attention a, struct pd_relative relative, const T *weight)
{
	PD_FOR_EACH(n, (size_t)(a.heads * a.diagonals)) {
		int64_t head = n / a.diagonals, place = (int64_t)(n % a.diagonals) - TILE - (a.queries - 1);
		float bias = 0;

		for (int32_t b = 0; b < relative.buckets; b++) {
			struct pd_relative_range range = pd_relative_range(&relative, b);

			if (place >= range.begin && place < range.end)
				bias = (float)weight[b * a.heads + head] * LOG2_E;
			if (n == 0)
				a.ranges[b] = range;
		}
		a.bias[n] = bias;
	}
}

cudaError_t pd_kernel_attention_bias(cudaStream_t stream, enum pd_dtype dtype, const struct pd_kernel_attention *a,
				     const struct pd_relative *relative, const void *weight)
{
	unsigned blocks = pd_grid_blocks(pd_kernel_attention_bias_floats(a));

	PD_BY_TYPE(dtype, T, (lay_out<T><<<blocks, PD_THREADS, 0, stream>>>(*a, *relative, (const T *)weight)));
	return cudaGetLastError();
}

__global__ static void add_parts(struct pd_kernel_attention a, float *d_weight)
{
	int64_t tiles = (a.queries + TILE - 1) / TILE;

	PD_FOR_EACH(n, (size_t)(a.heads * a.buckets)) {
		int64_t head = n % a.heads, bucket = n / a.heads;
		float sum = 0;

		for (int64_t part = 0; part < a.batch * tiles; part++)
			sum += a.d_bias[((part / tiles * a.heads + head) * tiles + part % tiles) * a.buckets + bucket];
		d_weight[n] = sum;
	}
}

cudaError_t pd_kernel_attention_bias_back(cudaStream_t stream, const struct pd_kernel_attention *a, float *d_weight)
{
	add_parts<<<pd_grid_blocks((size_t)(a->heads * a->buckets)), PD_THREADS, 0, stream>>>(*a, d_weight);
	return cudaGetLastError();
}
