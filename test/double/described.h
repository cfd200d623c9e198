/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real cuDNN with the description of a GPU in place of a handle, for machines without a GPU:
 * graphs are checked, heuristics answer, engines and plans are made; nothing can be run.  A program
 * that links this passes
 *
 *     -Wl,--wrap=cudnnBackendCreateDescriptor,--wrap=cudnnBackendSetAttribute
 *
 * to the linker, so that the calls of lib/run/device/cuda come here first: a handle that they set is left
 * out, and descriptors that depend on a GPU get the description instead.
 */
#pragma once

#include <stddef.h>

/* Sets the GPU: a JSON object with the names that cuDNN uses.  Returns 1, 0 if the library knows no such
 * descriptions (before 9.8), or -1 if it does not accept this one. */
int double_described_open(const char *json, size_t bytes);
void double_described_close(void);
/* Returns how many plans a caller has begun to make. */
int double_described_plans(void);
