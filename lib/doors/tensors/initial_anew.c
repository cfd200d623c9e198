/* SPDX-License-Identifier: Apache-2.0 */
/* What does not come from where initial parameters are, since somebody said so. */
#include "doors/tensors/initial_found.h"

#include "base/mem.h"
#include "base/names.h"

#include <stdlib.h>

bool pd_initial_is_anew(const struct pd_initial *initial, const char *name)
{
	return pd_names_match(initial->anew, name);
}

static char *part_name(const struct pd_initial *initial, const struct pd_outside_part *part)
{
	return pd_format("%s.%s", initial->model->layers[part->layer].name, part->tensor->name);
}

bool pd_initial_outside_is_anew(const struct pd_initial *initial, const struct pd_outside *outside)
{
	bool all = initial->anew;

	for (int p = 0; p < outside->part_count && all; p++) {
		char *name = part_name(initial, &outside->parts[p]);

		all = pd_initial_is_anew(initial, name);
		free(name);
	}
	return all;
}

/* Is anything of the model, or of what is there, called so? */
static bool is_known(const struct pd_initial *initial, const char *pattern)
{
	const struct pd_tensor *const *all;
	size_t count = pd_tensors_list(initial->tensors, &all);
	bool found = false;

	for (size_t i = 0; i < count && !found; i++)
		found = pd_name_matches(pattern, all[i]->name);
	for (int i = 0; i < initial->ours.count && !found; i++)
		found = pd_name_matches(pattern, initial->ours.all[i].name);
	return found;
}

int pd_initial_check_anew(const struct pd_initial *initial, struct pd_error *err)
{
	const char *list = initial->anew;
	int status = 0;
	char *pattern;

	while (status == 0 && (pattern = pd_names_next(&list))) {
		if (!is_known(initial, pattern))
			status = pd_error_input(err, "nothing of model \"%.80s\" is called \"%.80s\", nor of %s",
						initial->model->name, pattern, pd_tensors_path(initial->tensors));
		free(pattern);
	}
	return status;
}
