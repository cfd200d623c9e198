/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/top.h"

#include "base/csv.h"
#include "base/grid.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "explain/usage.h"
#include "plan/prediction.h"

#include <inttypes.h>
#include <string.h>

char *pd_top_bottleneck(const struct pd_plan *plan)
{
	struct pd_usage *usage = pd_usage_new(plan);
	char *text;
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	if (!usage)             /* a plan of the planner has a schedule */
		pd_bug("top: a plan that has no schedule");
	pd_usage_put_limit_short(usage, out);
	pd_mem_stream_close(out);
	pd_usage_free(usage);
	return text;
}

/* Returns what --schedule says for a schedule. */
static const char *schedule_name(const struct pd_top_row *row)
{
	return pd_schedule_has(row->schedule, PD_FACT_ORDERED) ? "zb-auto" : pd_schedule_kind_name[row->schedule];
}

static const char *row_from(const struct pd_top_row *row)
{
	return row->period_from == PD_PERIOD_UNSAID
		? "run" : pd_period_kind_name[row->period_from - PD_PERIOD_REPLAY];
}

static int64_t at_least_one(int64_t n)
{
	return n > 1 ? n : 1;
}

static int64_t row_step_ns(const struct pd_top_row *row)
{
	return pd_times(row->period_ns, row->microbatches);
}

/* Puts what is shared out, as "optimizer" or "full 16". */
static void put_shard(struct pd_grid *grid, const struct pd_top_row *row)
{
	int64_t sharded = at_least_one(row->group.sharded);

	if (sharded > 1)
		pd_grid_put(grid, "full %" PRId64, sharded);
	else
		pd_grid_put(grid, "%s", row->optimizer_sharded ? "optimizer" : "-");
}

static void put_recomputed(struct pd_grid *grid, const struct pd_top_row *row)
{
	if (row->recomputed > 0 && row->recomputed < row->stage_count)
		pd_grid_put(grid, "%d of %d", row->recomputed, row->stage_count);
	else
		pd_grid_put(grid, "%s", row->recomputed > 0 ? "all" : "-");
}

static void put_layout(struct pd_grid *grid, const struct pd_top_row *row)
{
	int64_t sharded = at_least_one(row->group.sharded), tensor =
		at_least_one(row->group.tensor);

	pd_grid_put(grid, "%d", row->positions);
	pd_grid_put(grid, "%" PRId64 "%s", tensor, row->group.sequence ? "s" : "");
	pd_grid_put(grid, "%d", row->virtual_stages);
	if (row->pipelines > 0)
		pd_grid_put(grid, "%" PRId64, row->pipelines * sharded);
	else
		pd_grid_put(grid, "-");
	put_shard(grid, row);
	pd_grid_put(grid, "%s", schedule_name(row));
	pd_grid_put(grid, "%s", pd_weight_kind_name[row->weights]);
	pd_grid_put(grid, "%" PRId64, row->batch_size / sharded);
	pd_grid_put(grid, "%" PRId64, row->microbatches);
	put_recomputed(grid, row);
}

/* Puts a number with so many digits behind the point, or nothing: it is not known. */
static void put_known(struct pd_grid *grid, double number, int digits, const char *unit)
{
	if (number > 0)
		pd_grid_put(grid, "%.*f%s", digits, number, unit);
	else
		pd_grid_put(grid, "%s", "");
}

static void put_speed(struct pd_grid *grid, const struct pd_top_row *row, double most)
{
	char text[32];

	pd_grid_put(grid, "%s", pd_show_time(row_step_ns(row), text));
	pd_grid_put(grid, "%.1f", row->samples_per_s);
	put_known(grid, row->step.tokens_per_s / (double)row->devices, 0, "");
	put_known(grid, 100 * row->step.mfu, 1, "%");
	pd_grid_put(grid, "%.0f%%", 100 * row->samples_per_s / most);
	pd_grid_put(grid, "%" PRId64, row->devices);
	pd_grid_put(grid, "%s", pd_show_bytes(row->memory_bytes, text));
}

static double fastest_of(const struct pd_top *top)
{
	double most = 0;

	for (int i = 0; i < top->count; i++)
		most = top->rows[i].samples_per_s > most ? top->rows[i].samples_per_s : most;
	return most;
}

#define LAYOUT_COLUMNS \
	"pp", "tp", "vp", "dp", "<shard", "<schedule", "<weights", "micro", "number", "recompute"
#define SPEED_COLUMNS \
	"step", "samples/s", "tokens/s/device", "MFU", "of best", "devices", "memory"

/* Tells the place of a row of a layout that was searched for; that of --like has none. */
static int place_of(const struct pd_top *top, int row)
{
	int place = 1;

	for (int i = 0; i < row; i++)
		place += !top->rows[i].yours;
	return place;
}

static void print_searched(const struct pd_top *top, bool markdown, FILE *out)
{
	static const char *const columns[] = {
		"#", LAYOUT_COLUMNS, SPEED_COLUMNS, "<bottleneck", "<from", NULL
	};
	struct pd_grid *grid = pd_grid_new(columns);
	double most = fastest_of(top);

	for (int i = 0; i < top->count; i++) {
		const struct pd_top_row *row = &top->rows[i];

		if (row->yours)
			pd_grid_put(grid, "-");
		else
			pd_grid_put(grid, "%d", place_of(top, i));
		put_layout(grid, row);
		put_speed(grid, row, most);
		pd_grid_put(grid, "%s", row->bottleneck);
		pd_grid_put(grid, "%s%s%s%s%s", row_from(row), row->searched ? ", searched" : "",
			    row->pipelines ? "" : ", unequal", row->yours ? ", yours (--like)" : "",
			    row->fits ? "" : ", does not fit");
	}
	pd_grid_print(grid, markdown, out);
	pd_grid_free(grid);
}

static void print_replayed(const struct pd_top *top, bool markdown, FILE *out)
{
	static const char *const columns[] = {
		"<plan", LAYOUT_COLUMNS, "microbatch", SPEED_COLUMNS, "bubble", NULL
	};
	struct pd_grid *grid = pd_grid_new(columns);
	double most = fastest_of(top);

	for (int i = 0; i < top->count; i++) {
		const struct pd_top_row *row = &top->rows[i];
		char text[32];

		pd_grid_put(grid, "%s", row->name);
		put_layout(grid, row);
		pd_grid_put(grid, "%s", pd_show_time(row->period_ns, text));
		put_speed(grid, row, most);
		if (row->bubble_percent >= 0)
			pd_grid_put(grid, "%.1f%%", row->bubble_percent);
		else
			pd_grid_put(grid, "%s", "");
	}
	pd_grid_print(grid, markdown, out);
	pd_grid_free(grid);
}

static json_t *command_of(const struct pd_top_row *row)
{
	json_t *list = json_array();
	char text[64];

	if (row->yours) {
		pd_json_add(list, json_sprintf("--like=%s", row->yours));
		return list;
	}
	if (row->degree_asked) {
		snprintf(text, sizeof(text), "--tensor=%" PRId64 "%s", at_least_one(row->group.tensor),
			 row->group.sequence ? ",sequence" : "");
		pd_json_add(list, json_string(text));
	}
	snprintf(text, sizeof(text), "--schedule=%s", schedule_name(row));
	pd_json_add(list, json_string(text));
	snprintf(text, sizeof(text), "--weights=%s", pd_weight_kind_name[row->weights]);
	pd_json_add(list, json_string(text));
	if (row->virtual_stages > 1) {
		snprintf(text, sizeof(text), "--virtual-stages=%d", row->virtual_stages);
		pd_json_add(list, json_string(text));
	}
	snprintf(text, sizeof(text), "--microbatches=%" PRId64, row->microbatches);
	pd_json_add(list, json_string(text));
	pd_json_add(list, json_sprintf("--stages=%s", row->stages));
	return list;
}

static json_t *known_or_null(double number)
{
	return number > 0 ? json_real(number) : json_null();
}

/* Adds what all rows have. */
static void add_layout(json_t *object, const struct pd_top_row *row)
{
	const struct pd_degrees *group = &row->group;
	json_t *more = json_pack(
		"{s:f, s:o, s:o, s:I, s:I, s:s, s:I, s:b, s:I, s:b, s:s, s:s, s:i, s:i, s:i, s:I, "
		"s:I,"
		" s:i, s:I, s:I}",
		"samples_per_s", row->samples_per_s,
		"tokens_per_s", known_or_null(row->step.tokens_per_s),
		"mfu", known_or_null(row->step.mfu),
		"step_ns", (json_int_t)row_step_ns(row),
		"period_ns", (json_int_t)row->period_ns,
		"period_from", row_from(row),
		"tensor", (json_int_t)at_least_one(group->tensor),
		"sequence", group->sequence,
		"sharded", (json_int_t)at_least_one(group->sharded),
		"optimizer_sharded", row->optimizer_sharded,
		"schedule", pd_schedule_kind_name[row->schedule],
		"weights", pd_weight_kind_name[row->weights],
		"pipelines", row->pipelines,
		"positions", row->positions,
		"virtual_stages", row->virtual_stages,
		"microbatches", (json_int_t)row->microbatches,
		"batch_size", (json_int_t)row->batch_size,
		"recomputed_stages", row->recomputed,
		"devices", (json_int_t)row->devices,
		"memory_bytes", (json_int_t)row->memory_bytes);

	if (!more || json_object_update(object, more) < 0)
		pd_bug("top: no object was made");
	json_decref(more);
}

static json_t *object_of(const struct pd_top *top, int i)
{
	const struct pd_top_row *row = &top->rows[i];
	bool replayed = top->most == 0;
	json_t *object = json_object();

	pd_json_set(object, "format", json_string(replayed ? "pd-row" : "pd-choice"));
	pd_json_set(object, "version", json_integer(1));
	if (replayed) {
		pd_json_set(object, "file", pd_json_shown(row->name));
		add_layout(object, row);
		pd_json_set(object, "bubble_percent",
			    row->bubble_percent < 0 ? json_null() : json_real(row->bubble_percent));
		return object;
	}
	pd_json_set(object, "place", row->yours ? json_null() : json_integer(place_of(top, i)));
	add_layout(object, row);
	pd_json_set(object, "bottleneck", json_string(row->bottleneck));
	pd_json_set(object, "searched", json_boolean(row->searched));
	pd_json_set(object, "pareto", json_boolean(row->pareto));
	pd_json_set(object, "yours", json_boolean(row->yours != NULL));
	pd_json_set(object, "fits", json_boolean(row->fits));
	pd_json_set(object, "plan", command_of(row));
	return object;
}

/* Prints the members of an object, or their names, as a line of CSV. */
static void put_csv_line(const json_t *object, bool names, FILE *out)
{
	const char *key, *comma = "";
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		if (strcmp(key, "format") == 0 || strcmp(key, "version") == 0)
			continue;
		fputs(comma, out);
		comma = ",";
		if (names)
			fputs(key, out);
		else
			pd_csv_put(value, out);
	}
	fputs(PD_CSV_END, out);
}

static void write_row(const struct pd_top *top, int i, enum pd_table_format format, FILE *out)
{
	json_t *object = object_of(top, i);

	if (format == PD_TABLE_JSONL) {
		json_dumpf(object, out, JSON_COMPACT);
		fputc('\n', out);
	} else {
		if (i == 0)
			put_csv_line(object, true, out);
		put_csv_line(object, false, out);
	}
	json_decref(object);
}

int pd_top_write(const struct pd_top *top, enum pd_table_format format, FILE *out,
		 struct pd_error *err)
{
	bool markdown = format == PD_TABLE_MARKDOWN;

	if (format == PD_TABLE_CSV || format == PD_TABLE_JSONL)
		for (int i = 0; i < top->count; i++)
			write_row(top, i, format, out);
	else if (top->most > 0)
		print_searched(top, markdown, out);
	else
		print_replayed(top, markdown, out);
	if (fflush(out) != 0 || ferror(out))
		return pd_error_failed(err, "standard output cannot be written");
	return 0;
}

json_t *pd_top_json(const struct pd_top *top)
{
	json_t *rows = json_array();

	for (int i = 0; i < top->count; i++)
		pd_json_add(rows, object_of(top, i));
	return rows;
}
