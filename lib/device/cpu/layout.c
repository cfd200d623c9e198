/* SPDX-License-Identifier: Apache-2.0 */
/* How tensors lie in memory, as oneDNN describes it. */
#include "device/cpu/dnn.h"

const struct pd_layout *pd_dnn_layout(struct pd_onednn *dnn, const dnnl_memory_desc_t *md)
{
	struct pd_layout *layout;

	for (layout = dnn->layouts; layout; layout = layout->next)
		if (dnnl_memory_desc_equal(&layout->md, md))
			return layout;
	layout = pd_zalloc(sizeof(*layout));
	layout->md = *md;
	layout->next = dnn->layouts;
	dnn->layouts = layout;
	return layout;
}

static dnnl_memory_desc_t plain_md(dnnl_data_type_t type, int dims, const int64_t *size)
{
	static const dnnl_format_tag_t tags[] = {
		dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde
	};
	dnnl_memory_desc_t md;

	if (dnnl_memory_desc_init_by_tag(&md, dims, size, type, tags[dims]) != dnnl_success)
		pd_bug("a plain layout of %d dimensions", dims);
	return md;
}

dnnl_memory_desc_t pd_dnn_any(dnnl_data_type_t type, int dims, const int64_t *size)
{
	dnnl_memory_desc_t md;

	if (dnnl_memory_desc_init_by_tag(&md, dims, size, type, dnnl_format_tag_any) !=
	    dnnl_success)
		pd_bug("a layout of %d dimensions", dims);
	return md;
}

const struct pd_layout *pd_layout_plain(struct pd_onednn *dnn, int dims, const int64_t *size)
{
	dnnl_memory_desc_t md = plain_md(dnn->type, dims, size);

	return pd_dnn_layout(dnn, &md);
}

dnnl_memory_desc_t pd_dnn_as(dnnl_data_type_t type, const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = layout->md;

	md.data_type = type;
	return md;
}

const struct pd_layout *pd_layout_full(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = pd_dnn_as(dnnl_f32, layout);

	return pd_dnn_layout(dnn, &md);
}

const struct pd_layout *pd_layout_stored(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = pd_dnn_as(dnn->type, layout);

	return pd_dnn_layout(dnn, &md);
}

bool pd_layout_is_full(const struct pd_layout *layout)
{
	return layout->md.data_type == dnnl_f32;
}

const struct pd_layout *pd_layout_like(struct pd_onednn *dnn, const struct pd_layout *layout,
				       const int64_t *size)
{
	static const dnnl_format_tag_t tags[] = {
		dnnl_nchw, dnnl_nhwc, dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c
	};
	int dims = layout->md.ndims;
	dnnl_memory_desc_t md;

	if (pd_layout_is_plain(layout))
		return pd_layout_plain(dnn, dims, size);
	for (size_t i = 0; dims == 4 && i < PD_COUNT(tags); i++) {
		if (dnnl_memory_desc_init_by_tag(&md, dims, layout->md.dims, layout->md.data_type,
						tags[i]) !=
		    dnnl_success || !dnnl_memory_desc_equal(&md, &layout->md))
			continue;
		if (dnnl_memory_desc_init_by_tag(&md, dims, size, layout->md.data_type, tags[i]) ==
		    dnnl_success)
			return pd_dnn_layout(dnn, &md);
	}
	return NULL;
}

size_t pd_layout_bytes(const struct pd_layout *layout)
{
	return dnnl_memory_desc_get_size(&layout->md);
}

bool pd_layout_same(const struct pd_layout *a, const struct pd_layout *b)
{
	return a == b || dnnl_memory_desc_equal(&a->md, &b->md);
}

bool pd_layout_is_plain(const struct pd_layout *layout)
{
	dnnl_memory_desc_t md = plain_md(layout->md.data_type, layout->md.ndims, layout->md.dims);

	return dnnl_memory_desc_equal(&md, &layout->md);
}

bool pd_dnn_is_padded(const dnnl_memory_desc_t *md)
{
	for (int i = 0; i < md->ndims; i++)
		if (md->padded_dims[i] != md->dims[i])
			return true;
	return false;
}

bool pd_layout_stacks(const struct pd_layout *layout)
{
	static const dnnl_format_tag_t tags[] = { dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c };
	dnnl_memory_desc_t md;

	if (pd_layout_is_plain(layout))
		return true;
	if (layout->md.ndims != 4 || pd_dnn_is_padded(&layout->md))
		return false;
	for (size_t i = 0; i < PD_COUNT(tags); i++)
		if (dnnl_memory_desc_init_by_tag(&md, 4, layout->md.dims, layout->md.data_type,
						tags[i]) == dnnl_success &&
		    dnnl_memory_desc_equal(&md, &layout->md))
			return true;
	return false;
}
