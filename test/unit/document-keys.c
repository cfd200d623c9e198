/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document-keys KIND: prints the keys of a document, a line each: its path, such as device.in_step.forward or
 * layers.name, and "required" or "optional".  What another document is in it has a page of its own.  It is no test, but is run by tests (test/t8001-manual.sh).
 */
#include "document_rows.h"

#include <stdio.h>
#include <string.h>

static void print_rows(const char *path, const struct pd_key_row *rows)
{
	for (const struct pd_key_row *row = rows; row->key; row++) {
		char inner[256];

		printf("%s%s %s\n", path, row->key,
		       row->needed || row->type == PD_ROW_FORMAT ? "required" : "optional");
		snprintf(inner, sizeof(inner), "%s%s.", path, row->key);
		if (row->rows && row->rows->type != PD_ROW_FORMAT)
			print_rows(inner, row->rows);
	}
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(document_rows) / sizeof(*document_rows); i++)
		if (strcmp(argv[1], document_rows[i].name) == 0) {
			print_rows("", document_rows[i].rows);
			return 0;
		}
	fputs("document-keys: expected a kind of document\n", stderr);
	return 2;
}
