/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/device.h"

#include "base/document_folder.h"
#include "base/mem.h"
#include "base/rows.h"
#include "profile/folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UPDATE_BYTES \
	20 /* of SGD with momentum: the parameter, its gradient and its moment, in f32 */

static int read_tiles(const struct pd_place *tiles, void *of, struct pd_error *err)
{
	struct pd_sheet *sheet = of;
	size_t count, sides;

	if (pd_json_array(tiles, &count, err) < 0)
		return -1;
	if (count > PD_TILES)
		return pd_place_expected(tiles, err, "at most %d tiles", PD_TILES);
	for (size_t t = 0; t < count; t++) {
		struct pd_place tile = pd_place_index(tiles, t);

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
	return 0;
}

/* Checks a text that is for people. */
static int check_text(const struct pd_place *place, void *of, struct pd_error *err)
{
	const char *ignored;

	(void)of;
	return pd_json_string(place, &ignored, err);
}

#define IN(member) PD_MEMBER(struct pd_sheet, member)
#define RATE PD_ROW_REAL, .positive = true, .high = 1e18
#define PART PD_ROW_REAL, .positive = true, .high = 1

static const char *const kernel_name[] = { "fused", "unfused", NULL };

static const struct pd_key_row products_rows[] = {
	{ "f32", RATE, .needed = true, IN(products_per_s[PD_F32]) },
	{ "tf32", RATE, IN(tf32_per_s) },
	{ "bf16", RATE, IN(products_per_s[PD_BF16]) },
	{ "f16", RATE, IN(products_per_s[PD_F16]) },
	{ NULL }
};

static const struct pd_key_row efficiency_rows[] = {
	{ "products", PART, .needed = true, IN(efficiency.products) },
	{ "memory", PD_ROW_REAL, .positive = true, .needed = true, IN(efficiency.memory), .high = 2 },
	{ "attention", PART, IN(efficiency.attention) },
	{ "winograd", PART, IN(efficiency.winograd) },
	{ NULL }
};

static const struct pd_key_row link_rows[] = {
	{ "bandwidth_bytes_per_s", PD_ROW_INT, .needed = true, IN(link.bandwidth_bytes_per_s),
	  .least = 1 },
	{ "latency_ns", PD_ROW_INT, IN(link.latency_ns), .most = PD_MAX_TIME_NS },
	{ "efficiency", PART, IN(link.efficiency), .otherwise_real = 1 },
	{ NULL }
};

const struct pd_key_row pd_sheet_rows[] = {
	PD_ROWS_HEADER("pd-device", 1),
	{ "name", PD_ROW_TEXT, .needed = true, IN(name) },
	{ "kind", PD_ROW_TEXT, .needed = true, IN(kind) },
	{ "memory_bytes", PD_ROW_INT, .needed = true, IN(memory_bytes), .least = 1 },
	{ "products_per_s", PD_ROW_OBJECT, .needed = true, .rows = products_rows },
	{ "bandwidth_bytes_per_s", RATE, .needed = true, IN(bandwidth_bytes_per_s) },
	{ "kernel_ns", PD_ROW_INT, .needed = true, IN(kernel_ns), .most = 1000000000 },
	{ "units", PD_ROW_INT, IN(units), .least = 1, .most = 1 << 20 },
	{ "tiles", PD_ROW_BY, .read = read_tiles },
	{ "fill", PD_ROW_REAL, IN(fill), .high = 1 << 20 },
	{ "efficiency", PD_ROW_OBJECT, .needed = true, .rows = efficiency_rows },
	{ "link", PD_ROW_OBJECT, .rows = link_rows },
	{ "overlap_cost", PD_ROW_REAL, IN(overlap_cost), .high = 1 },
	{ "attention", PD_ROW_CHOICE, IN(unfused), .names = kernel_name },
	{ "dropout", PD_ROW_CHOICE, IN(drops_apart), .names = kernel_name, .otherwise = true },
	{ "update_bytes", PD_ROW_REAL, IN(update_bytes), .high = 1e3, .otherwise_real = UPDATE_BYTES },
	{ "spread", PD_ROW_REAL, IN(spread), .high = 10 },
	{ "fitted_to", PD_ROW_BY, .read = check_text },
	{ "sources", PD_ROW_BY },
	{ NULL }
};

static int read_sheet(const struct pd_place *root, struct pd_sheet *sheet, struct pd_error *err)
{
	if (pd_rows_read(root, pd_sheet_rows, sheet, err) < 0)
		return -1;
	if (sheet->efficiency.attention == 0)
		sheet->efficiency.attention = sheet->efficiency.products;
	if ((sheet->tile_count > 0) != (sheet->units > 0))
		return pd_place_error(root, err, "expected both of \"units\" and \"tiles\", or neither");
	return 0;
}

/* Where a name has no file, the one with "-sxm" behind it has: a server's GPU is what most mean. */
static struct pd_document_folder device_folder(void)
{
	return (struct pd_document_folder){ getenv("PD_DEVICES"), PD_DEVICES_FOLDER, "-sxm" };
}

bool pd_sheet_known(const char *what)
{
	const struct pd_document_folder folder = device_folder();

	return pd_document_known(&folder, what);
}

const char *pd_sheet_folder_missing(void)
{
	const struct pd_document_folder folder = device_folder();

	return pd_document_folder_missing(&folder);
}

const char *pd_sheet_say(const char *word, char text[PD_MEANT_TEXT])
{
	const struct pd_document_folder folder = device_folder();

	return pd_document_meant(&folder, word, text);
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
	const struct pd_document_folder folder = device_folder();
	bool is_file = pd_is_document_file(what);
	char *file = is_file ? pd_strdup(what) : pd_document_file(&folder, what);
	json_t *json = pd_json_load(file, err);
	struct pd_place root = pd_place_root(file, json);
	struct pd_sheet *sheet = json ? pd_sheet_parse_at(&root, err) : NULL;

	if (sheet && !is_file && strcmp(sheet->name, what) != 0)
		pd_say("device \"%s\" is taken as %s", what, sheet->name);
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

struct pd_sheet *pd_sheet_of(const char *name, const char *kind, int64_t memory_bytes,
			     struct pd_error *err)
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
	struct pd_sheet told = *sheet;
	struct pd_efficiency *efficiency = &told.efficiency;

	for (int d = 0; d < PD_DTYPES; d++)
		told.products_per_s[d] = known(told.products_per_s[d]);
	told.tf32_per_s = known(told.tf32_per_s);
	efficiency->products = rounded(efficiency->products);
	efficiency->memory = rounded(efficiency->memory);
	efficiency->attention = rounded(efficiency->attention);
	efficiency->winograd = rounded(efficiency->winograd);
	pd_json_set(json, "products_per_s", pd_rows_json(products_rows, &told));
	pd_json_set(json, "bandwidth_bytes_per_s", json_real(known(sheet->bandwidth_bytes_per_s)));
	pd_json_set(json, "kernel_ns", json_integer(sheet->kernel_ns));
	pd_json_set(json, "efficiency", pd_rows_json(efficiency_rows, &told));
	pd_json_set(json, "spread", json_real(rounded(sheet->spread)));
	pd_json_set(json, "fitted_to", json_string(fitted_to));
	return json;
}
