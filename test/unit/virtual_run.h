/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a plan on simulated devices, whose operations a test may replace; and their records. */
#pragma once

#include "data/loader.h"
#include "device/device.h"
#include "schedule/schedule.h"
#include "trace/trace.h"
#include "transport/transport.h"

struct virtual_run {
	struct pd_record *records;      /* in the order in which operations retired */
	size_t count, capacity;
};

/* What a test does in between; what is NULL is left as it is. */
struct virtual_hooks {
	const struct pd_device_ops *device;     /* instead of pd_device_sim */
	const struct pd_transport_ops *transport;
	void (*advanced)(void);                 /* the clock has moved, and no worker knows it yet */
};

/*
 * Does a phase from its beginning.  The loader is for a plan of one stage on one rank; NULL: there are
 * no samples.
 */
struct virtual_run virtual_run(const struct pd_plan *plan, const struct virtual_hooks *hooks,
			       struct pd_loader *loader, const struct pd_phase *phase);
