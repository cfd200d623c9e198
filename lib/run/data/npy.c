/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NumPy format has one file per input of the model, DIR/train/NAME.npy and DIR/test/NAME.npy,
 * of the shape (samples, input's shape...).  Files are mapped into memory and read in place.
 */
#include "run/data/npy.h"

#include "base/mem.h"
#include "run/data/format.h"

#include <stdlib.h>
#include <sys/stat.h>

static int open_column(struct pd_npy_column *column, struct pd_dataset_range range, struct pd_error *err)
{
	const struct pd_file_map *map = &column->map;

	if (pd_file_map_open(&column->map, column->file, "a .npy file", err) < 0 ||
	    pd_npy_column_describe(column, map->bytes, map->count, map->count, err) < 0)
		return -1;
	return pd_npy_column_fill(column, map->bytes, range, err);
}

static int open_set(const char *directory, const struct pd_model *model, bool test,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	struct pd_npy_set *npy = pd_zalloc(sizeof(*npy));

	(void)train;
	*set_p = (struct pd_dataset){ .format = &pd_data_npy, .state = npy };
	npy->columns = pd_calloc((size_t)model->input_count, sizeof(*npy->columns));
	for (int i = 0; i < model->input_count; i++) {
		struct pd_npy_column *column = &npy->columns[npy->count++];

		column->input = &model->inputs[i];
		column->file = pd_format("%s/%s/%s.npy", directory, test ? "test" : "train",
					 column->input->name);
		if (open_column(column, pd_dataset_range(model, i), err) < 0 ||
		    pd_npy_check_samples(set_p, err) < 0)
			return -1;
	}
	return 0;
}

static bool recognise(const char *directory, bool test)
{
	char *part = pd_format("%s/%s", directory, test ? "test" : "train");
	struct stat st;
	bool found = stat(part, &st) == 0 && S_ISDIR(st.st_mode);

	free(part);
	return found;
}

const struct pd_data_format pd_data_npy = {
	.name = "NumPy", .files = "train/NAME.npy for each input NAME of the model",
	.recognise = recognise, .open = open_set, .read = pd_npy_read, .file = pd_npy_file,
	.close = pd_npy_close,
};
