/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles of devices that nobody has at hand: the times of layers from what they multiply and move (cost.h) and
 * from a device's data sheet (profile/device.h).
 */
#pragma once

#include "estimate/cost.h"
#include "profile/device.h"
#include "profile/profile.h"
#include "topology/topology.h"

struct pd_estimate {
	const struct pd_sheet *sheet;
	int64_t batch_size;             /* samples of one device's microbatch */
	enum pd_dtype dtype;
	bool tf32;
	bool elsewhere;                 /* for a program that keeps only what backward reads: of groups always so */
	struct pd_degrees group;        /* devices that act as one; links of bandwidth 0: the sheet's */
};

/*
 * Sets the links of a group's devices on a machine: neighbours share the layers, and the samples
 * those that are as far apart.  All exchange at once, and share the links that several of them
 * cross.
 */
void pd_estimate_links(const struct pd_topology *topology, struct pd_degrees *group);
/* Returns a layer as one device alone runs it. */
struct pd_cost_layer pd_estimate_layer(const struct pd_estimate *how, const struct pd_model *model, int layer);
/*
 * Returns the time of a part of a layer: for each kernel kernel_ns, and the longer of its products and its bytes.
 * A product takes as long as whole waves of tiles, the best of those that the sheet has, each with its beginning
 * and end.
 */
double pd_estimate_ns(const struct pd_estimate *how, const struct pd_cost *cost);
/*
 * Returns a profile of the model.  That of a group has the times of one of its devices, with what they exchange, and
 * the bytes of all of them together; its memory is that of Megatron-LM.  Fails if the device has no products in that
 * type, if its devices cannot share the model out, or if a time is out of range.
 */
struct pd_profile *pd_estimate_profile(const struct pd_estimate *how, const struct pd_model *model,
				       struct pd_error *err);
/*
 * Returns the profile again for microbatches of so many samples of a device, and for a group of
 * devices (NULL: one by itself), by the data sheet and the model that it has; `elsewhere` as above.
 * Where it may be cut stays, and whose memory it is, if not pd-run's.
 */
struct pd_profile *pd_estimate_again(const struct pd_profile *profile, int64_t batch_size,
				     const struct pd_degrees *group, bool elsewhere,
				     struct pd_error *err);
/*
 * Sets the efficiencies, kernel_ns and the spread of the sheet so that it estimates what the profiles, which have
 * models, measured; and its rates where these are less than what was reached.  Fails if they say too little.
 */
int pd_estimate_fit(struct pd_sheet *sheet, struct pd_profile *const *profiles, int count, struct pd_error *err);
