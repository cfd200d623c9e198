/* SPDX-License-Identifier: Apache-2.0 */
/* A .cu file includes this first: it makes PD_INLINE functions available on the GPU. */
#ifndef PD_DEVICE_CUDA_HOST_DEVICE_CUH
#define PD_DEVICE_CUDA_HOST_DEVICE_CUH

#define PD_BASE_INLINE_H
#define PD_INLINE static __host__ __device__ inline

#endif
