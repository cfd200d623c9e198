/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "document.h"
#include "tap.h"

#include <stdio.h>
#include <unistd.h>

static json_t *load_most(const char *text, size_t length, size_t most, struct pd_error *err)
{
	char name[] = "/tmp/pd-json.XXXXXX";
	int fd = mkstemp(name);
	ssize_t written = write(fd, text, length);
	json_t *value;

	close(fd);
	value = written == (ssize_t)length ? pd_json_load_most(name, most, err)
						  : NULL;
	unlink(name);
	return value;
}

static json_t *load(const char *text, size_t length, struct pd_error *err)
{
	return load_most(text, length, 0, err);
}

static void test_array_limit(void)
{
	static const struct {
		const char *text;
		bool overfull;
	} cases[] = {
		{ "{'a': [{}, {'b': [{}, {}]}], 'c': [{}, {}]}", false },
		{ "{'a': [{}], 'layers': [{}, {'b': [1, 2, 3, [{}]]}, {}]}", true },
		{ "{'a': [{'layers': [{}, {}, {}]}]}", true },
		{ "{'a': '[{},{},{}', 'b': ['[{', '\\'{{{[', {}, {}]}", false },
		{ "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[{}, {}, {}]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
		  false },
	};

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		struct pd_error err = { .text = "" };
		char *text = strdup(cases[i].text);
		json_t *value;

		for (char *c = text; *c; c++)
			*c = *c == '\'' ? '"' : *c;
		value = load_most(text, strlen(text), 2, &err);
		ok(cases[i].overfull ? !value && err.status == PD_EXIT_USAGE &&
		   strstr(err.text, ": layers: expected at most 2 of them, found more") : !!value,
		   "at most two objects in an array: %s", cases[i].text);
		json_decref(value);
		free(text);
	}
}

static void test_load(void)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{ "", "empty: expected a JSON object" }, { "{", "not JSON" }, { "{} {}", "end of "
									       "file expected" },
		{ "{\"a\": 1, \"a\": 2}", "duplicate object key" }, { "\xff\x01", "not JSON" },
		{ "{\"a\": 99999999999999999999}", "too big integer" }, { "{\"a\": 1e999}", "real "
									 "number" },
		{ "{\"a\": \"\\ud800\"}", "not JSON" },
		{ "{\"a\": \"x\\u0000y\"}", "not JSON" },
	};
	struct pd_error err = { 0 };
	json_t *value;
	char deep[8192];

	for (size_t i = 0; i < PD_COUNT(cases); i++) {
		err = (struct pd_error){ 0 };
		value = load(cases[i].text, strlen(cases[i].text), &err);
		if (!ok(!value && err.status == PD_EXIT_USAGE && strstr(err.text, cases[i].message),
			"refused: %s", cases[i].message))
			diag("%s", err.text);
		json_decref(value);
	}
	memset(deep, '[', sizeof(deep));
	ok(!load(deep, sizeof(deep), &err) && strstr(err.text, "depth"), "deep nesting is refused");
	ok(!load("{\"a\": 10\0, \"b\": 1}", 17, &err) && strstr(err.text, "not JSON"),
	   "a zero byte behind a number");
	ok(!pd_json_load("/nowhere/x.json", &err) &&
	   strstr(err.text, "/nowhere/x.json: cannot open: No such file"), "a missing file");
	ok(!pd_json_load("/", &err) && strstr(err.text, "/: is a folder, expected a document"), "a directory");
	test_array_limit();
	value = load("{\"b\": 1, \"a\": [1.5, true]}", 26, &err);
	ok(json_is_object(value), "a good one");
	json_decref(value);
}

static void test_getters(void)
{
	json_t *value = document_parse("{'i': 5, 'r': 1.5, 't': true, 's': 'text', 'e': '', "
				       "'c': 'a\\u0007b', 'a': [1, {'b': 'x'}]}", NULL);
	struct pd_place root = pd_place_root("doc", value), a, one, b;
	struct pd_error err = { 0 };
	const char *text = NULL;
	int64_t i = 0;
	double r = 0;
	bool t = false;

	ok(pd_json_get_int(&root, "i", 5, 5, &i, &err) == 0 && i == 5, "an integer at both ends");
	ok(pd_json_get_int(&root, "i", 6, 9, &i, &err) < 0, "below");
	is_str(err.text, "doc: i: expected a whole number from 6 to 9, found 5", "says so");
	ok(pd_json_get_int(&root, "i", 0, 4, &i, &err) < 0, "above");
	ok(pd_json_get_int(&root, "r", 0, 4, &i, &err) < 0, "a real is no integer");
	ok(pd_json_opt_int(&root, "z", 0, 4, &i, &err) == 0 && i == 5, "an absent one leaves it "
	   "alone");
	ok(pd_json_get_int(&root, "z", 0, 4, &i, &err) < 0 && strstr(err.text, "found nothing"),
	   "or is an error");
	ok(pd_json_opt_real(&root, "r", 0, 2, &r, &err) == 0 && r == 1.5, "a real");
	ok(pd_json_opt_real(&root, "i", 0, 9, &r, &err) == 0 && r == 5, "an integer is a real");
	ok(pd_json_opt_real(&root, "r", 2, 3, &r, &err) < 0, "out of range");
	ok(pd_json_opt_bool(&root, "t", &t, &err) == 0 && t, "a truth value");
	ok(pd_json_opt_bool(&root, "i", &t, &err) < 0, "a number is none");
	ok(pd_json_get_string(&root, "s", &text, &err) == 0 && strcmp(text, "text") == 0, "a "
	   "string");
	ok(pd_json_get_string(&root, "e", &text, &err) < 0, "not an empty one");
	ok(pd_json_get_string(&root, "c", &text, &err) < 0, "not one with control characters");
	a = pd_place_key(&root, "a");
	one = pd_place_index(&a, 1);
	b = pd_place_key(&one, "b");
	ok(pd_json_int(&b, 0, 1, &i, &err) < 0, "a string is no integer");
	is_str(err.text, "doc: a[1].b: expected a whole number from 0 to 1, found \"x\"", "with "
	       "its path");
	ok(pd_json_keys(&one, (const char *const[]){ "c", "d", NULL }, &err) < 0, "an unknown key");
	is_str(err.text, "doc: a[1]: unknown key \"b\"; expected one of c, d", "says which are "
	       "known");
	pd_error_input(&err, "a\nb\x1b[0m");
	is_str(err.text, "a?b?[0m", "an error is one line without control characters");
	json_decref(value);
}

static void test_write(void)
{
	json_t *value = json_object(), *again, *list = json_array();
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	json_error_t why;

	for (int i = 0; i < 60; i++)
		json_array_append_new(list, json_real(i % 2 ? i + 0.1 : i / 7.0));
	json_object_set_new(value, "z", json_string("\"quoted\"\n"));
	json_object_set_new(value, "a", list);
	json_object_set_new(value, "e", json_object());
	ok(pd_json_write(value, out, NULL) == 0, "written");
	fclose(out);
	again = json_loads(text, 0, &why);
	ok(json_equal(value, again), "and read back, every bit");
	ok(strstr(text, "[\n    0.0,\n    1.1,"), "with no more digits than that takes");
	ok(strstr(text, "\"z\"") < strstr(text, "\"a\""), "keys in the order in which they were "
	   "set");
	for (char *line = text, *end; *line; line = end + 1) {
		end = strchr(line, '\n');
		if (end - line > 120)
			ok(false, "a line of %td columns", end - line);
	}
	json_decref(value);
	json_decref(again);
	free(text);
}

int main(void)
{
	test_load();
	test_getters();
	test_write();
	return done_testing();
}
