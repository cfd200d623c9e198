/* SPDX-License-Identifier: Apache-2.0 */
/* What does not come from where initial parameters are, since somebody said so. */
#include "doors/tensors/initial_found.h"

#include "base/mem.h"

#include <fnmatch.h>
#include <stdlib.h>

/* Takes the first of the names, which are separated by commas; returns it, to be freed, or NULL: there is none. */
static char *next_name(const char **list_p)
{
	size_t length = *list_p ? strcspn(*list_p, ",") : 0;
	char *name;

	if (length == 0)
		return NULL;
	name = pd_format("%.*s", (int)length, *list_p);
	*list_p += length + ((*list_p)[length] == ',');
	return name;
}

static bool is_of(const char *pattern, const char *name)
{
	char *inside = pd_format("%s.*", pattern);
	bool found = fnmatch(pattern, name, 0) == 0 || fnmatch(inside, name, 0) == 0;

	free(inside);
	return found;
}

bool pd_initial_is_anew(const struct pd_initial *initial, const char *name)
{
	const char *list = initial->anew;
	bool found = false;
	char *pattern;

	while (!found && (pattern = next_name(&list))) {
		found = is_of(pattern, name);
		free(pattern);
	}
	return found;
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
		found = is_of(pattern, all[i]->name);
	for (int i = 0; i < initial->ours.count && !found; i++)
		found = is_of(pattern, initial->ours.all[i].name);
	return found;
}

int pd_initial_check_anew(const struct pd_initial *initial, struct pd_error *err)
{
	const char *list = initial->anew;
	int status = 0;
	char *pattern;

	while (status == 0 && (pattern = next_name(&list))) {
		if (!is_known(initial, pattern))
			status = pd_error_input(err, "nothing of model \"%.80s\" is called \"%.80s\", nor of %s",
						initial->model->name, pattern, pd_tensors_path(initial->tensors));
		free(pattern);
	}
	return status;
}
