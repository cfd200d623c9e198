/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malform FILE DIRECTORY EVERY [WHAT]: writes documents into DIRECTORY that are wrong in one place each,
 * made from the good one in FILE (for JSON Lines, from each of its lines).  It writes every EVERYth of the
 * documents it can make and all that are wrong as text; with WHAT only those that are wrong in this way.
 * test/t1001-malformed.sh tests that they are refused.
 */
#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *directory, *only, *before = "", *after = "";
static int every, thought_of, written;

static bool wanted(const char *what)
{
	return !only || strcmp(what, only) == 0;
}

static void write_bytes(const char *what, const char *bytes, size_t length)
{
	char *name;
	FILE *out;

	if (!wanted(what))
		return;
	name = pd_format("%s/%04d-%s", directory, written++, what);
	out = fopen(name, "w");
	if (!out || fwrite(bytes, 1, length, out) != length || fclose(out) != 0)
		pd_bug("%s: cannot write", name);
	free(name);
}

/*
 * Writes the document.  A string that begins with RAW stands for its own text without the quotes, which
 * the JSON library would not write.
 */
#define RAW "@RAW@"

static void emit(const char *what, json_t *root)
{
	char *text, *from, *to, *whole;
	bool raw = false;

	if (thought_of++ % every != 0 || !wanted(what))
		return;
	text = json_dumps(root, JSON_COMPACT);
	for (from = to = text; *from; from++) {
		if (strncmp(from, "\"" RAW, strlen(RAW) + 1) == 0) {
			from += strlen(RAW);
			raw = true;
		} else if (raw && *from == '"') {
			raw = false;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
	whole = pd_format("%s%s\n%s", before, text, after);
	write_bytes(what, whole, strlen(whole));
	free(whole);
	free(text);
}

/* One value of the document, and its place. */
struct spot {
	json_t *root, *parent, *value;
	const char *key;                /* the value's key, or, for an array's element, the array's */
	size_t index;
};

static void put(const struct spot *spot, json_t *value)
{
	if (json_is_object(spot->parent))
		json_object_set_new(spot->parent, spot->key, value);
	else
		json_array_set_new(spot->parent, spot->index, value);
}

/* Writes the document with another value at the spot; frees the value. */
static void with(const char *what, const struct spot *spot, json_t *value)
{
	json_t *good = json_incref(spot->value);

	put(spot, value);
	emit(what, spot->root);
	put(spot, good);
}

static bool among(const char *key, const char *const *keys)
{
	while (*keys && strcmp(*keys, key) != 0)
		keys++;
	return *keys;
}

/* Keys that a document may lack. */
static const char *const optional[] = {
	"name", "inputs", "model", "device", "dtype", "link", "latency_ns", "step_ns", "threads",
	"memory_bytes", "stash_bytes", "workspace_bytes", "update_ns", "update_apart_ns", "spread",
	"operation_ns", "workers", "sum_bytes_per_s", "round_bytes_per_s", "mixed_sum_bytes_per_s",
	"stride", "padding", "dilation", "groups", "bias", "eps", "momentum",
	"microbatches", "predicted", "warmup",
	"recompute", "weight_version", "seq", "bytes", "evaluate", "group", "duration_ns",
	"source", "prefix", "names", "weight", "transpose", "start", "normalize",
	"memory_delta_bytes", "state_bytes", "in_place", "in_turns", "passes_gradient", "weight_version_advance", "seq_advance",
	NULL
};
/* Keys whose string must be one of a list; "kind" is such a key in some places only. */
static const char *const listed[] = { "format", "dtype", "schedule", "weights", "op", "inputs",
				      "layers", NULL };
static const char *const not_empty[] = { "layers", "stages", "levels", "ranks", "kernel", NULL };

static void numbers(const struct spot *spot)
{
	static const char *const raw[] = { RAW "99999999999999999999", RAW "1e999", RAW "NaN",
					   RAW "Infinity", RAW "0x10", RAW "+1", RAW "01", RAW ".5",
					   RAW "-", RAW "1e" };

	if (strcmp(spot->key, "gap") != 0 && strcmp(spot->key, "memory_delta_bytes") != 0)
		with("negative", spot, json_integer(-1));
	if (json_is_integer(spot->value)) {
		with("most-negative", spot, json_integer(INT64_MIN));
		with("fraction", spot, json_real(1.5));
		if (strcmp(spot->key, "version") == 0)
			with("version", spot, json_integer(2));
	}
	with("number-text", spot, json_string("1"));
	for (size_t i = 0; i < PD_COUNT(raw); i++)
		with("number", spot, json_string(raw[i]));
}

static void strings(const struct spot *spot)
{
	const char *text = json_string_value(spot->value);

	with("empty-string", spot, json_string(""));
	with("control", spot, json_string("a\tb"));
	with("not-utf8", spot, json_string(RAW "\\ud800"));
	if (among(spot->key, listed))
		with("unheard-of", spot, json_string("zzz"));
	if (strcmp(spot->key, "kind") == 0 && strcmp(text, "cpu") != 0)
		with("kind", spot, json_string("conv4d"));
	if (strcmp(spot->key, "name") == 0 && json_object_get(spot->parent, "inputs") &&
	    !json_object_get(spot->parent, "format"))
		with("duplicate-name", spot, json_string("label"));
}

static void visit(const struct spot *spot);

static void objects(const struct spot *spot)
{
	json_t *member;
	const char *key;
	void *next;

	json_object_set_new(spot->value, "zzz", json_integer(1));
	emit("unknown-key", spot->root);
	json_object_del(spot->value, "zzz");
	json_object_foreach_safe(spot->value, next, key, member) {
		struct spot inside = { spot->root, spot->value, member, key, 0 };

		visit(&inside);
	}
}

/* Deletes required members one by one; that the order of keys changes does not matter. */
static void deletions(const struct spot *spot)
{
	json_t *keys = json_array(), *key;
	size_t i;
	const char *name;
	json_t *member;

	json_object_foreach(spot->value, name, member)
		if (!among(name, optional))
			json_array_append_new(keys, json_string(name));
	json_array_foreach(keys, i, key) {
		name = json_string_value(key);
		if (strcmp(name, "peer") == 0 && !strstr(json_string_value(
				json_object_get(spot->value, "op")), "_"))
			continue;
		member = json_incref(json_object_get(spot->value, name));
		json_object_del(spot->value, name);
		emit("missing-key", spot->root);
		json_object_set_new(spot->value, name, member);
	}
	json_decref(keys);
}

static void arrays(const struct spot *spot)
{
	if (among(spot->key, not_empty))
		with("empty-array", spot, json_array());
	for (size_t i = 0; i < json_array_size(spot->value); i++) {
		struct spot inside = { spot->root, spot->value, json_array_get(spot->value, i),
				       spot->key, i };

		visit(&inside);
	}
}

/* Tells whether it is what the outside calls a parameter; null: nothing. */
static bool is_outside_name(const struct spot *spot)
{
	json_t *layers = json_object_get(spot->root, "layers");

	for (size_t l = 0; l < json_array_size(layers); l++)
		if (json_object_get(json_array_get(layers, l), "names") == spot->parent)
			return true;
	return false;
}

static void visit(const struct spot *spot)
{
	if (spot->parent) {
		if (!is_outside_name(spot))
			with("null", spot, json_null());
		if (!json_is_object(spot->value))
			with("object", spot, json_object());
		if (!json_is_array(spot->value))
			with("array", spot, json_array());
		if (!json_is_boolean(spot->value))
			with("true", spot, json_true());
		/* A number in the place of a pair is no mistake. */
		if (!json_is_number(spot->value) &&
		    !json_is_integer(json_array_get(spot->value, 0)))
			with("number-instead", spot, json_integer(1));
	}
	if (json_is_object(spot->value)) {
		objects(spot);
		if (!spot->key || strcmp(spot->key, "predicted") != 0)
			if (!spot->key || strcmp(spot->key, "data_parallel") != 0)
				deletions(spot);
	} else if (json_is_array(spot->value)) {
		arrays(spot);
	} else if (json_is_string(spot->value)) {
		strings(spot);
	} else if (json_is_number(spot->value)) {
		numbers(spot);
	}
}

/* Writes the document with a cycle: the first layer reads the output of the last one. */
static void cycle(json_t *root, json_t *owner)
{
	json_t *layers = json_object_get(owner, "layers");
	json_t *first = json_array_get(layers, 0);
	json_t *last = json_array_get(layers, json_array_size(layers) - 1);
	json_t *inputs = json_object_get(first, "inputs"), *good;

	if (!inputs || json_array_size(inputs) == 0)
		return;
	good = json_incref(json_array_get(inputs, 0));
	json_array_set(inputs, 0, json_object_get(last, "name"));
	thought_of = 0;
	emit("cycle", root);
	json_array_set_new(inputs, 0, good);
}

static json_t *parse(const char *text, size_t length)
{
	json_error_t why;
	json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);

	if (!root)
		pd_bug("not JSON: %s", why.text);
	return root;
}

/* Writes documents that are wrong as text, whatever they mean; `text` is the good one. */
static void as_text(char *text, size_t length)
{
	enum { DEEP = 100000 };
	char *bytes = pd_zalloc(6 * DEEP), *copy;

	write_bytes("empty", "", 0);
	write_bytes("white", " \n\t ", 4);
	write_bytes("word", "pipeline\n", 9);
	write_bytes("number", "42\n", 3);
	write_bytes("array", "[]\n", 3);
	write_bytes("object", "{}\n", 3);
	write_bytes("null", "null\n", 5);
	write_bytes("mark", "\xef\xbb\xbf{}\n", 6);
	for (int i = 0; i < 5; i++) {
		for (uint32_t b = 0; b < 4096; b += 4)
			memcpy(bytes + b, pd_random(1, 0, (uint32_t)i, b).v, 4);
		write_bytes("junk", bytes, 4096);
	}
	memset(bytes, 0, 4096);
	write_bytes("zeros", bytes, 4096);
	memset(bytes, '[', DEEP);
	write_bytes("deep-array", bytes, DEEP);
	for (int i = 0; i < DEEP; i++)
		memcpy(bytes + 5 * i, "{\"a\":", 5);
	write_bytes("deep-object", bytes, 5 * DEEP);
	for (int i = 0; i < 20; i++) {
		size_t cut = length * (size_t)i / 20 + (i == 0);

		while (strchr("}\n", text[cut - 1]))    /* JSON Lines may end with any line */
			cut--;
		write_bytes("truncated", text, cut);
	}
	copy = pd_format("%s%s", text, text);
	write_bytes("twice", copy, strlen(copy));
	free(copy);
	copy = pd_format("%s}", text);
	write_bytes("more", copy, strlen(copy));
	free(copy);
	for (int i = 0; i < 10; i++) {          /* a byte that is in no text */
		size_t at = length * (size_t)i / 10;
		char good = text[at];

		text[at] = i % 2 ? '\0' : '\xff';
		write_bytes("bad-byte", text, length);
		text[at] = good;
	}
	free(bytes);
}

/* Writes the document with the first key of each object twice. */
static void duplicate_keys(const char *text)
{
	int n = 0;

	for (const char *at = text; (at = strstr(at, "{\"")); at++, n++) {
		const char *end = strchr(at + 2, '"');
		char *copy;

		if (n % every != 0)
			continue;
		copy = pd_format("%.*s{%.*s\":1,%s", (int)(at - text), text, (int)(end - at - 1),
				 at + 1,
				 at + 1);
		write_bytes("duplicate-key", copy, strlen(copy));
		free(copy);
	}
}

static void one_object(const char *text, size_t length)
{
	json_t *root = parse(text, length), *plan, *profile, *owner;
	struct spot spot = { .root = root, .value = root };

	visit(&spot);
	plan = json_object_get(root, "plan") ? json_object_get(root, "plan") : root;
	profile = json_object_get(plan, "profile") ? json_object_get(plan, "profile") : plan;
	owner = json_object_get(profile, "model") ? json_object_get(profile, "model") : profile;
	cycle(root, owner);
	json_decref(root);
}

int main(int argc, char **argv)
{
	static char text[1 << 16];
	FILE *in = argc == 4 || argc == 5 ? fopen(argv[1], "r") : NULL;
	size_t length = in ? fread(text, 1, sizeof(text) - 1, in) : 0;

	if (length == 0)
		pd_bug("malform FILE DIRECTORY EVERY [WHAT]");
	fclose(in);
	directory = argv[2];
	every = atoi(argv[3]);
	only = argv[4];         /* NULL without WHAT */
	as_text(text, length);
	duplicate_keys(text);
	if (!strstr(argv[1], ".jsonl")) {
		one_object(text, length);
		return 0;
	}
	for (char *line = text, *end; *line; line = end + 1) {
		char *head = pd_format("%.*s", (int)(line - text), text);

		end = strchr(line, '\n');
		before = head;
		after = end + 1;
		/* The header is a plan, of which there are enough documents. */
		every = line == text ? 10 * atoi(argv[3]) : atoi(argv[3]);
		one_object(line, (size_t)(end - line));
		free(head);
	}
	return 0;
}
