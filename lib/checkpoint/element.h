/* SPDX-License-Identifier: Apache-2.0 */
/* Types of elements in a safetensors file; private to lib/checkpoint. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pd_element {
	const char *name;               /* as the format has it */
	int bits;
	/*
	 * Of types that are floats here, else NULL: converts so many elements from a file, in place where
	 * they end where the floats end; and converts floats for a file.  The latter returns false if one
	 * of them is finite, and too large.
	 */
	void (*read)(const char *from, int64_t count, float *to);
	bool (*write)(const float *from, int64_t count, char *to);
};

/* Returns the type called name, or NULL. */
const struct pd_element *pd_element_find(const char *name);
