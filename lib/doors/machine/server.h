/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what other programs say of the devices and links of one server. */
#pragma once

#include "profile/device.h"
#include "topology/topology.h"

#define PD_SERVER_DEVICES 64

struct pd_server {
	int devices;
	int nvlinks[PD_SERVER_DEVICES][PD_SERVER_DEVICES];      /* between two of them, without a switch */
	int switched[PD_SERVER_DEVICES];        /* that go from each to switches */
	double network_bytes_per_s;             /* of all adapters; 0: nobody says */
};

/* Each reads a text, called `name` in messages. */
int pd_server_parse_smi(const char *name, const char *text, struct pd_server *out, struct pd_error *err);
int pd_server_parse_nccl(const char *name, const char *text, struct pd_server *out, struct pd_error *err);
/*
 * Makes the levels inside a server of these: devices that NVLink joins, at what all links of one carry, and PCIe
 * between such islands.  Fails where islands are not alike, or not of neighbours.
 */
int pd_server_levels(const char *name, const struct pd_server *server, const struct pd_sheet *sheet,
		     bool quiet, struct pd_topology *out, struct pd_error *err);
