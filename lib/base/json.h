/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing JSON documents (jansson), with messages that say where:
 *
 *     vgg.json: layers[3].kernel[0]: expected an integer from 1 to 65535, found "3"
 *
 * A reader walks down with places; a place knows its document and the way to it.
 * All getters return 0, or -1 with the error set.
 */
#pragma once

#include "base/names.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Times and sizes in documents stay below 2^53, which every JSON reader represents exactly. */
#define PD_MAX_TIME_NS ((INT64_C(1) << 53) - 1)
#define PD_MAX_BYTES ((INT64_C(1) << 53) - 1)

struct pd_place {
	const char *document;           /* file name, for messages */
	const struct pd_place *up;
	const char *key;                /* NULL for an element of an array */
	size_t index;
	json_t *value;                  /* borrowed */
};

/* How much of a text has been read: whole lines, and characters of the one behind them.  It begins as zeros. */
struct pd_json_at {
	int lines, columns;
};

/* Counts a character. */
void pd_json_pass(struct pd_json_at *at, int c);
/*
 * Reads a whole document from a file, or from standard input if the name is NULL or "-".  Duplicate
 * keys, trailing text, and values that take more memory than any document needs (base/json_limit.h) are
 * errors.  Returns a new reference.
 */
json_t *pd_json_load(const char *file, struct pd_error *err);
/* Like pd_json_load, but stops at an array with more than `objects` objects, and fails. */
json_t *pd_json_load_most(const char *file, size_t objects, struct pd_error *err);
/*
 * Reads the next of several documents, one behind the other, from an open one (pd_document_open) that is called
 * `name`, as pd_json_load_most does.  at says where in the text the reader is, for messages, and moves with it.
 * Sets *last_p where only white space follows.
 */
json_t *pd_json_load_next(FILE *in, const char *name, size_t objects, struct pd_json_at *at, bool *last_p,
			  struct pd_error *err);
/* Reads one value from memory, with nothing behind it; messages call it `name`. */
json_t *pd_json_load_text(const char *text, size_t bytes, const char *name, struct pd_error *err);
/* Reads from an open stream called `name`; with `more`, other text may follow the value. */
json_t *pd_json_load_stream(FILE *in, const char *name, bool more, struct pd_error *err);
/* Returns the name that messages use for the file. */
const char *pd_document_name(const char *file);
/* Opens the document; pd_document_close() leaves standard input open. */
FILE *pd_document_open(const char *file, struct pd_error *err);
void pd_document_close(FILE *in);

/* The root of a document. */
struct pd_place pd_place_root(const char *document, json_t *value);
/* A member of an object (its value is NULL if absent), or an element of an array. */
struct pd_place pd_place_key(const struct pd_place *up, const char *key);
struct pd_place pd_place_index(const struct pd_place *up, size_t index);

/* Fills err with "DOCUMENT: PATH: MESSAGE" and returns -1. */
int pd_place_error(const struct pd_place *place, struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Like pd_place_error, with the message "expected EXPECTED, found DESCRIPTION OF THE VALUE". */
int pd_place_expected(const struct pd_place *place, struct pd_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Checks that this is an object with "format": format and "version": 1. */
int pd_json_header(const struct pd_place *root, const char *format, struct pd_error *err);
/* Checks the format, and that the version is at most `newest`; returns the version. */
int pd_json_header_of(const struct pd_place *root, const char *format, int64_t newest,
		      int64_t *version_p, struct pd_error *err);
/* Refuses a document of another "format", and says for which program it is. */
int pd_json_other_format(const struct pd_place *name, const char *expected, struct pd_error *err);
/* Checks that this is an object whose keys are all in `known`, a NULL-terminated list. */
int pd_json_keys(const struct pd_place *object, const char *const *known, struct pd_error *err);
/* Writes which key of an object is like a word, for a message (base/names.h). */
const char *pd_json_keys_say(const json_t *object, const char *word, char text[PD_MEANT_TEXT]);
/* Checks that this is an array, and sets its length. */
int pd_json_array(const struct pd_place *place, size_t *count_p, struct pd_error *err);
/* Checks that this is an array of 1 to `most` elements, which messages call `things`. */
int pd_json_some(const struct pd_place *place, int most, const char *things, size_t *count_p,
		 struct pd_error *err);

int pd_json_int(const struct pd_place *place, int64_t min, int64_t max, int64_t *out_p,
		struct pd_error *err);
int pd_json_real(const struct pd_place *place, double min, double max, double *out_p,
		 struct pd_error *err);
int pd_json_bool(const struct pd_place *place, bool *out_p, struct pd_error *err);
/* Reads a non-empty string without control characters, borrowed from the document. */
int pd_json_string(const struct pd_place *place, const char **out_p, struct pd_error *err);

/* These read a member of an object; those called opt leave *out_p alone if it is absent. */
int pd_json_get_int(const struct pd_place *object, const char *key, int64_t min, int64_t max,
		    int64_t *out_p, struct pd_error *err);
int pd_json_opt_int(const struct pd_place *object, const char *key, int64_t min, int64_t max,
		    int64_t *out_p, struct pd_error *err);
int pd_json_opt_real(const struct pd_place *object, const char *key, double min, double max,
		     double *out_p, struct pd_error *err);
int pd_json_opt_bool(const struct pd_place *object, const char *key, bool *out_p,
		     struct pd_error *err);
int pd_json_get_string(const struct pd_place *object, const char *key, const char **out_p,
		       struct pd_error *err);
int pd_json_opt_string(const struct pd_place *object, const char *key, const char **out_p,
		       struct pd_error *err);
/* Reads one of a NULL-terminated list of names, and sets its index. */
int pd_json_get_choice(const struct pd_place *object, const char *key, const char *const *names,
		       int *out_p, struct pd_error *err);

/* These read a member of an object that a program wrote: 0, NULL or false if there is none of the type. */
static inline int64_t pd_member_int(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static inline const char *pd_member_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static inline bool pd_member_true(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

/*
 * Set a member of an object, and add an element to an array, whose reference they take.  A value that
 * cannot be made (NULL: a number that JSON does not have, text that is not UTF-8) would be left out, and
 * nobody would miss it: that ends the program.
 */
void pd_json_set(json_t *object, const char *key, json_t *value);
void pd_json_add(json_t *array, json_t *value);
/* A string of any bytes, such as a path: for messages (run/launch/message.h), since documents are UTF-8. */
json_t *pd_json_bytes(const char *bytes);
/* A string for people: each byte that is not part of a character becomes U+FFFD. */
json_t *pd_json_shown(const char *bytes);

/* Returns how many digits, 15 to 17, every real number in a value needs to be read back as it is. */
int pd_json_digits(const json_t *value);

/*
 * Writes a document for people and programs.  An object that fits into 120 columns is one line;
 * others are opened up.  Keys keep the order in which they were set.  The text ends with a
 * newline.  The value is not consumed.
 */
int pd_json_write(json_t *value, FILE *out, struct pd_error *err);
