/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives of arrays, as numpy.savez writes them: DIR/train.npz and DIR/test.npz, or FILE.npz with both sets.
 * An array is that of an input by its name: the input's own, or what images and labels are usually called;
 * FILE.npz:NAME,NAME names them, in the order of the model's inputs.  In an archive with both sets "train"
 * or "test" stands beside the name.  Stored arrays are read where they lie.
 */
#include "run/data/npy.h"

#include "base/mem.h"
#include "run/data/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".npz"
#define PEEK_BYTES 65548                /* the longest header of version 1.0, and more */

static const char *const image_names[] = { "x", "images", "image", "data", NULL };
static const char *const label_names[] = { "y", "labels", "label", "targets", NULL };

/* What of a path is the file, and the names behind it. */
struct path {
	char *file;                     /* owned */
	const char *names;              /* "a,b"; NULL: none */
	bool both;                      /* sets are in one file */
};

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

static bool ends_so(const char *text, size_t length)
{
	return length > strlen(SUFFIX) && strncmp(text + length - strlen(SUFFIX), SUFFIX, strlen(SUFFIX)) == 0;
}

/* Returns the colon behind FILE.npz in FILE.npz:NAMES, or NULL. */
static const char *colon_of(const char *path)
{
	const char *colon = strrchr(path, ':');

	return colon && ends_so(path, (size_t)(colon - path)) && !is_file(path) ? colon : NULL;
}

static struct path split(const char *path, bool test)
{
	const char *colon = colon_of(path);

	if (colon)
		return (struct path){ pd_format("%.*s", (int)(colon - path), path), colon + 1, true };
	if (ends_so(path, strlen(path)) && is_file(path))
		return (struct path){ pd_strdup(path), NULL, true };
	return (struct path){ pd_format("%s/%s" SUFFIX, path, test ? "test" : "train"), NULL, false };
}

static bool recognise(const char *path, bool test)
{
	struct path parts = split(path, test);
	bool found = parts.both || access(parts.file, F_OK) == 0;

	free(parts.file);
	return found;
}

/* ---- which array is which ---- */

/* Tells whether an array's name is NAME, or where `set` is given NAME_train, train_NAME and the like. */
static bool is_called(const char *array, size_t length, const char *name, const char *set)
{
	size_t of_name = strlen(name), of_set = set ? strlen(set) : 0;

	if (!set)
		return length == of_name && strncasecmp(array, name, length) == 0;
	if (length != of_name + 1 + of_set)
		return false;
	return (strncasecmp(array, name, of_name) == 0 && strchr("_-./", array[of_name]) &&
		strncasecmp(array + of_name + 1, set, of_set) == 0) ||
	       (strncasecmp(array, set, of_set) == 0 && strchr("_-./", array[of_set]) &&
		strncasecmp(array + of_set + 1, name, of_name) == 0);
}

/* Finds the member NAME.npy; a second one, under another of the names, is in *other_p. */
static const struct pd_zip_member *find_member(const struct pd_zip *zip, const char *const *names, const char *set,
					       const struct pd_zip_member **other_p)
{
	const struct pd_zip_member *found = NULL;

	for (int i = 0; i < zip->count; i++) {
		const char *array = zip->members[i].name, *const *name = names;
		size_t length = strlen(array);

		if (length < 4 || strcmp(array + length - 4, ".npy") != 0)
			continue;
		while (*name && !is_called(array, length - 4, *name, set))
			name++;
		if (!*name)
			continue;
		if (found)
			*other_p = &zip->members[i];
		else
			found = &zip->members[i];
	}
	return found;
}

/* The only input of its type may go by the usual names. */
static const char *const *usual_names(const struct pd_model *model, int input)
{
	int count = 0;

	for (int i = 0; i < model->input_count; i++)
		count += model->inputs[i].dtype == model->inputs[input].dtype;
	if (count > 1)
		return NULL;
	return model->inputs[input].dtype == PD_F32 ? image_names : label_names;
}

/* Returns name number n of "a,b", or NULL; free() it. */
static char *given_name(const char *names, int n)
{
	for (; n > 0 && names; n--) {
		names = strchr(names, ',');
		names += names != NULL;
	}
	return names && *names && *names != ',' ? pd_format("%.*s", (int)strcspn(names, ","), names) : NULL;
}

static const char *list_arrays(const struct pd_zip *zip, char text[320])
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < zip->count && used < 240; i++)
		used += (size_t)snprintf(text + used, 320 - used, "%s%.60s", i ? ", " : "", zip->members[i].name);
	return zip->count ? text : "nothing";
}

static int not_found(const struct path *path, const struct pd_zip *zip, const struct pd_input *input,
		     const char *const *names, const char *set, struct pd_error *err)
{
	char text[320], expected[200];
	size_t used = 0;

	for (; *names && used < 120; names++)
		used += (size_t)snprintf(expected + used, sizeof(expected) - used, "%s%.60s", used ? " or " : "",
					 *names);
	return pd_error_input(err, "%s: has no array for the model's input \"%.60s\": expected one called %s%s%s"
			      "%s, found %s", path->file, input->name, expected, path->both ? ", with _" : "",
			      path->both ? set : "", path->both ? " behind it" : "", list_arrays(zip, text));
}

/* Finds the array under any of these names: with the set's beside it, else, to train on, without. */
static const struct pd_zip_member *find_named(const struct path *path, const struct pd_zip *zip,
					      const char *const *names, bool test,
					      const struct pd_zip_member **other_p)
{
	const struct pd_zip_member *found = NULL;

	if (path->both)
		found = find_member(zip, names, test ? "test" : "train", other_p);
	if (!found && !(path->both && test))
		found = find_member(zip, names, NULL, other_p);
	return found;
}

/* Finds the array of an input. */
static const struct pd_zip_member *find_array(const struct path *path, const struct pd_zip *zip,
					      const struct pd_model *model, int input, bool test,
					      struct pd_error *err)
{
	const struct pd_input *what = &model->inputs[input];
	const char *const *usual = path->names ? NULL : usual_names(model, input);
	char *given = path->names ? given_name(path->names, input) : NULL;
	const char *own[] = { path->names ? given : what->name, NULL };
	const struct pd_zip_member *other = NULL, *found = own[0] ? find_named(path, zip, own, test, &other) : NULL;

	if (!found && usual)
		found = find_named(path, zip, usual, test, &other);
	if (path->names && !given)
		pd_error_input(err, "%s:%s: expected a name for each of the model's %d inputs, with a comma between"
			       " them", path->file, path->names, model->input_count);
	else if (!found)
		not_found(path, zip, what, usual ? usual : own, test ? "test" : "train", err);
	else if (other)
		pd_error_input(err, "%s: both %.60s and %.60s could be the model's input \"%.60s\": FILE.npz:NAME,NAME"
			       " says which are meant", path->file, found->name, other->name, what->name);
	free(given);
	return other ? NULL : found;
}

/* ---- a set ---- */

/* Unpacks an array once its header says that it is samples of the input, and as large as the archive says. */
static int unpack(struct pd_npy_column *column, const struct pd_zip_member *member, struct pd_error *err)
{
	uint8_t *beginning = pd_calloc(1, PEEK_BYTES);
	int64_t count = pd_zip_peek(member, column->file, beginning, PEEK_BYTES, err);
	int status = count < 0 ? -1 : pd_npy_column_describe(column, beginning, count, member->bytes, err);

	free(beginning);
	if (status < 0)
		return -1;
	column->unpacked = malloc((size_t)member->bytes);
	if (!column->unpacked)
		return pd_error_failed(err, "out of memory: %s: its %" PRId64 " bytes do not fit", column->file,
				       member->bytes);
	return pd_zip_unpack(member, column->file, column->unpacked, err);
}

static int open_column(struct pd_npy_column *column, const struct pd_zip_member *member,
		       struct pd_dataset_range range, struct pd_error *err)
{
	if (member->deflated && unpack(column, member, err) < 0)
		return -1;
	if (!member->deflated &&
	    (pd_npy_column_describe(column, member->data, member->bytes, member->bytes, err) < 0 ||
	     pd_zip_unpack(member, column->file, NULL, err) < 0))
		return -1;
	return pd_npy_column_fill(column, column->unpacked ? column->unpacked : member->data, range, err);
}

static int open_columns(const struct path *path, const struct pd_model *model, bool test,
			struct pd_dataset *set, struct pd_error *err)
{
	struct pd_npy_set *npy = set->state;

	if (pd_zip_open(&npy->zip, path->file, err) < 0)
		return -1;
	for (int i = 0; i < model->input_count; i++) {
		const struct pd_zip_member *member = find_array(path, &npy->zip, model, i, test, err);
		struct pd_npy_column *column = &npy->columns[npy->count];

		if (!member)
			return -1;
		npy->count++;
		column->input = &model->inputs[i];
		column->file = pd_format("%s: %s", path->file, member->name);
		if (open_column(column, member, pd_dataset_range(model, i), err) < 0 ||
		    pd_npy_check_samples(set, err) < 0)
			return -1;
	}
	return 0;
}

static int open_set(const char *name, const struct pd_model *model, bool test,
		    const struct pd_dataset *train, struct pd_dataset *set_p, struct pd_error *err)
{
	struct pd_npy_set *npy = pd_zalloc(sizeof(*npy));
	struct path path = split(name, test);
	int status;

	(void)train;
	*set_p = (struct pd_dataset){ .format = &pd_data_npz, .state = npy };
	npy->columns = pd_calloc((size_t)model->input_count, sizeof(*npy->columns));
	status = open_columns(&path, model, test, set_p, err);
	free(path.file);
	return status;
}

const struct pd_data_format pd_data_npz = {
	.name = "NumPy archive", .files = "train.npz, or FILE.npz",
	.recognise = recognise, .open = open_set, .read = pd_npy_read, .file = pd_npy_file,
	.close = pd_npy_close,
};
