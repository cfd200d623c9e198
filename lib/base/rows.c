/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rows.h"

#include "base/mem.h"

#include <math.h>

static void store_int(void *member, size_t size, int64_t value)
{
	if (size == sizeof(int64_t))
		*(int64_t *)member = value;
	else if (size == sizeof(int32_t))
		*(int32_t *)member = (int32_t)value;
	else
		*(bool *)member = value != 0;
}

static int64_t load_int(const void *member, size_t size)
{
	return size == sizeof(int64_t) ? *(const int64_t *)member :
	       size == sizeof(int32_t) ? *(const int32_t *)member : *(const bool *)member;
}

static double load_real(const void *member)
{
	double value = *(const double *)member;

	return isinf(value) ? 0 : value;
}

/* Sets what members are where the object is absent. */
static void set_absent(const struct pd_key_row *row, void *member)
{
	if (row->type == PD_ROW_OBJECT)
		for (const struct pd_key_row *inner = row->rows; inner->key; inner++)
			set_absent(inner, (char *)member + inner->offset);
	else if (row->type == PD_ROW_REAL)
		*(double *)member = row->otherwise_real;
	else if (row->type == PD_ROW_INT || row->type == PD_ROW_BOOL || row->type == PD_ROW_CHOICE)
		store_int(member, row->size, row->otherwise);
}

static int read_real(const struct pd_place *place, const struct pd_key_row *row, double *out_p, struct pd_error *err)
{
	if (row->positive && !place->value)
		return pd_place_error(place->up, err, "expected a \"%s\"", row->key);
	if (row->positive && !(json_number_value(place->value) > 0))
		return pd_place_expected(place, err, "a number above 0");
	return pd_json_real(place, row->low, row->high != 0 ? row->high : HUGE_VAL, out_p, err);
}

static int read_text(const struct pd_place *place, char **out_p, struct pd_error *err)
{
	const char *text;

	if (pd_json_string(place, &text, err) < 0)
		return -1;
	*out_p = pd_strdup(text);
	return 0;
}

static int read_row(const struct pd_place *place, const struct pd_key_row *row, void *member, struct pd_error *err)
{
	int64_t whole = 0;
	int choice = 0, result = 0;
	bool flag = false;

	switch (row->type) {
	case PD_ROW_FORMAT:
		return 0;
	case PD_ROW_INT:
		result = pd_json_int(place, row->least, row->most || row->bounded ? row->most : INT64_MAX, &whole, err);
		break;
	case PD_ROW_REAL:
		return read_real(place, row, member, err);
	case PD_ROW_BOOL:
		result = pd_json_bool(place, &flag, err);
		whole = flag;
		break;
	case PD_ROW_TEXT:
		return read_text(place, member, err);
	case PD_ROW_WORD:
		if (row->needed)
			return pd_json_string(place, member, err);
		*(const char **)member = json_string_value(place->value);
		return 0;
	case PD_ROW_CHOICE:
		result = pd_json_get_choice(place->up, row->key, row->names, &choice, err);
		whole = row->least + choice;
		break;
	case PD_ROW_OBJECT:
		return pd_rows_read(place, row->rows, member, err);
	case PD_ROW_BY:
		return row->read ? row->read(place, member, err) : 0;
	}
	if (result == 0)
		store_int(member, row->size, whole);
	return result;
}

/* Refuses unknown keys; the keys that it names are those of the rows. */
static int check_keys(const struct pd_place *place, const struct pd_key_row *rows, struct pd_error *err)
{
	const char *known[PD_ROWS_MOST + 1] = { NULL };
	size_t count = 0;

	for (; rows[count].key; count++)
		known[count < PD_ROWS_MOST ? count : PD_ROWS_MOST] = rows[count].key;
	if (count > PD_ROWS_MOST)
		pd_bug("a table of %zu rows", count);
	return pd_json_keys(place, known, err);
}

int pd_rows_read(const struct pd_place *place, const struct pd_key_row *rows, void *to, struct pd_error *err)
{
	int64_t version;

	if (rows->type == PD_ROW_FORMAT && pd_json_header_of(place, rows->format, rows->most, &version, err) < 0)
		return -1;
	if (check_keys(place, rows, err) < 0)
		return -1;
	for (const struct pd_key_row *row = rows; row->key; row++) {
		const struct pd_place at = pd_place_key(place, row->key);
		void *member = (char *)to + row->offset;

		if (!row->needed && !at.value)
			set_absent(row, member);
		else if (read_row(&at, row, member, err) < 0)
			return -1;
	}
	return 0;
}

void pd_rows_bound(struct pd_key_row *rows, const char *key, int64_t most)
{
	while (strcmp(rows->key, key) != 0)
		rows++;
	rows->most = most;
	rows->bounded = true;
}

/* Tells whether a member has the value that it has where absent. */
static bool is_absent(const struct pd_key_row *row, const void *member)
{
	bool absent = true;

	if (row->type == PD_ROW_OBJECT)
		for (const struct pd_key_row *inner = row->rows; absent && inner->key; inner++)
			absent = is_absent(inner, (const char *)member + inner->offset);
	else if (row->type == PD_ROW_REAL)
		absent = load_real(member) == row->otherwise_real;
	else if (row->type == PD_ROW_INT || row->type == PD_ROW_BOOL || row->type == PD_ROW_CHOICE)
		absent = load_int(member, row->size) == row->otherwise;
	else if (row->type == PD_ROW_TEXT || row->type == PD_ROW_WORD)
		absent = !*(const char *const *)member;
	return absent;
}

static json_t *row_json(const struct pd_key_row *row, const void *member)
{
	switch (row->type) {
	case PD_ROW_FORMAT:
		return json_string(row->format);
	case PD_ROW_INT:
		return json_integer(load_int(member, row->size));
	case PD_ROW_REAL:
		return json_real(load_real(member));
	case PD_ROW_BOOL:
		return json_boolean(load_int(member, row->size));
	case PD_ROW_TEXT:
		return pd_json_shown(*(const char *const *)member);
	case PD_ROW_WORD:
		return pd_json_bytes(*(const char *const *)member);
	case PD_ROW_CHOICE:
		return json_string(row->names[load_int(member, row->size) - row->least]);
	case PD_ROW_OBJECT:
		return pd_rows_json(row->rows, member);
	case PD_ROW_BY:
		return row->write ? row->write(member) : NULL;
	}
	return NULL;
}

void pd_rows_write(const struct pd_key_row *rows, const void *from, json_t *object)
{
	for (const struct pd_key_row *row = rows; row->key; row++) {
		const void *member = (const char *)from + row->offset;
		bool shown = row->needed || row->always || row->type == PD_ROW_BY || !is_absent(row, member);
		json_t *value = shown ? row_json(row, member) : NULL;

		if (value || (shown && row->type != PD_ROW_BY))
			pd_json_set(object, row->key, value);
		if (row->type == PD_ROW_FORMAT)
			pd_json_set(object, "version", json_integer(row->most));
	}
}

json_t *pd_rows_json(const struct pd_key_row *rows, const void *from)
{
	json_t *object = json_object();

	pd_rows_write(rows, from, object);
	return object;
}
