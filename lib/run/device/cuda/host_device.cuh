/* SPDX-License-Identifier: Apache-2.0 */
/* A .cu file includes this first: it makes PD_INLINE functions available on the GPU. */
#pragma once

#include "base/inline.h"

#undef PD_INLINE
#define PD_INLINE static __host__ __device__ inline
