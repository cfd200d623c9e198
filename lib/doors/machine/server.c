/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/machine/server.h"

#include "base/minmax.h"

#include <limits.h>

/*
 * A link of NVLink carries 25 GB/s each way from its second generation to its fourth, and 50 GB/s
 * in its fifth (NVIDIA's data sheets of V100, A100, H100, B200).  The most links of a device are 18.
 */
#define MOST_LINKS 18
#define LINK_BYTES_PER_S INT64_C(25000000000)
#define FIFTH_BYTES_PER_S INT64_C(50000000000)
/* PCIe 4.0 with 16 lanes, where nobody says more. */
#define PCI_BYTES_PER_S INT64_C(32000000000)

static int64_t nvlink_bytes_per_s(const struct pd_sheet *sheet)
{
	return sheet->link.bandwidth_bytes_per_s > MOST_LINKS * LINK_BYTES_PER_S ? FIFTH_BYTES_PER_S
									       : LINK_BYTES_PER_S;
}

/* Returns how many devices from the first on each reaches one of the others by NVLink: the first island. */
static int island_size(const struct pd_server *server)
{
	int size = 1;

	for (int i = 0; i < size; i++)
		for (int j = size; j < server->devices; j++)
			if (server->nvlinks[i][j] > 0 || (server->switched[i] > 0 && server->switched[j] > 0))
				size = j + 1;
	return size;
}

/* Checks that islands are alike: so many neighbours each, and no link between two of them. */
static bool has_islands(const struct pd_server *server, int size)
{
	if (server->devices % size != 0)
		return false;
	for (int i = 0; i < server->devices; i++) {
		bool reaches = size == 1;

		for (int j = 0; j < server->devices; j++) {
			bool linked = server->nvlinks[i][j] > 0 ||
				      (i != j && server->switched[i] > 0 && server->switched[j] > 0);

			if (linked && i / size != j / size)
				return false;
			reaches |= linked;
		}
		if (!reaches)
			return false;
	}
	return true;
}

/*
 * Returns the links of a device.  A table of pairs has those of a switch in every pair: they are more than a device
 * has, if each were another.
 */
static int links_of(const struct pd_server *server, int device)
{
	int sum = 0, most = 0;

	if (server->switched[device] > 0)
		return server->switched[device];
	for (int j = 0; j < server->devices; j++) {
		sum += server->nvlinks[device][j];
		most = (int)pd_max(most, server->nvlinks[device][j]);
	}
	return sum > MOST_LINKS ? most : sum;
}

int pd_server_levels(const char *name, const struct pd_server *server, const struct pd_sheet *sheet,
		     bool quiet, struct pd_topology *out, struct pd_error *err)
{
	int size = island_size(server), links = INT_MAX;
	int64_t latency_ns = sheet->link.latency_ns;
	struct pd_level inside, between = { server->devices / size, PCI_BYTES_PER_S, latency_ns };

	if (!has_islands(server, size))
		return pd_error_input(err, "%s: NVLink joins devices in groups that are not alike: give "
				      "--topology, such as 4@100GB/s,2@32GB/s, and --device", name);
	for (int i = 0; i < server->devices; i++)
		links = (int)pd_min(links, links_of(server, i));
	inside = (struct pd_level){ size, links * nvlink_bytes_per_s(sheet), latency_ns };
	*out = (struct pd_topology){ .memory_bytes = sheet->memory_bytes, .devices = server->devices };
	if (size > 1 || server->devices == 1)
		out->level[out->levels++] = server->devices == 1 ? between : inside;
	if (size < server->devices) {
		out->level[out->levels++] = between;
		if (!quiet)
			pd_say("%s: devices without NVLink between them are taken to reach each other over "
			       "PCIe 4.0, at 32 GB/s (--topology says otherwise)", name);
	}
	return 0;
}
