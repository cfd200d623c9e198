/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program linked with --wrap=pd_device_find has devices that gain from works that come together
 * (pd_device_ops.joins): so a worker hands works over as it does for a GPU.
 */
#include "engine/device/device.h"

const struct pd_device_ops *__real_pd_device_find(const char *name, struct pd_error *err);
const struct pd_device_ops *__wrap_pd_device_find(const char *name, struct pd_error *err);

static const struct pd_device_ops *found;
static struct pd_device_ops joins;

static struct pd_device *open_found(const struct pd_device_config *config, struct pd_error *err)
{
	struct pd_device *device = found->open(config, err);

	if (device)
		device->ops = &joins;
	return device;
}

const struct pd_device_ops *__wrap_pd_device_find(const char *name, struct pd_error *err)
{
	found = __real_pd_device_find(name, err);
	if (!found)
		return NULL;
	joins = *found;
	joins.open = open_found;
	joins.joins = true;
	return &joins;
}
