/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport of the host's memory that uses, for each peer, the first provider that reaches it, as
 * both ranks find out from the same facts.  It is a provider itself, but in no list.
 */
#pragma once

#include "run/transport/provider.h"

extern const struct pd_transport_provider pd_provider_joint;
