/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real cuDNN with the description of a GPU in place of a handle, for machines without one:
 * graphs are checked, heuristics answer, engines and plans are made; nothing can be run.  A program
 * that links this says
 *
 *     -Wl,--wrap=cudnnBackendCreateDescriptor,--wrap=cudnnBackendSetAttribute
 *
 * to the linker, so that the calls of lib/device/cuda come here first: what they set as a handle
 * is left out, and what depends on a GPU gets the description instead.
 */
#pragma once

#include <stddef.h>

/* The GPU from now on: a JSON object with the names that cuDNN uses.  1; 0: the library knows no
 * such descriptions (before 9.8); -1: it does not take this one. */
int double_described_open(const char *json, size_t bytes);
void double_described_close(void);
/* Plans that somebody has begun to make. */
int double_described_plans(void);
