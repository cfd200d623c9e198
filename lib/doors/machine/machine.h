/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines by whatever names them: servers by name (pd-machine(5)), what nvidia-smi topo -m
 * prints, NCCL's NCCL_TOPO_DUMP_FILE, a pd-topology(5) document.
 */
#pragma once

#include "base/rows.h"
#include "profile/device.h"
#include "topology/topology.h"

struct pd_named_machine {
	struct pd_sheet *sheet;         /* of its devices; owned; NULL: nobody says */
	struct pd_topology topology;
};

/*
 * Reads NAME or FILE, or NxNAME or NxFILE, such as 8xdgx-h100: N servers, or one.  device names
 * their devices where the document does not; else NULL.  Says on standard error what is assumed.
 * Errors count as input; *out is to be released after a success alone.
 */
int pd_named_machine_read(const char *what, const char *device, bool quiet, struct pd_named_machine *out,
		    struct pd_error *err);
void pd_named_machine_release(struct pd_named_machine *machine);
/* Those of a machine document. */
extern const struct pd_key_row pd_machine_rows[];
