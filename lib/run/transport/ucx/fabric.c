/* SPDX-License-Identifier: Apache-2.0 */
#include "run/transport/ucx/fabric.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#define PORTS "/sys/class/infiniband/*/ports/*"

/* Returns whether a file of a port has that word. */
static bool says(const char *port, const char *file, const char *word)
{
	char path[512], line[64] = "";
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", port, file);
	in = fopen(path, "r");
	if (in && !fgets(line, sizeof(line), in))
		line[0] = 0;
	if (in)
		fclose(in);
	return strstr(line, word) != NULL;
}

struct pd_ucx_fabrics pd_ucx_fabrics(void)
{
	struct pd_ucx_fabrics fabrics = { false, false };
	glob_t ports;

	if (glob(PORTS, 0, NULL, &ports) != 0)
		return fabrics;
	for (size_t i = 0; i < ports.gl_pathc; i++) {
		if (!says(ports.gl_pathv[i], "state", "ACTIVE"))
			continue;
		fabrics.infiniband |= says(ports.gl_pathv[i], "link_layer", "InfiniBand");
		fabrics.roce |= says(ports.gl_pathv[i], "link_layer", "Ethernet");
	}
	globfree(&ports);
	return fabrics;
}
