/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan's workers on simulated devices, whose operations a test may replace, and records them. */
#pragma once

#include "engine/data/loader.h"
#include "engine/device/device.h"
#include "engine/transport/transport.h"
#include "schedule/schedule.h"
#include "trace/trace.h"

struct virtual_run {
	struct pd_record *records;      /* in the order in which the operations retired */
	size_t count, capacity;
};

/* Returns the rank of a transport of the run that goes on. */
int virtual_rank_of(const struct pd_transport *transport);

/* The operations that a test replaces; a member that is NULL replaces nothing. */
struct virtual_hooks {
	const struct pd_device_ops *device;     /* instead of pd_device_sim */
	const struct pd_transport_ops *transport;
	void (*advanced)(void);                 /* called when the clock has moved, before workers run */
};

/*
 * Runs a phase from its beginning.  The loader is for a plan of one stage on one rank; if it is NULL
 * there are no samples.
 */
struct virtual_run virtual_run(const struct pd_plan *plan, const struct virtual_hooks *hooks,
			       struct pd_loader *loader, const struct pd_phase *phase);
