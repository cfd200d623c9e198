/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by rows: what is read, what is left out, what is refused and where; and the tables of all documents. */
#include "base/rows.h"

#include "document.h"
#include "document_rows.h"
#include "tap.h"

#include <math.h>

enum colour { NO_COLOUR, RED, BLUE };

struct thing {
	int64_t count, offset;
	int small;
	double part, factor;
	bool flag;
	char *name;
	enum colour colour;
	struct {
		int64_t bytes;
		bool on;
	} inner;
	int doubled;
};

static int read_doubled(const struct pd_place *place, void *member, struct pd_error *err)
{
	int64_t value;

	if (pd_json_int(place, 0, 100, &value, err) < 0)
		return -1;
	*(int *)member = (int)(2 * value);
	return 0;
}

static json_t *doubled_json(const void *member)
{
	return *(const int *)member ? json_integer(*(const int *)member / 2) : NULL;
}

#define IN(member) PD_MEMBER(struct thing, member)

static const char *const colours[] = { "red", "blue", NULL };
static const struct pd_key_row inner_rows[] = {
	{ "bytes", PD_ROW_INT, .needed = true, IN(inner.bytes), .least = 1 },
	{ "on", PD_ROW_BOOL, IN(inner.on), .otherwise = true },
	{ NULL }
};
static const struct pd_key_row rows[] = {
	PD_ROWS_HEADER("pd-thing", 2),
	{ "name", PD_ROW_TEXT, IN(name) },
	{ "count", PD_ROW_INT, .needed = true, IN(count), .most = 9 },
	{ "offset", PD_ROW_INT, IN(offset), .otherwise = -1 },
	{ "small", PD_ROW_INT, .always = true, IN(small), .least = -5, .most = 5 },
	{ "part", PD_ROW_REAL, IN(part), .high = 1 },
	{ "factor", PD_ROW_REAL, .positive = true, IN(factor), .otherwise_real = 1 },
	{ "flag", PD_ROW_BOOL, IN(flag) },
	{ "colour", PD_ROW_CHOICE, IN(colour), .least = RED, .names = colours },
	{ "inner", PD_ROW_OBJECT, .rows = inner_rows },
	{ "doubled", PD_ROW_BY, IN(doubled), .read = read_doubled, .write = doubled_json },
	{ NULL }
};

#define HEAD "{'format': 'pd-thing', 'version': 2, "

static int read_thing(const char *text, struct thing *out, struct pd_error *err)
{
	json_t *value = document_parse(text, err);
	struct pd_place root = pd_place_root("doc", value);
	int result;

	*out = (struct thing){ 0 };
	result = pd_rows_read(&root, rows, out, err);
	json_decref(value);
	return result;
}

static void writes(const struct thing *thing, const char *expected)
{
	json_t *json = pd_rows_json(rows, thing);
	char *text = json_dumps(json, JSON_COMPACT), *wanted = quoted(expected);

	is_str(text, wanted, "is written: %s", expected);
	free(text);
	free(wanted);
	json_decref(json);
}

static void test_read_and_write(void)
{
	const char *whole = "{'format':'pd-thing','version':2,'name':'x','count':3,'offset':4,'small':-5,'part':0.5,"
			    "'factor':2.5,'flag':true,'colour':'blue','inner':{'bytes':7,'on':false},'doubled':21}";
	struct pd_error err;
	struct thing thing;

	ok(read_thing(HEAD "'count': 0}", &thing, &err) == 0, "what is needed is enough");
	ok(thing.offset == -1 && thing.small == 0 && thing.factor == 1 && thing.colour == NO_COLOUR &&
	   thing.inner.on && !thing.name && thing.doubled == 0, "what is absent is as the rows say");
	writes(&thing, "{'format':'pd-thing','version':2,'count':0,'small':0}");
	ok(read_thing(whole, &thing, &err) == 0 && thing.count == 3 && thing.offset == 4 && thing.small == -5 &&
	   thing.part == 0.5 && thing.factor == 2.5 && thing.flag && thing.colour == BLUE &&
	   thing.inner.bytes == 7 && !thing.inner.on && thing.doubled == 42, "all is read");
	is_str(thing.name, "x", "a text, too");
	writes(&thing, whole);
	thing.part = INFINITY;
	thing.inner.on = true;
	writes(&thing, "{'format':'pd-thing','version':2,'name':'x','count':3,'offset':4,'small':-5,'factor':2.5,"
		       "'flag':true,'colour':'blue','inner':{'bytes':7},'doubled':21}");
	free(thing.name);
	ok(read_thing("{'format': 'pd-thing', 'version': 1, 'count': 9}", &thing, &err) == 0, "an earlier version");
}

static void test_refused(void)
{
	static const char *const cases[][2] = {
		{ "[]", "doc: expected a pd-thing document" },
		{ "{'format': 'pd-plan', 'version': 1}", "doc: format: expected \"pd-thing\", found \"pd-plan\"" },
		{ "{'format': 'pd-thing', 'version': 3, 'count': 1}", "doc: version: expected a whole number from 1 to 2" },
		{ HEAD "'count': 1, 'cuont': 2}", "doc: unknown key \"cuont\"; expected one of format, version, name, count" },
		{ HEAD "'small': 1}", "doc: count: expected a whole number from 0 to 9, found nothing" },
		{ HEAD "'count': 10}", "doc: count: expected a whole number from 0 to 9, found 10" },
		{ HEAD "'count': 1, 'small': -6}", "doc: small: expected a whole number from -5 to 5, found -6" },
		{ HEAD "'count': 1, 'small': 4294967296}", "doc: small: expected a whole number from -5 to 5" },
		{ HEAD "'count': 1, 'part': 1.5}", "doc: part: expected a number from 0 to 1, found 1.5" },
		{ HEAD "'count': 1, 'factor': 0}", "doc: factor: expected a number above 0, found 0" },
		{ HEAD "'count': 1, 'flag': 1}", "doc: flag: expected true or false, found 1" },
		{ HEAD "'count': 1, 'colour': 'green'}", "doc: colour: expected one of \"red\", \"blue\", found \"green\"" },
		{ HEAD "'count': 1, 'name': ''}", "doc: name: expected a non-empty string" },
		{ HEAD "'count': 1, 'inner': 3}", "doc: inner: expected an object, found 3" },
		{ HEAD "'count': 1, 'inner': {}}", "doc: inner.bytes: expected a whole number, at least 1, found nothing" },
		{ HEAD "'count': 1, 'inner': {'bytes': 1, 'off': 1}}", "doc: inner: unknown key \"off\"; expected one of bytes, on" },
		{ HEAD "'count': 1, 'doubled': 101}", "doc: doubled: expected a whole number from 0 to 100, found 101" },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "" };
		struct thing thing;

		ok(read_thing(cases[i][0], &thing, &err) < 0 && err.status == PD_EXIT_USAGE &&
		   strstr(err.text, cases[i][1]), "%s", cases[i][1]);
		if (!strstr(err.text, cases[i][1]))
			diag("%s", err.text);
		free(thing.name);
	}
}

static void test_bound(void)
{
	json_t *value = json_pack("{si}", "count", 1);
	struct pd_place root = pd_place_root("doc", value);
	struct pd_key_row count[] = { { "count", PD_ROW_INT, IN(count), .most = 9 }, { NULL } };
	struct pd_error err = { .text = "" };
	struct thing thing = { 0 };

	ok(pd_rows_read(&root, count, &thing, &err) == 0 && thing.count == 1, "within the table's bound");
	pd_rows_bound(count, "count", 0);
	ok(pd_rows_read(&root, count, &thing, &err) < 0, "a bound of 0 is one");
	is_str(err.text, "doc: count: expected 0, found 1", "and is said");
	json_decref(value);
}

static bool holds(const struct pd_key_row *row)
{
	switch (row->type) {
	case PD_ROW_INT:
		return row->size == sizeof(int64_t) || (row->size == sizeof(int32_t) && row->most > 0 &&
							row->most <= INT32_MAX && row->least >= INT32_MIN);
	case PD_ROW_BOOL:
		return row->size == sizeof(bool);
	case PD_ROW_CHOICE:
		return row->names && (row->size == sizeof(int) || row->size == sizeof(bool));
	case PD_ROW_REAL:
		return row->size == sizeof(double);
	case PD_ROW_TEXT:
	case PD_ROW_WORD:
		return row->size == sizeof(char *);
	case PD_ROW_OBJECT:
		return row->rows;
	case PD_ROW_FORMAT:
	case PD_ROW_BY:
		break;
	}
	return true;
}

/* Checks that every member can hold what its row lets in, and that no key is there twice. */
static int unsound(const char *where, const struct pd_key_row *table)
{
	int count = 0;

	for (const struct pd_key_row *row = table; row->key; row++) {
		bool twice = false;

		for (const struct pd_key_row *other = table; other < row; other++)
			twice |= strcmp(other->key, row->key) == 0;
		if (twice || !holds(row)) {
			diag("%s: %s", where, row->key);
			count++;
		}
		count += row->rows ? unsound(row->key, row->rows) : 0;
	}
	return count;
}

int main(void)
{
	test_read_and_write();
	test_refused();
	test_bound();
	for (size_t i = 0; i < PD_COUNT(document_rows); i++)
		ok(unsound(document_rows[i].name, document_rows[i].rows) == 0,
		   "members of %s can hold what their rows let in", document_rows[i].name);
	return done_testing();
}
