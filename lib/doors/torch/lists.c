/* SPDX-License-Identifier: Apache-2.0 */
/* Makes lists of a table. */
#include "doors/torch/torch.h"

#include "base/file_kind.h"
#include "base/json.h"
#include "base/mem.h"
#include "doors/torch/complete.h"
#include "doors/torch/table.h"
#include "plan/chain.h"
#include "schedule/check.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tells whether a file, which can be read again, is of another known kind. */
static bool file_is_known(FILE *in)
{
	char bytes[PD_FILE_KIND_BYTES];
	ssize_t count = pread(fileno(in), bytes, sizeof(bytes), 0);

	return count > 0 && pd_file_kind(bytes, (size_t)count);
}

static bool is_table_ahead(FILE *in)
{
	int c = getc(in);

	while (c == ' ' || c == '\t')
		c = getc(in);
	if (c != EOF)
		ungetc(c, in);
	return isdigit(c) || (c != EOF && strchr("(,\"#", c)) || (isalpha(c) && !file_is_known(in));
}

/* Returns the name of the order that comes nearest: it says who may share ranks, and what slots
 * hold. */
static const char *order_of(const struct pd_torch_table *table)
{
	return pd_schedule_kind_name[table->shared ? PD_SCHEDULE_INTERLEAVED
				     : table->splits ? PD_SCHEDULE_ZB_H1 : PD_SCHEDULE_1F1B];
}

/* Returns a plan of a chain of equal layers, one for each stage. */
static json_t *made_up(const struct pd_torch_table *table)
{
	json_t *layers = json_array(), *stages = json_array();
	char *before = NULL;

	for (int s = 0; s < table->stage_count; s++) {
		char *name = pd_format("stage %d", s);
		json_t *inputs = s > 0 ? json_pack("[s]", before) : json_array();

		pd_json_add(layers, json_pack("{ss so si si si si}", "name", name, "inputs", inputs, "forward_ns",
					      1000, "backward_ns", 2000, "activation_bytes", 4,
					      "parameter_bytes", 4));
		pd_json_add(stages, json_pack("{s[s] si s[i]}", "layers", name, "replicas", 1, "ranks",
					      table->row_of[s]));
		free(before);
		before = name;
	}
	free(before);
	return json_pack("{ss si s{ss si ss si s{ss} so} s{ss si s[{si si}]} ss ss sI so}",
			 "format", "pd-plan", "version", 1, "profile", "format", "pd-profile",
			 "version", 1, "name", "made up", "batch_size", 1, "device", "kind", "cpu",
			 "layers", layers, "topology", "format", "pd-topology", "version", 1,
			 "levels", "count", table->row_count, "bandwidth_bytes_per_s", 1000000000,
			 "schedule", order_of(table), "weights", "flush", "microbatches",
			 (json_int_t)table->microbatches, "stages", stages);
}

/* Tells whether a table has other stages together on a rank than the plan, or without replicas
 * other ranks. */
static bool moves(const struct pd_torch_table *table, const struct pd_plan *plan)
{
	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];

		if (stage->replicas == 1 && stage->ranks[0] != table->row_of[s])
			return true;
		for (int t = 0; t < s && plan->rank_count > 1; t++)
			if ((stage->ranks[0] == plan->stages[t].ranks[0]) !=
			    (table->row_of[s] == table->row_of[t]))
				return true;
	}
	return false;
}

/* Returns the ranks of a row. */
static json_t *ranks_of(int row, int replicas)
{
	json_t *ranks = json_array();

	for (int r = 0; r < replicas; r++)
		pd_json_add(ranks, json_integer((json_int_t)row * replicas + r));
	return ranks;
}

/* Returns the plan as a document with the table's ranks and order, and without what flush has no
 * use for. */
static json_t *changed(const struct pd_torch_table *table, const struct pd_plan *plan)
{
	static const char *const dropped[] = { "startup", "bucket_bytes", "sparse", "predicted", NULL };
	bool moved = moves(table, plan);
	json_t *json = pd_plan_json(plan), *stages = json_object_get(json, "stages");

	for (int i = 0; dropped[i]; i++)
		json_object_del(json, dropped[i]);
	pd_json_set(json, "schedule", json_string(order_of(table)));
	pd_json_set(json, "weights", json_string(pd_weight_kind_name[PD_WEIGHTS_FLUSH]));
	for (int s = 0; s < table->stage_count; s++) {
		json_t *stage = json_array_get(stages, (size_t)s);

		json_object_del(stage, "warmup");
		json_object_del(stage, "predicted");
		if (moved)
			pd_json_set(stage, "ranks", ranks_of(table->row_of[s], plan->stages[s].replicas));
	}
	return json;
}

static int check_fits(const struct pd_torch_table *table, const struct pd_plan *plan,
		      struct pd_error *err)
{
	if (plan->stage_count != table->stage_count)
		return pd_error_input(err, "%s: the table has %d stages, the plan %s has %d", table->name,
				      table->stage_count, pd_plan_name(plan), plan->stage_count);
	if (pd_chain_check_replicas(plan, "PyTorch", err) < 0)
		return -1;
	if (plan->microbatches != table->microbatches * plan->stages[0].replicas)
		return pd_error_input(err, "%s: the table has %" PRId64 " microbatches, the plan %s has %" PRId64
				      " (pd-plan --microbatches) for each of %d replicas", table->name,
				      table->microbatches, pd_plan_name(plan),
				      plan->microbatches / plan->stages[0].replicas, plan->stages[0].replicas);
	return 0;
}

/* Returns the plan for the lists of a table. */
static struct pd_plan *plan_for(const struct pd_torch_table *table, const struct pd_plan *plan,
				struct pd_error *err)
{
	struct pd_place place;
	struct pd_plan *made;
	json_t *json;

	if (plan && check_fits(table, plan, err) < 0)
		return NULL;
	json = plan ? changed(table, plan) : made_up(table);
	place = pd_place_root(plan ? pd_plan_name(plan) : table->name, json);
	made = pd_plan_parse_at(&place, err);
	json_decref(json);
	return made;
}

/* Lists while they are made of a table, for one replica after the other. */
struct making {
	struct pd_lists *lists;
	const struct pd_torch_table *table;
	int replicas, replica;
};

/* Returns the rank of a stage in the replica's pipeline. */
static int rank_of(const struct making *m, int stage)
{
	return m->lists->plan->stages[stage].ranks[m->replica];
}

/* Adds an operation of a cell. */
static struct pd_op *add(const struct making *m, const struct pd_torch_cell *cell,
			 enum pd_op_kind kind)
{
	struct pd_op op = { .kind = kind,
			    .rank = rank_of(m, cell->stage),
			    .stage = cell->stage,
			    .peer = -1,
			    .link = -1,
			    .microbatch = cell->microbatch * m->replicas + m->replica,
			    .version = -1,
			    .keep = -1,
			    .seq = -1 };
	struct pd_note note = { .line = cell->row + 1, .cell = cell->number, .duration_ns = -1,
				.memory_delta_bytes = INT64_MIN };
	struct pd_list *list = &m->lists->ranks[op.rank];

	if (kind == PD_OP_forward || kind == PD_OP_recompute || kind == PD_OP_backward ||
	    kind == PD_OP_backward_input || kind == PD_OP_backward_weight)
		op.version = 0;
	pd_lists_add(m->lists, &op, &note);
	return &list->ops[list->count - 1];
}

/* Returns the link from a stage to the next, or -1. */
static int link_to_next(const struct pd_wiring *wiring, int stage)
{
	for (int i = 0; stage >= 0 && i < wiring->out_count[stage]; i++)
		if (wiring->links[wiring->out[stage][i]].to == stage + 1)
			return wiring->out[stage][i];
	return -1;
}

/* Adds an end of a transfer between a stage and the next, which is at `far`. */
static int add_end(const struct making *m, const struct pd_torch_cell *cell, enum pd_op_kind kind,
		   int far, struct pd_error *err)
{
	int link = link_to_next(m->lists->wiring, far > cell->stage ? cell->stage : far);
	struct pd_op *op;

	if (link < 0 || far >= m->table->stage_count)
		return pd_torch_no(m->table, cell, err, "nothing travels between this stage and stage %d", far);
	if (m->table->row_of[far] == cell->row)
		return pd_torch_no(m->table, cell, err,
				   "stage %d is on the same rank, within which PyTorch has no "
				   "transfers",
				   far);
	op = add(m, cell, kind);
	op->link = link;
	op->peer = rank_of(m, far);
	return 0;
}

/* Adds both ends of a transfer within the rank, which a table does not have. */
static void add_within(const struct making *m, const struct pd_torch_cell *cell)
{
	bool forward = cell->action == PD_TORCH_F;
	int far = forward ? cell->stage + 1 : cell->stage - 1, link;
	struct pd_torch_cell there = *cell;

	if (far < 0 || far >= m->table->stage_count || m->table->row_of[far] != cell->row)
		return;
	link = link_to_next(m->lists->wiring, forward ? cell->stage : far);
	if (link < 0)
		return;
	there.stage = far;
	for (int end = 0; end < 2; end++) {
		struct pd_op *op = end == 0
			? add(m, cell, forward ? PD_OP_send_activation : PD_OP_send_gradient)
			: add(m, &there, forward ? PD_OP_recv_activation : PD_OP_recv_gradient);

		op->link = link;
		op->peer = op->rank;
	}
}

/* Adds what a computation needs of its own rank. */
static void add_inputs(const struct making *m, const struct pd_torch_cell *cell)
{
	if (cell->action == PD_TORCH_F && m->lists->wiring->loads[cell->stage])
		add(m, cell, PD_OP_load);
	if ((cell->action == PD_TORCH_B || cell->action == PD_TORCH_I) &&
	    m->lists->plan->stages[cell->stage].recompute)
		add(m, cell, PD_OP_recompute);
}

/* Tells whether the parts of a cell are a forward and a backward that does not need it. */
static bool is_pair(const struct pd_torch_cell *cell, int count)
{
	return count == 2 && cell[0].action == PD_TORCH_F &&
	       (cell[1].action == PD_TORCH_B || cell[1].action == PD_TORCH_I) &&
	       (cell[0].stage != cell[1].stage || cell[0].microbatch != cell[1].microbatch);
}

/* Adds the computations of a cell, of as many parts. */
static void add_computations(const struct making *m, const struct pd_torch_cell *cell, int count)
{
	static const enum pd_op_kind kinds[] = {
		[PD_TORCH_F] = PD_OP_forward, [PD_TORCH_I] = PD_OP_backward_input,
		[PD_TORCH_W] = PD_OP_backward_weight, [PD_TORCH_B] = PD_OP_backward,
	};

	for (int k = 0; k < count; k++)
		add_inputs(m, &cell[k]);
	for (int k = 0; k < count; k++)
		add(m, &cell[k], kinds[cell[k].action])->beside = k == 0 && is_pair(cell, count);
	for (int k = 0; k < count && m->table->comms; k++)
		if (cell[k].action != PD_TORCH_W)
			add_within(m, &cell[k]);
}

/* Adds an exchange. */
static int add_exchange(const struct making *m, const struct pd_torch_cell *cell,
			struct pd_error *err)
{
	switch (cell->action) {
	case PD_TORCH_SEND_F:
		return add_end(m, cell, PD_OP_send_activation, cell->stage + 1, err);
	case PD_TORCH_RECV_F:
		return add_end(m, cell, PD_OP_recv_activation, cell->stage - 1, err);
	case PD_TORCH_SEND_B:
		return add_end(m, cell, PD_OP_send_gradient, cell->stage - 1, err);
	case PD_TORCH_RECV_B:
		return add_end(m, cell, PD_OP_recv_gradient, cell->stage + 1, err);
	default:
		return 0;
	}
}

/* Adds what the stages of a rank do at the end of its row, whose last cell is given. */
static void add_ends(const struct making *m, const struct pd_torch_cell *last)
{
	const struct pd_lists *lists = m->lists;
	int rank = rank_of(m, last->stage), first = lists->first_role[rank],
	    end = lists->first_role[rank + 1];
	struct pd_torch_cell cell = *last;

	cell.microbatch = 0;
	for (int i = first; i < end && m->replicas > 1; i++) {
		cell.stage = lists->roles[i].stage;
		add(m, &cell, PD_OP_allreduce)->microbatch = 0;
	}
	cell.stage = lists->roles[first].stage;
	if (pd_plan_agrees(lists->plan))
		add(m, &cell, PD_OP_agree)->microbatch = 0;
	for (int i = first; i < end; i++) {
		struct pd_op *step;

		cell.stage = lists->roles[i].stage;
		step = add(m, &cell, PD_OP_step);
		step->microbatch = 0;
		step->version = lists->microbatches;
	}
}

/* Returns how many parts a cell has. */
static int parts_of(const struct pd_torch_table *table, size_t i)
{
	int count = 1;

	while (i + (size_t)count < table->count &&
	       table->cells[i + (size_t)count].row == table->cells[i].row &&
	       table->cells[i + (size_t)count].number == table->cells[i].number)
		count++;
	return count;
}

static int add_cells(struct pd_lists *lists, const struct pd_torch_table *table,
		     struct pd_error *err)
{
	struct making m = { .lists = lists, .table = table, .replicas = lists->plan->stages[0].replicas };

	for (; m.replica < m.replicas; m.replica++)
		for (size_t i = 0; i < table->count; i++) {
			const struct pd_torch_cell *cell = &table->cells[i];
			int parts = parts_of(table, i);

			if (cell->action > PD_TORCH_B && add_exchange(&m, cell, err) < 0)
				return -1;
			if (cell->action <= PD_TORCH_B)
				add_computations(&m, cell, parts);
			i += (size_t)parts - 1;
			if (i + 1 == table->count || table->cells[i + 1].row != cell->row)
				add_ends(&m, cell);
		}
	return 0;
}

/* Checks the lists of a table and puts what it does not say into them. */
static int complete(struct pd_lists *lists, const struct pd_torch_table *table,
		    struct pd_error *err)
{
	lists->any_wait = true;
	lists->lack = table->comms ? PD_LACK_NUMBERS : PD_LACK_TRANSFERS;
	if (add_cells(lists, table, err) < 0 || pd_check(lists, err) < 0 ||
	    pd_torch_check_losses(table, err) < 0)
		return -1;
	if (!table->comms)
		return pd_torch_add_transfers(lists, err);
	return pd_torch_check_comms(table, err) < 0 ? -1 : pd_torch_number(lists, table, err);
}

static struct pd_lists *read_table(FILE *in, const char *name, const struct pd_plan *plan,
				   struct pd_error *err)
{
	struct pd_torch_table table;
	struct pd_lists *lists = NULL;
	struct pd_plan *own;

	if (pd_torch_table_read(in, name, &table, err) < 0)
		return NULL;
	own = plan_for(&table, plan, err);
	lists = own ? pd_lists_new(name, NULL, own, 1, err) : NULL;
	if (lists && (complete(lists, &table, err) < 0 || pd_check(lists, err) < 0)) {
		pd_lists_free(lists);
		lists = NULL;
	}
	pd_torch_table_release(&table);
	if (lists)
		pd_lists_end(lists);
	return lists;
}

static const struct pd_table_door door = {
	.what = "table of PyTorch", .begins = is_table_ahead, .read = read_table,
};
const struct pd_table_door *const pd_table_doors[] = { &door, NULL };
