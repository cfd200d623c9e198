/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered exchange among members of one host whose buffers all of them can map: nothing is copied.
 *
 * Each member says that its gradients are ready.  When all have said so, a member reads its n-th of all
 * buffers, adds the parts in the order of the members, writes the sum to all buffers, and says that.
 * So each reads and writes as many bytes as a buffer has, which is the least; the messages are
 * empty.  The bits are those of the exchange by messages (sums/dense.c).
 *
 * Whether members can do that they find out from each other.  With the first sum of a buffer, which is
 * made by messages, each sends the place of its own; with the second, whether it could map all others'.
 * All have the same answers then, and so do the same from the third on.  In virtual time the device
 * knows, and all sums go so.
 */
#pragma once

#include "engine/reduce/reduce.h"

/*
 * Returns a reduction that goes by messages, through `messages`, until it can do without, and closes
 * that with itself; `messages` itself where the device's memory cannot be shared, or it is not worth it.
 */
struct pd_reduction *pd_direct_over(struct pd_reduction *messages,
				    const struct pd_reduction_config *config);
