/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PD_INLINE marks header functions that a back end may compile for more than the processor.  Such a
 * back end defines both names of this file before it includes anything
 * (lib/device/cuda/host_device.cuh).
 */
#ifndef PD_BASE_INLINE_H
#define PD_BASE_INLINE_H

#define PD_INLINE static inline

#endif
