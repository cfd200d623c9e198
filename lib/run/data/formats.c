/* SPDX-License-Identifier: Apache-2.0 */
/* The formats are asked in this order whether a directory is theirs. */
#include "run/data/format.h"

#include "base/file_kind.h"
#include "base/mem.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct pd_data_format *const formats[] = {
	&pd_data_idx, &pd_data_cifar, &pd_data_npy, &pd_data_npz, &pd_data_tokens, &pd_data_text, &pd_data_book,
};

/* Tells whether a folder, or those in it, have images. */
static bool has_images(const char *directory)
{
	static const char *const endings[] = { "jpg", "jpeg", "JPG", "JPEG", "png", "PNG" };
	bool found = false;
	glob_t files;

	for (size_t i = 0; i < 2 * PD_COUNT(endings) && !found; i++) {
		char *pattern = pd_format("%s/%s*.%s", directory, i % 2 ? "*/" : "", endings[i / 2]);

		found = glob(pattern, GLOB_NOSORT, NULL, &files) == 0;
		if (found)
			globfree(&files);
		free(pattern);
	}
	return found;
}

static int nothing_found(const char *directory, struct pd_error *err)
{
	char list[320] = "";

	for (size_t i = 0; i < PD_COUNT(formats); i++) {
		size_t used = strlen(list);

		snprintf(list + used, sizeof(list) - used, "%s%s (%s)", i ? ", or " : "",
			 formats[i]->files, formats[i]->name);
	}
	if (has_images(directory))
		return pd_error_input(err, "%s: found images, which pd-run does not decode: the "
				      "lines of Python in pd-data(5) make an archive of them",
				      directory);
	return pd_error_input(err, "%s: no data set found: expected %s", directory, list);
}

static int no_directory(const char *file, struct pd_error *err)
{
	const struct pd_file_kind *kind = pd_file_kind_of(file);
	char found[PD_FILE_KIND_TEXT] = ", found another file";

	if (kind)
		pd_file_kind_say(kind, found);
	return pd_error_input(err, "%s: expected a directory with a data set, or FILE.npz, or a text called NAME.txt%s",
			      file, found);
}

/* Says how to train without a test set, which is not there. */
static int no_test_set(struct pd_error *err)
{
	struct pd_error why = *err;

	return pd_error_input(err, "%s; --no-evaluate trains without a test set", why.text);
}

/* Returns the number of the first format of which there is a set; PD_COUNT(formats): there is none. */
static size_t find_format(const char *directory, bool test)
{
	size_t i = 0;

	while (i < PD_COUNT(formats) && !formats[i]->recognise(directory, test))
		i++;
	return i;
}

int pd_dataset_open(const char *directory, const struct pd_model *model,
		    struct pd_dataset *train_p, struct pd_dataset *test_p, struct pd_error *err)
{
	struct pd_dataset train = { 0 }, test = { 0 };
	size_t i = find_format(directory, train_p == NULL);
	struct stat st;

	if (i == PD_COUNT(formats) && !train_p)
		i = find_format(directory, false);      /* which then says what of the test set is missing */
	if (i == PD_COUNT(formats) && stat(directory, &st) != 0)
		return pd_error_input(err, "%s: cannot open: %s", directory, strerror(errno));
	if (i == PD_COUNT(formats) && !S_ISDIR(st.st_mode))
		return no_directory(directory, err);
	if (i == PD_COUNT(formats))
		return nothing_found(directory, err);
	if ((train_p && formats[i]->open(directory, model, false, NULL, &train, err) < 0) ||
	    (test_p && formats[i]->open(directory, model, true, train_p ? &train : NULL, &test, err) < 0)) {
		pd_dataset_release(&train);
		pd_dataset_release(&test);
		return train_p && test_p && !formats[i]->recognise(directory, true) &&
				       formats[i]->recognise(directory, false)
			       ? no_test_set(err) : -1;
	}
	if (train_p)
		*train_p = train;
	if (test_p)
		*test_p = test;
	return 0;
}
