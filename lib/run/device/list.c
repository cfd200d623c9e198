/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/device/device.h"

#include "base/names.h"

#include <string.h>
#include <strings.h>

const struct pd_device_ops *const pd_devices[] = {
	&pd_device_cuda,
	&pd_device_cpu,
	NULL
};

const struct pd_device_ops *pd_device_find(const char *name, struct pd_error *err)
{
	char known[256] = "auto", meant[PD_MEANT_TEXT];
	struct pd_likeness likeness = { .word = strcasecmp(name, "gpu") == 0 ? pd_device_cuda.name : name };
	struct pd_error why;

	for (int i = 0; pd_devices[i]; i++) {
		bool automatic = strcmp(name, "auto") == 0;

		if (automatic || strcmp(name, pd_devices[i]->name) == 0) {
			if (pd_devices[i]->count(&why) > 0)
				return pd_devices[i];
			if (!automatic) {
				pd_error_failed(err, "--device=%s: %s", name, why.text);
				return NULL;
			}
		}
		pd_list_name(known, sizeof(known), pd_devices[i]->name, "");
		pd_likeness_try(&likeness, pd_devices[i]->name);
	}
	pd_likeness_try(&likeness, "auto");
	pd_error_input(err, "--device: expected one of %s, found \"%.60s\"%s", known, name,
		       pd_likeness_say(&likeness, meant));
	return NULL;
}
