/* SPDX-License-Identifier: Apache-2.0 */
/* Memory layouts of tensors, as oneDNN describes them. */
#include "run/device/cpu/dnn.h"

int pd_dnn_dims(const_dnnl_memory_desc_t md)
{
	int dims;

	dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &dims);
	return dims;
}

const int64_t *pd_dnn_size(const_dnnl_memory_desc_t md)
{
	const dnnl_dims_t *size;

	dnnl_memory_desc_query(md, dnnl_query_dims, &size);
	return *size;
}

static dnnl_data_type_t type_of(const_dnnl_memory_desc_t md)
{
	dnnl_data_type_t type;

	dnnl_memory_desc_query(md, dnnl_query_data_type, &type);
	return type;
}

const struct pd_layout *pd_dnn_layout(struct pd_onednn *dnn, const_dnnl_memory_desc_t md)
{
	struct pd_layout *layout;

	for (layout = dnn->layouts; layout; layout = layout->next)
		if (dnnl_memory_desc_equal(layout->md, md))
			return layout;
	layout = pd_zalloc(sizeof(*layout));
	if (dnnl_memory_desc_clone(&layout->md, md) != dnnl_success)
		pd_bug("no copy of a layout");
	layout->next = dnn->layouts;
	dnn->layouts = layout;
	return layout;
}

static const dnnl_format_tag_t plain_tags[] = {
	dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde
};

/* Makes the layout of a tag; NULL if the tag has another number of dimensions. */
static const struct pd_layout *made(struct pd_onednn *dnn, dnnl_data_type_t type, int dims,
				    const int64_t *size, dnnl_format_tag_t tag)
{
	const struct pd_layout *layout;
	dnnl_memory_desc_t md;

	if (dnnl_memory_desc_create_with_tag(&md, dims, size, type, tag) != dnnl_success)
		return NULL;
	layout = pd_dnn_layout(dnn, md);
	dnnl_memory_desc_destroy(md);
	return layout;
}

/* Returns whether that tag, for that tensor, gives that layout. */
static bool is_tagged(const struct pd_layout *layout, dnnl_format_tag_t tag)
{
	const_dnnl_memory_desc_t md = layout->md;
	dnnl_memory_desc_t other;
	bool same;

	if (dnnl_memory_desc_create_with_tag(&other, pd_dnn_dims(md), pd_dnn_size(md), type_of(md),
					     tag) != dnnl_success)
		return false;
	same = dnnl_memory_desc_equal(md, other);
	dnnl_memory_desc_destroy(other);
	return same;
}

bool pd_layout_in_panels(const struct pd_layout *layout)
{
	return pd_dnn_dims(layout->md) == 2 && is_tagged(layout, dnnl_AB16b64a) &&
	       !pd_dnn_is_padded(layout->md);
}

const_dnnl_memory_desc_t pd_dnn_any(struct pd_onednn *dnn, dnnl_data_type_t type, int dims,
				    const int64_t *size)
{
	const struct pd_layout *layout = made(dnn, type, dims, size, dnnl_format_tag_any);

	if (!layout)
		pd_bug("a layout of %d dimensions", dims);
	return layout->md;
}

const struct pd_layout *pd_layout_plain(struct pd_onednn *dnn, int dims, const int64_t *size)
{
	const struct pd_layout *layout = made(dnn, dnn->type, dims, size, plain_tags[dims]);

	if (!layout)
		pd_bug("a plain layout of %d dimensions", dims);
	return layout;
}

const struct pd_layout *pd_dnn_tagged(struct pd_onednn *dnn, const struct pd_layout *layout,
				      dnnl_format_tag_t tag)
{
	return made(dnn, type_of(layout->md), pd_dnn_dims(layout->md), pd_dnn_size(layout->md), tag);
}

/*
 * Returns the same layout for another type.  oneDNN cannot be asked for that, so this searches the
 * tag that gives the layout.
 */
static const struct pd_layout *retyped(struct pd_onednn *dnn, dnnl_data_type_t type,
				       const struct pd_layout *layout)
{
	struct pd_layout *asked = (struct pd_layout *)layout;
	dnnl_format_tag_t tag;

	if (type_of(layout->md) == type)
		return layout;
	if (asked->retyped && type_of(asked->retyped->md) == type)
		return asked->retyped;
	for (tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; tag++)
		if (is_tagged(layout, tag))
			break;
	if (tag == dnnl_format_tag_last)
		pd_bug("oneDNN has a layout of %d dimensions that no tag describes",
		       pd_dnn_dims(layout->md));
	asked->retyped = made(dnn, type, pd_dnn_dims(layout->md), pd_dnn_size(layout->md), tag);
	return asked->retyped;
}

const_dnnl_memory_desc_t pd_dnn_as(struct pd_onednn *dnn, dnnl_data_type_t type,
				   const struct pd_layout *layout)
{
	return retyped(dnn, type, layout)->md;
}

const struct pd_layout *pd_layout_full(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	return retyped(dnn, dnnl_f32, layout);
}

const struct pd_layout *pd_layout_stored(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	return retyped(dnn, dnn->type, layout);
}

bool pd_layout_is_full(const struct pd_layout *layout)
{
	return type_of(layout->md) == dnnl_f32;
}

static bool is_plain(const struct pd_layout *layout)
{
	return is_tagged(layout, plain_tags[pd_dnn_dims(layout->md)]);
}

/* The layouts of images, and how many channels lie side by side in each; 0: all. */
static const struct {
	dnnl_format_tag_t tag;
	int lanes;
} of_images[] = {
	{ dnnl_nchw, 1 }, { dnnl_nhwc, 0 }, { dnnl_nChw16c, 16 }, { dnnl_nChw8c, 8 }, { dnnl_nChw4c, 4 }
};

int64_t pd_layout_lanes(const struct pd_layout *layout)
{
	for (size_t i = 0; i < PD_COUNT(of_images); i++)
		if (is_tagged(layout, of_images[i].tag))
			return of_images[i].lanes ? of_images[i].lanes : pd_dnn_size(layout->md)[1];
	pd_bug("a layout of images with other blocks");
}

const struct pd_layout *pd_layout_like(struct pd_onednn *dnn, const struct pd_layout *layout,
				       const int64_t *size)
{
	int dims = pd_dnn_dims(layout->md);

	if (is_plain(layout))
		return pd_layout_plain(dnn, dims, size);
	for (size_t i = 0; dims == 4 && i < PD_COUNT(of_images); i++)
		if (is_tagged(layout, of_images[i].tag))
			return made(dnn, type_of(layout->md), dims, size, of_images[i].tag);
	return NULL;
}

const struct pd_layout *pd_layout_transposed(struct pd_onednn *dnn, const struct pd_layout *layout)
{
	const int64_t *size = pd_dnn_size(layout->md);

	return made(dnn, type_of(layout->md), 2, (int64_t[]){ size[1], size[0] }, dnnl_ba);
}

size_t pd_layout_bytes(const struct pd_layout *layout)
{
	return dnnl_memory_desc_get_size(layout->md);
}

bool pd_layout_same(const struct pd_layout *a, const struct pd_layout *b)
{
	return a == b || dnnl_memory_desc_equal(a->md, b->md);
}

bool pd_dnn_is_padded(const_dnnl_memory_desc_t md)
{
	const int64_t *size = pd_dnn_size(md);
	const dnnl_dims_t *padded;

	dnnl_memory_desc_query(md, dnnl_query_padded_dims, &padded);
	for (int i = 0; i < pd_dnn_dims(md); i++)
		if ((*padded)[i] != size[i])
			return true;
	return false;
}

void pd_layout_clear_padding(const struct pd_layout *layout, void *tensor)
{
	const int64_t *size = pd_dnn_size(layout->md);
	int64_t lanes, blocks, area;
	size_t each;

	if (!pd_dnn_is_padded(layout->md))
		return;
	lanes = pd_layout_lanes(layout);
	blocks = (size[1] + lanes - 1) / lanes;
	area = size[2] * size[3];
	each = pd_layout_bytes(layout) / (size_t)(size[0] * blocks * area * lanes);
	for (int64_t n = 0; n < size[0]; n++)
		for (int64_t at = 0; at < area; at++) {
			int64_t last = (((n + 1) * blocks - 1) * area + at) * lanes;

			memset((char *)tensor + (size_t)(last + size[1] % lanes) * each, 0,
			       (size_t)(lanes - size[1] % lanes) * each);
		}
}

bool pd_layout_stacks(const struct pd_layout *layout)
{
	static const dnnl_format_tag_t tags[] = { dnnl_nChw16c, dnnl_nChw8c, dnnl_nChw4c };

	if (is_plain(layout))
		return true;
	if (pd_dnn_dims(layout->md) != 4 || pd_dnn_is_padded(layout->md))
		return false;
	for (size_t i = 0; i < PD_COUNT(tags); i++)
		if (is_tagged(layout, tags[i]))
			return true;
	return false;
}
