/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a tensor is chosen for the layers that read it.  A convolution prefers the layout
 * of its own kernel, for which oneDNN may have only plain loops in the layers behind (blocks of 4
 * channels, in grouped convolutions; without AVX-512 also the plain layout).  So the kernels of
 * batch normalisation and pooling are asked: they follow most convolutions and know the fewest
 * layouts.
 */
#include "run/device/cpu/dnn.h"

static bool is_quick(struct pd_primitive *op)
{
	bool quick = op && !pd_primitive_is_slow(op);

	if (op)
		pd_dnn_op_drop(op);
	return quick;
}

static bool normalises(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	struct pd_error err;

	return is_quick(pd_primitive_batchnorm(dnn, PD_FORWARD, false, layout, 1e-5f, NULL, &err));
}

static bool pools(struct pd_onednn *dnn, const struct pd_layout *layout, const int64_t *pooled)
{
	const int64_t *size = pd_dnn_size(layout->md);
	const struct pd_pooling pool = {
		.kernel = { size[2] / pooled[2], size[3] / pooled[3] },
		.stride = { size[2] / pooled[2], size[3] / pooled[3] }, .max = true,
	};
	const struct pd_layout *dst = pd_layout_like(dnn, layout, pooled);
	struct pd_error err;

	return dst && is_quick(pd_primitive_pool(dnn, PD_FORWARD, &pool, layout, dst, NULL, &err));
}

static bool both(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	int64_t pooled[4];

	memcpy(pooled, pd_dnn_size(layout->md), sizeof(pooled));
	for (int d = 2; d < 4; d++)
		pooled[d] = pooled[d] > 1 ? pooled[d] / 2 : 1;
	return normalises(dnn, layout) && pools(dnn, layout, pooled);
}

/* Padding channels to blocks may at most double the tensor, or it costs more than kernels gain. */
static const struct pd_layout *choose(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	static const dnnl_format_tag_t tags[] = { dnnl_nChw16c, dnnl_nChw8c, dnnl_nhwc };
	size_t most = 2 * pd_layout_bytes(pd_dnn_tagged(dnn, layout, dnnl_nchw));

	if (both(dnn, layout))
		return layout;
	for (size_t i = 0; i < PD_COUNT(tags); i++) {
		const struct pd_layout *other = pd_dnn_tagged(dnn, layout, tags[i]);

		if (pd_layout_bytes(other) <= most && both(dnn, other))
			return other;
	}
	return layout;
}

const struct pd_layout *pd_layout_quick(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	struct pd_layout *asked = (struct pd_layout *)layout;

	if (pd_dnn_dims(layout->md) != 4)
		return layout;
	if (!asked->quick)
		asked->quick = choose(dnn, layout);
	return asked->quick;
}
