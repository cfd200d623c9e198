/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/views.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 4096        /* above this, stages are runs of the profile's layers */

void pd_views_init(struct pd_views *views, struct pd_profile *profile, const struct pd_profile *fastest,
		   enum pd_states_rule rule)
{
	*views = (struct pd_views){ .profile = profile };
	if (profile->layer_count > MOST_LAYERS || pd_points_one_order(profile))
		return;
	pd_states_init(&views->states, fastest, rule);
	pd_points_of_states(&views->points, &views->states);
}

void pd_views_release(struct pd_views *views)
{
	for (size_t i = 0; i < views->count; i++) {
		pd_profile_free(views->list[i].profile);
		free(views->list[i].order);
	}
	free(views->list);
	pd_points_release(&views->points);
	pd_states_release(&views->states);
	*views = (struct pd_views){ 0 };
}

struct pd_profile *pd_views_get(struct pd_views *views, const int *order)
{
	size_t bytes = (size_t)views->profile->layer_count * sizeof(*order);
	struct pd_ordered *view;
	int l = 0;

	while (order && l < views->profile->layer_count && order[l] == l)
		l++;
	if (!order || l == views->profile->layer_count)
		return views->profile;
	for (size_t i = views->count; i-- > 0;)
		if (memcmp(views->list[i].order, order, bytes) == 0)
			return views->list[i].profile;
	views->list = pd_grow(views->list, &views->capacity, views->count + 1,
			      sizeof(*views->list));
	view = &views->list[views->count++];
	*view = (struct pd_ordered){ pd_memdup(order, bytes), pd_profile_in_order(views->profile, order) };
	return view->profile;
}

int *pd_views_order(const struct pd_views *views, const struct pd_profile *view)
{
	for (size_t i = 0; i < views->count; i++)
		if (views->list[i].profile == view)
			return pd_memdup(views->list[i].order,
					 (size_t)view->layer_count * sizeof(int));
	return NULL;
}
