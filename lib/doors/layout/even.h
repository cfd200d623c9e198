/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of equally many blocks, as other systems cut a network by itself. */
#pragma once

#include "plan/layout_door.h"

extern const struct pd_layout_door pd_layout_door;
