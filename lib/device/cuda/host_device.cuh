/* SPDX-License-Identifier: Apache-2.0 */
/* The first thing that a .cu file includes: PD_INLINE functions are for the GPU too. */
#ifndef PD_DEVICE_CUDA_HOST_DEVICE_CUH
#define PD_DEVICE_CUDA_HOST_DEVICE_CUH

#define PD_BASE_INLINE_H
#define PD_INLINE static __host__ __device__ inline

#endif
