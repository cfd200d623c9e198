/* SPDX-License-Identifier: Apache-2.0 */
/* A build without CUDA has this device for --device=cuda; it finds no GPU. */
#include "engine/device/device.h"

static int absent_count(struct pd_error *why)
{
	pd_error_failed(why, "no GPU can be used: this program was built without CUDA");
	return 0;
}

const struct pd_device_ops pd_device_cuda = { .name = "cuda", .count = absent_count };
