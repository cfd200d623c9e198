/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/cut/views.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_LAYERS 4096        /* above this, stages are runs of the profile's layers */

void pd_views_init(struct pd_views *views, struct pd_profile *profile, enum pd_states_rule rule)
{
	*views = (struct pd_views){ .profile = profile };
	if (profile->layer_count > MOST_LAYERS || pd_points_one_order(profile))
		return;
	pd_states_init(&views->states, profile, rule);
	pd_points_of_states(&views->points, &views->states);
}

void pd_views_release(struct pd_views *views)
{
	for (size_t i = 0; i < views->count; i++)
		pd_profile_free(views->list[i]);
	free(views->list);
	pd_points_release(&views->points);
	pd_states_release(&views->states);
	*views = (struct pd_views){ 0 };
}

/* Tells whether the view has this order; its layers have numbers of the document's order. */
static bool is_in_order(const struct pd_views *views, const struct pd_profile *view,
			const int *order)
{
	for (int l = 0; l < view->layer_count; l++)
		if (pd_profile_number(view, l) != pd_profile_number(views->profile, order[l]))
			return false;
	return true;
}

struct pd_profile *pd_views_get(struct pd_views *views, const int *order)
{
	if (!order || is_in_order(views, views->profile, order))
		return views->profile;
	for (size_t i = views->count; i-- > 0;)
		if (is_in_order(views, views->list[i], order))
			return views->list[i];
	views->list = pd_grow(views->list, &views->capacity, views->count + 1,
			      sizeof(*views->list));
	return views->list[views->count++] = pd_profile_in_order(views->profile, order);
}

int *pd_views_order(const struct pd_views *views, const struct pd_profile *view)
{
	size_t n = (size_t)view->layer_count;
	int *order, *place;

	if (view == views->profile)
		return NULL;
	order = pd_calloc(n, sizeof(*order));
	place = pd_calloc(n, sizeof(*place));           /* by number */
	for (size_t l = 0; l < n; l++)
		place[pd_profile_number(views->profile, (int)l)] = (int)l;
	for (size_t l = 0; l < n; l++)
		order[l] = place[pd_profile_number(view, (int)l)];
	free(place);
	return order;
}
