/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that are known by name: NAME.json of a folder that a variable names, or of the one that was installed. */
#pragma once

#include "base/names.h"

#include <stdbool.h>

struct pd_document_folder {
	const char *said, *installed;   /* said: what the variable says, or NULL */
	const char *usual;              /* where NAME has no file, NAME with this behind it may have one; or NULL */
};

/* Tells whether `what` is written like a file: it has a '/' or ends with ".json". */
bool pd_is_document_file(const char *what);
/* Returns the file of a name, whether it is there or not; free() it. */
char *pd_document_file(const struct pd_document_folder *folder, const char *name);
/* Returns the folder's path where there is no such folder, as before programs are installed; else NULL. */
const char *pd_document_folder_missing(const struct pd_document_folder *folder);
/* Tells whether `what` is written like a file, or there is one of that name. */
bool pd_document_known(const struct pd_document_folder *folder, const char *what);
/* Writes which name is like a word, for a message (base/names.h); returns text. */
const char *pd_document_meant(const struct pd_document_folder *folder, const char *word,
			      char text[PD_MEANT_TEXT]);
