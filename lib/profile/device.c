/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/device.h"

#include "base/json.h"
#include "base/mem.h"
#include "profile/folder.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PER_S 1e18
#define UPDATE_BYTES 20         /* of SGD with momentum: the parameter, its gradient and its moment, in f32 */

/* Reads a positive number; absent, *out_p stays, unless it is required. */
static int read_rate(const struct pd_place *object, const char *key, bool required, double most, double *out_p,
		     struct pd_error *err)
{
	struct pd_place at = pd_place_key(object, key);

	if (required && !at.value)
		return pd_place_error(object, err, "expected a \"%s\"", key);
	if (at.value && !(json_number_value(at.value) > 0))
		return pd_place_expected(&at, err, "a number above 0");
	return pd_json_opt_real(object, key, 0, most, out_p, err);
}

static int read_products(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	static const char *const known[] = { "f32", "tf32", "bf16", "f16", NULL };
	struct pd_place at = pd_place_key(root, "products_per_s");

	if (pd_json_keys(&at, known, err) < 0 ||
	    read_rate(&at, "f32", true, MOST_PER_S, &sheet->products_per_s[PD_F32], err) < 0 ||
	    read_rate(&at, "tf32", false, MOST_PER_S, &sheet->tf32_per_s, err) < 0 ||
	    read_rate(&at, "bf16", false, MOST_PER_S, &sheet->products_per_s[PD_BF16], err) < 0)
		return -1;
	return read_rate(&at, "f16", false, MOST_PER_S, &sheet->products_per_s[PD_F16], err);
}

static int read_tiles(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	struct pd_place tiles = pd_place_key(root, "tiles");
	size_t count = 0, sides;

	if (tiles.value && pd_json_array(&tiles, &count, err) < 0)
		return -1;
	if (count > PD_TILES)
		return pd_place_expected(&tiles, err, "at most %d tiles", PD_TILES);
	for (size_t t = 0; t < count; t++) {
		struct pd_place tile = pd_place_index(&tiles, t);

		if (pd_json_array(&tile, &sides, err) < 0)
			return -1;
		for (size_t i = 0; i < 2; i++) {
			struct pd_place side = pd_place_index(&tile, i);
			int64_t value;

			if (sides != 2)
				return pd_place_expected(&tile, err, "two sides, rows and columns");
			if (pd_json_int(&side, 1, 1 << 16, &value, err) < 0)
				return -1;
			sheet->tiles[t][i] = (int)value;
		}
	}
	sheet->tile_count = (int)count;
	if ((count > 0) != (sheet->units > 0))
		return pd_place_error(root, err, "expected both of \"units\" and \"tiles\", or neither");
	return 0;
}

static int read_efficiency(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	static const char *const known[] = { "products", "memory", "attention", "winograd", NULL };
	struct pd_place at = pd_place_key(root, "efficiency");

	if (pd_json_keys(&at, known, err) < 0 ||
	    read_rate(&at, "products", true, 1, &sheet->efficiency.products, err) < 0 ||
	    read_rate(&at, "memory", true, 2, &sheet->efficiency.memory, err) < 0)
		return -1;
	sheet->efficiency.attention = sheet->efficiency.products;
	return read_rate(&at, "attention", false, 1, &sheet->efficiency.attention, err) < 0 ||
	       read_rate(&at, "winograd", false, 1, &sheet->efficiency.winograd, err) < 0 ? -1 : 0;
}

static int read_link(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	static const char *const known[] = { "bandwidth_bytes_per_s", "latency_ns", "efficiency", NULL };
	struct pd_place at = pd_place_key(root, "link");

	sheet->link.efficiency = 1;
	if (!at.value)
		return 0;
	if (pd_json_keys(&at, known, err) < 0 ||
	    pd_json_get_int(&at, "bandwidth_bytes_per_s", 1, INT64_MAX, &sheet->link.bandwidth_bytes_per_s, err) < 0 ||
	    pd_json_opt_int(&at, "latency_ns", 0, PD_MAX_TIME_NS, &sheet->link.latency_ns, err) < 0)
		return -1;
	return read_rate(&at, "efficiency", false, 1, &sheet->link.efficiency, err);
}

static int read_kernels(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	static const char *const how[] = { "fused", "unfused", NULL };
	int attention = 0, dropout = 1;

	if ((pd_place_key(root, "attention").value && pd_json_get_choice(root, "attention", how, &attention, err) < 0) ||
	    (pd_place_key(root, "dropout").value && pd_json_get_choice(root, "dropout", how, &dropout, err) < 0))
		return -1;
	sheet->unfused = attention == 1;
	sheet->drops_behind = dropout == 0;
	sheet->update_bytes = UPDATE_BYTES;
	return pd_json_opt_real(root, "update_bytes", 0, 1e3, &sheet->update_bytes, err) < 0 ||
	       pd_json_opt_real(root, "overlap_cost", 0, 1, &sheet->overlap_cost, err) < 0 ? -1 : 0;
}

static int read_sheet(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	static const char *const known[] = { "format", "version", "name", "kind", "memory_bytes", "products_per_s",
					     "bandwidth_bytes_per_s", "kernel_ns", "units", "tiles", "fill",
					     "efficiency", "link", "overlap_cost", "attention", "dropout", "update_bytes", "spread",
					     "fitted_to", "sources", NULL };
	const char *name, *kind, *ignored;

	if (pd_json_header(root, "pd-device", err) < 0 || pd_json_keys(root, known, err) < 0 ||
	    pd_json_get_string(root, "name", &name, err) < 0 || pd_json_get_string(root, "kind", &kind, err) < 0 ||
	    pd_json_opt_string(root, "fitted_to", &ignored, err) < 0)
		return -1;
	sheet->name = pd_strdup(name);
	sheet->kind = pd_strdup(kind);
	if (pd_json_get_int(root, "memory_bytes", 1, INT64_MAX, &sheet->memory_bytes, err) < 0 ||
	    read_products(root, sheet, err) < 0 ||
	    read_rate(root, "bandwidth_bytes_per_s", true, MOST_PER_S, &sheet->bandwidth_bytes_per_s, err) < 0 ||
	    pd_json_get_int(root, "kernel_ns", 0, 1000000000, &sheet->kernel_ns, err) < 0 ||
	    pd_json_opt_int(root, "units", 1, 1 << 20, &sheet->units, err) < 0 ||
	    pd_json_opt_real(root, "fill", 0, 1 << 20, &sheet->fill, err) < 0 ||
	    pd_json_opt_real(root, "spread", 0, 10, &sheet->spread, err) < 0 ||
	    read_link(root, sheet, err) < 0 || read_kernels(root, sheet, err) < 0)
		return -1;
	return read_tiles(root, sheet, err) < 0 ? -1 : read_efficiency(root, sheet, err);
}

static const char *folder_of(void)
{
	const char *folder = getenv("PD_DEVICES");

	return folder && *folder ? folder : PD_DEVICES_FOLDER;
}

static char *file_of(const char *name)
{
	return pd_format("%s/%s.json", folder_of(), name);
}

static bool is_file(const char *what)
{
	size_t length = strlen(what);

	return strchr(what, '/') || (length > 5 && strcmp(what + length - 5, ".json") == 0);
}

bool pd_sheet_known(const char *what)
{
	char *file = file_of(what);
	bool known = is_file(what) || access(file, F_OK) == 0;

	free(file);
	return known;
}

static int is_sheet(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

const char *pd_sheet_say(const char *word, char text[PD_MEANT_TEXT])
{
	struct dirent **entries = NULL;
	int count = scandir(folder_of(), &entries, is_sheet, alphasort);
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

struct pd_sheet *pd_sheet_parse_at(const struct pd_place *place, struct pd_error *err)
{
	struct pd_sheet *sheet = pd_zalloc(sizeof(*sheet));

	sheet->json = json_incref(place->value);
	if (read_sheet(place, sheet, err) == 0)
		return sheet;
	pd_sheet_free(sheet);
	return NULL;
}

struct pd_sheet *pd_sheet_read(const char *what, struct pd_error *err)
{
	char *file = is_file(what) ? pd_strdup(what) : file_of(what);
	json_t *json = pd_json_load(file, err);
	struct pd_place root = pd_place_root(file, json);
	struct pd_sheet *sheet = json ? pd_sheet_parse_at(&root, err) : NULL;

	json_decref(json);
	free(file);
	return sheet;
}

void pd_sheet_free(struct pd_sheet *sheet)
{
	if (!sheet)
		return;
	free(sheet->name);
	free(sheet->kind);
	json_decref(sheet->json);
	free(sheet);
}

/* Rounds to three digits, since no more are known. */
static double rounded(double value)
{
	double per_one = value > 0 ? pow(10, 2 - floor(log10(value))) : 1;

	return round(value * per_one) / per_one;
}

/* Rounds a rate to six digits, more than a data sheet has. */
static double known(double value)
{
	double unit = value > 0 ? pow(10, fmax(0, floor(log10(value)) - 5)) : 1;

	return round(value / unit) * unit;
}

static json_t *products_json(const struct pd_sheet *sheet)
{
	json_t *json = json_pack("{sf}", "f32", known(sheet->products_per_s[PD_F32]));

	if (sheet->tf32_per_s > 0)
		pd_json_set(json, "tf32", json_real(known(sheet->tf32_per_s)));
	for (int d = 0; d < PD_DTYPES; d++)
		if (d != PD_F32 && sheet->products_per_s[d] > 0)
			pd_json_set(json, pd_dtype_name[d], json_real(known(sheet->products_per_s[d])));
	return json;
}

struct pd_sheet *pd_sheet_of(const char *name, const char *kind, int64_t memory_bytes, struct pd_error *err)
{
	json_t *json = json_pack("{ss si ss ss sI s{sf sf sf} sf si s{si si}}", "format", "pd-device", "version", 1,
				 "name", name, "kind", kind, "memory_bytes", (json_int_t)memory_bytes,
				 "products_per_s", "f32", 1e11, "bf16", 1e11, "f16", 1e11, "bandwidth_bytes_per_s", 1e10,
				 "kernel_ns", 1000, "efficiency", "products", 1, "memory", 1);
	struct pd_place root = pd_place_root("the device", json);
	struct pd_sheet *sheet;

	if (strcmp(kind, "cpu") == 0)
		pd_json_set(json_object_get(json, "efficiency"), "winograd", json_integer(1));
	sheet = pd_sheet_parse_at(&root, err);
	json_decref(json);
	return sheet;
}

json_t *pd_sheet_json(const struct pd_sheet *sheet, const char *fitted_to)
{
	json_t *json = json_deep_copy(sheet->json);

	pd_json_set(json, "products_per_s", products_json(sheet));
	pd_json_set(json, "bandwidth_bytes_per_s", json_real(known(sheet->bandwidth_bytes_per_s)));
	pd_json_set(json, "kernel_ns", json_integer(sheet->kernel_ns));
	pd_json_set(json, "efficiency", json_pack("{sf sf sf}", "products", rounded(sheet->efficiency.products),
						  "memory", rounded(sheet->efficiency.memory), "attention",
						  rounded(sheet->efficiency.attention)));
	if (sheet->efficiency.winograd > 0)
		pd_json_set(json_object_get(json, "efficiency"), "winograd",
			    json_real(rounded(sheet->efficiency.winograd)));
	pd_json_set(json, "spread", json_real(rounded(sheet->spread)));
	pd_json_set(json, "fitted_to", json_string(fitted_to));
	return json;
}
