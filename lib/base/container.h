/* SPDX-License-Identifier: Apache-2.0 */
/* pd_container(): the struct that contains a given member. */
#ifndef PD_BASE_CONTAINER_H
#define PD_BASE_CONTAINER_H

#include <stddef.h>

#define pd_container(pointer, type, member) \
	((type *)((char *)(pointer) - offsetof(type, member)))

#endif
