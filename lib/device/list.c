/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include <string.h>

const struct pd_device_ops *const pd_devices[] = {
	&pd_device_cpu,
	NULL
};

const struct pd_device_ops *pd_device_find(const char *name, struct pd_error *err)
{
	char known[256] = "auto";

	for (int i = 0; pd_devices[i]; i++) {
		if (strcmp(name, "auto") == 0 ? pd_devices[i]->count() > 0
					      : strcmp(name, pd_devices[i]->name) == 0) {
			if (pd_devices[i]->count() > 0)
				return pd_devices[i];
			pd_error_failed(err, "--device=%s: no such device can be used on this machine",
					name);
			return NULL;
		}
		strncat(known, ", ", sizeof(known) - strlen(known) - 1);
		strncat(known, pd_devices[i]->name, sizeof(known) - strlen(known) - 1);
	}
	pd_error_input(err, "--device=%s: this program knows %s", name, known);
	return NULL;
}
