/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object of a document as a table: each row is a key, what it takes, and the member of a struct that holds it.
 * One table reads the object, writes it, and is held against the manual (test/unit/rows).
 */
#pragma once

#include "base/json.h"

#include <stddef.h>

enum pd_row_type {
	PD_ROW_FORMAT,                  /* "format", in the first row: .format, and versions up to .most */
	PD_ROW_INT,                     /* any integer type */
	PD_ROW_REAL,                    /* double; infinity, which JSON does not have, is written as 0 */
	PD_ROW_BOOL,
	PD_ROW_TEXT,                    /* char *, owned by the struct */
	PD_ROW_WORD,                    /* const char *, borrowed from the document; one that is not needed has any bytes */
	PD_ROW_CHOICE,                  /* an enum: .least + the index in .names */
	PD_ROW_OBJECT,                  /* a struct by .rows */
	PD_ROW_BY,                      /* what .read and .write say */
};

struct pd_key_row {
	const char *key;                /* NULL ends a table */
	enum pd_row_type type;
	bool needed;                    /* an object without the key is refused */
	bool always;                    /* it is written even if it has the value that it has where absent */
	bool positive;                  /* a REAL above 0 */
	bool bounded;                   /* .most holds even if it is 0: pd_rows_bound() */
	size_t offset, size;            /* of the member: PD_MEMBER() */
	int64_t least, most;            /* of an INT; most 0: any */
	double low, high;               /* of a REAL; high 0: any */
	int64_t otherwise;              /* an INT, a BOOL or a CHOICE where absent */
	double otherwise_real;
	const char *format;
	const char *const *names;       /* NULL-terminated */
	const struct pd_key_row *rows;      /* of an OBJECT, or of the objects in what a BY reads */
	/*
	 * Reads into the member; not called where the key is absent and not needed.  NULL: whoever reads the object
	 * does it, before or after pd_rows_read().
	 */
	int (*read)(const struct pd_place *place, void *member, struct pd_error *err);
	json_t *(*write)(const void *member);   /* NULL, or returns NULL: it is left out */
};

#define PD_MEMBER(in, member) .offset = offsetof(in, member), .size = sizeof(((in *)NULL)->member)
/* The first two rows of a document. */
#define PD_ROWS_HEADER(name, newest) \
	{ "format", PD_ROW_FORMAT, .always = true, .format = name, .most = newest }, \
	{ "version", PD_ROW_BY, .needed = true }
#define PD_ROWS_MOST 64                 /* of one table */

/*
 * Reads an object into a struct, which is zero before and is to be released also on failure.  Refuses unknown keys,
 * then what is wrong in the rows' order.
 */
int pd_rows_read(const struct pd_place *place, const struct pd_key_row *rows, void *to, struct pd_error *err);
/* Sets the most that a row of a copied table lets in, which may be 0. */
void pd_rows_bound(struct pd_key_row *rows, const char *key, int64_t most);
/* Adds the members to an object, in the rows' order. */
void pd_rows_write(const struct pd_key_row *rows, const void *from, json_t *object);
json_t *pd_rows_json(const struct pd_key_row *rows, const void *from);      /* a new reference */
