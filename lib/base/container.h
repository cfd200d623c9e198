/* SPDX-License-Identifier: Apache-2.0 */
/* pd_container(): the struct that contains a given member. */
#pragma once

#include <stddef.h>

#define pd_container(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))
