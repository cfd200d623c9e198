/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PD_INLINE: functions in headers that a back end may want to compile for more than the
 * processor.  One that does defines both names of this file before it includes anything
 * (lib/device/cuda/both.cuh).
 */
#ifndef PD_BASE_INLINE_H
#define PD_BASE_INLINE_H

#define PD_INLINE static inline

#endif
