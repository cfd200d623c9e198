/* SPDX-License-Identifier: Apache-2.0 */
/* What is missing of initial parameters, and what is too much. */
#include "doors/tensors/initial_found.h"

#include "base/mem.h"
#include "base/names.h"

#include <stdio.h>

#define SHOWN 3                         /* names in a message */

/* Buffers that PyTorch saves and nothing here uses, by their endings; dims 0: of any number. */
static const struct {
	const char *ending;
	int dims;
} unused[] = {
	{ ".num_batches_tracked", 0 }, { ".attn.bias", 4 }, { ".attn.masked_bias", 0 }, { ".inv_freq", 0 },
	{ ".position_ids", 0 }, { "cls.predictions.bias", 0 },
};

/* Parameters of heads: files of BERT and ViT have them, whatever config.json says that the network is. */
static const char *const heads[] = {
	"pooler.dense.weight", "pooler.dense.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias",
};

static bool is_unused(const struct pd_tensor *tensor)
{
	for (size_t i = 0; i < PD_COUNT(unused); i++)
		if (pd_name_ends(tensor->name, unused[i].ending) &&
		    (unused[i].dims == 0 || unused[i].dims == tensor->dims))
			return true;
	return false;
}

/* Is it of a head that the network does not have? */
static bool is_of_head(const struct pd_initial *initial, const struct pd_tensor *tensor)
{
	for (size_t i = 0; i < PD_COUNT(heads) && pd_model_config(initial->model); i++)
		if (pd_name_ends(tensor->name, heads[i]))
			return !json_object_get(initial->known, tensor->name);
	return false;
}

/* Adds a name to a list for a message, which has the first few. */
static void list_one(char list[PD_INITIAL_TEXT], int count, const char *name)
{
	size_t used = strlen(list);

	if (count < SHOWN)
		snprintf(list + used, PD_INITIAL_TEXT - used, "%s\"%.100s\"", used ? ", " : "", name);
}

/* Ends the list with how many more there are. */
static void end_list(char list[PD_INITIAL_TEXT], int count, int shown)
{
	size_t used = strlen(list);

	if (count > shown)
		snprintf(list + used, PD_INITIAL_TEXT - used, " and %d more", count - shown);
}

static int list_missing(const struct pd_initial *initial, char list[PD_INITIAL_TEXT], const char **first_p)
{
	int missing = 0;

	for (int i = 0; i < initial->outside.count; i++) {
		const struct pd_outside *outside = &initial->outside.all[i];

		if (outside->alias || pd_initial_has_all(initial, outside) ||
		    pd_initial_outside_is_anew(initial, outside))
			continue;
		*first_p = missing ? *first_p : outside->name;
		list_one(list, missing++, outside->name);
	}
	end_list(list, missing, SHOWN);
	return missing;
}

static bool is_strange(const struct pd_initial *initial, const struct pd_tensor *tensor)
{
	return !json_object_get(initial->known, tensor->name) && !is_unused(tensor) &&
	       !is_of_head(initial, tensor) && !pd_initial_is_anew(initial, tensor->name);
}

int pd_initial_other_heads(const struct pd_initial *initial, char list[PD_INITIAL_TEXT])
{
	const struct pd_tensor *const *all;
	size_t count = pd_tensors_list(initial->tensors, &all);
	int heads_count = 0;

	*list = '\0';
	for (size_t i = 0; i < count; i++)
		if (is_of_head(initial, all[i]))
			list_one(list, heads_count++, all[i]->name);
	end_list(list, heads_count, SHOWN);
	return heads_count;
}

/* Those that the model has no place for; where one is wanted, the one whose name is most like it alone. */
static int list_strangers(const struct pd_initial *initial, const char *wanted, char list[PD_INITIAL_TEXT])
{
	struct pd_likeness likeness = { .word = wanted ? wanted : "" };
	const struct pd_tensor *const *all;
	size_t count = pd_tensors_list(initial->tensors, &all);
	const char *first = NULL;
	int strangers = 0;

	for (size_t i = 0; i < count; i++) {
		if (!is_strange(initial, all[i]))
			continue;
		first = first ? first : all[i]->name;
		pd_likeness_try(&likeness, all[i]->name);
		if (!wanted)
			list_one(list, strangers, all[i]->name);
		strangers++;
	}
	if (wanted && first)
		list_one(list, 0, likeness.name ? likeness.name : first);
	end_list(list, strangers, wanted ? 1 : SHOWN);
	return strangers;
}

int pd_initial_check(const struct pd_initial *initial, struct pd_error *err)
{
	char missing[PD_INITIAL_TEXT] = "", strangers[PD_INITIAL_TEXT] = "";
	const char *name = initial->model->name, *first = NULL;
	int count = list_missing(initial, missing, &first);
	bool others = pd_tensors_have_constants(initial->tensors);

	if (count > 0) {
		bool but = !others && list_strangers(initial, first, strangers) > 0;

		return pd_error_input(err, "%s: expected %s of model \"%.80s\", found nothing of %s%s%s%s",
				      pd_tensors_path(initial->tensors), missing, name,
				      count > 1 ? "these names" : "that name", but ? ", but " : "", strangers,
				      initial->anew && !but ? " (--init-new has layers begin anew)" : "");
	}
	count = others ? 0 : list_strangers(initial, NULL, strangers);
	return count == 0 ? 0 : pd_error_input(err, "%s: %s: model \"%.80s\" has no such parameter%s%s",
					       pd_tensors_path(initial->tensors), strangers, name,
					       count > 1 ? "s" : "", initial->anew ? " (--init-new passes over what it "
					       "names)" : "");
}
