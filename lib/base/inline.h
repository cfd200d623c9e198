/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PD_INLINE marks header functions that a back end may compile for more than the processor.  Such a
 * back end defines it anew before it includes anything else (lib/run/device/cuda/host_device.cuh).
 */
#pragma once

#define PD_INLINE static inline
