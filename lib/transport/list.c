/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

const struct pd_transport_ops *const pd_transports[] = {
	&pd_transport_ucx,
	NULL
};
