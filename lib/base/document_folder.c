/* SPDX-License-Identifier: Apache-2.0 */
#include "base/document_folder.h"

#include "base/mem.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder_path(const struct pd_document_folder *folder)
{
	return folder->said && *folder->said ? folder->said : folder->installed;
}

const char *pd_document_folder_missing(const struct pd_document_folder *folder)
{
	return access(folder_path(folder), X_OK) == 0 ? NULL : folder_path(folder);
}

bool pd_is_document_file(const char *what)
{
	return strchr(what, '/') || pd_name_ends(what, ".json");
}

char *pd_document_file(const struct pd_document_folder *folder, const char *name)
{
	char *file = pd_format("%s/%s.json", folder_path(folder), name), *usual;

	if (!folder->usual || access(file, F_OK) == 0)
		return file;
	usual = pd_format("%s/%s%s.json", folder_path(folder), name, folder->usual);
	if (access(usual, F_OK) != 0) {
		free(usual);
		return file;
	}
	free(file);
	return usual;
}

bool pd_document_known(const struct pd_document_folder *folder, const char *what)
{
	char *file = pd_document_file(folder, what);
	bool known = pd_is_document_file(what) || access(file, F_OK) == 0;

	free(file);
	return known;
}

static int is_document(const struct dirent *entry)
{
	return strlen(entry->d_name) > 5 && pd_name_ends(entry->d_name, ".json");
}

const char *pd_document_meant(const struct pd_document_folder *folder, const char *word,
			      char text[PD_MEANT_TEXT])
{
	struct dirent **entries = NULL;
	int count = scandir(folder_path(folder), &entries, is_document, alphasort);
	const char **names = pd_calloc((size_t)(count > 0 ? count : 0) + 1, sizeof(*names));

	for (int n = 0; n < count; n++) {
		entries[n]->d_name[strlen(entries[n]->d_name) - 5] = '\0';
		names[n] = entries[n]->d_name;
	}
	pd_names_say(names, word, text);
	free(names);
	for (int n = 0; n < count; n++)
		free(entries[n]);
	free(entries);
	return text;
}
