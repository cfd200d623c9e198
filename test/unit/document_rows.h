/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of all documents that are read by rows. */
#pragma once

#include "base/rows.h"
#include "checkpoint/checkpoint.h"
#include "doors/machine/machine.h"
#include "plan/plan.h"
#include "profile/device.h"
#include "profile/profile.h"
#include "schedule/file.h"
#include "topology/topology.h"
#include "trace/trace.h"

static const struct {
	const char *name;
	const struct pd_key_row *rows;
} document_rows[] = {
	{ "device", pd_sheet_rows },
	{ "machine", pd_machine_rows },
	{ "profile", pd_profile_rows },
	{ "topology", pd_topology_rows },
	{ "plan", pd_plan_rows },
	{ "checkpoint", pd_checkpoint_rows },
	{ "schedule", pd_schedule_rows },
	{ "schedule-operation", pd_schedule_op_rows },
	{ "schedule-block", pd_schedule_block_rows },
	{ "trace", pd_trace_rows },
	{ "trace-record", pd_trace_record_rows },
};
