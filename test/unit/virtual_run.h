/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a plan on simulated devices, whose operations a test may replace; and their records. */
#ifndef PD_TEST_VIRTUAL_RUN_H
#define PD_TEST_VIRTUAL_RUN_H

#include "data/loader.h"
#include "device/device.h"
#include "schedule/schedule.h"
#include "trace/trace.h"

struct virtual_run {
	struct pd_record *records;      /* in the order in which operations retired */
	size_t count, capacity;
};

/*
 * Does a phase from its beginning.  ops: those of the devices; NULL: pd_device_sim.  The loader is for a
 * plan of one stage on one rank; NULL: there are no samples.
 */
struct virtual_run virtual_run(const struct pd_plan *plan, const struct pd_device_ops *ops,
			       struct pd_loader *loader, const struct pd_phase *phase);

#endif
