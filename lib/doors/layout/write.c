/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/layout/write.h"

#include "base/minmax.h"
#include "base/opt.h"
#include "doors/layout/writer.h"
#include "plan/chain.h"
#include "plan/recompute.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is checked of a plan besides that its weights are flush, its replicas equal, and its stages whole modules. */
enum layout_rule {
	LINKS = 1,                      /* a stage takes from the one before it alone */
	SHARES = 2,                     /* no parameters of several stages */
	DECODER = 4,                    /* there is one list of blocks, which it counts */
	ROUNDS = 8,                     /* microbatches are whole rounds where it has chunks */
	TOGETHER = 16,                  /* all stages recompute, or none */
	MODULES = 32,                   /* or some modules of all blocks are computed again */
	TENSOR = 64,                    /* devices can share layers out, evenly */
	SHARDED = 512,                  /* and weights, with the samples */
	FILLED = 128,                   /* 1f1b and dualpipe-v have a microbatch for each stage */
	EQUAL = 256,                    /* interleaved's rounds, of as many microbatches as ranks or more, are equal */
};

static const struct {
	const char *system;
	enum pd_memory_model memory;
	bool gpipe, chunks, others;
	int rules;
} kinds[] = {
#define LAYOUT_KIND(name, system, memory, gpipe, chunks, others, rules) \
	{ system, PD_MEMORY_##memory, gpipe, chunks, others, rules },
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND
};

static bool counts_decoders(enum pd_layout_kind kind)
{
	return kinds[kind].rules & DECODER;
}

int pd_layout_join(enum pd_layout_kind kind, struct pd_profile *profile, struct pd_error *err)
{
	struct pd_blocks blocks;
	int result = 0, begin, end;

	pd_blocks_init(&blocks, profile);
	if (counts_decoders(kind))
		result = pd_blocks_check_decoder(&blocks, profile->name, kinds[kind].system, err);
	begin = blocks.decoder_first;
	end = begin + blocks.decoder_count;
	for (int l = 1; l < profile->layer_count; l++)
		profile->layers[l].joined = true;
	for (int m = 1; m < blocks.count; m++) {
		bool cut = !counts_decoders(kind) || (m >= begin && m <= end);

		/* Galvatron has the embedding with the first block, and the head with the last. */
		if (kind == PD_LAYOUT_galvatron && (m == begin || m == end))
			cut = false;
		profile->layers[blocks.first[m]].joined = !cut;
	}
	pd_blocks_release(&blocks);
	return result;
}

/* Systems that know 1f1b by name alone have its own warm-ups. */
static int check_leads(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	if (pd_layout_has_usual_leads(layout))
		return 0;
	return pd_error_input(err, "%s: stages[0].warmup: 1f1b of %s has %d forwards ahead in stage 0 and one less in each "
			      "behind it, found other warm-ups: expected a plan made with --for", pd_plan_name(plan),
			      layout->who, pd_plan_warmup(plan, 0));
}

/* Says where the ranks of a pipeline are not those that the system gives it, which has replicas side by side. */
static void say_placement(const struct pd_layout *layout)
{
	const struct pd_plan *plan = layout->plan;

	for (int s = 0; s < plan->stage_count; s++) {
		const struct pd_stage *stage = &plan->stages[s];
		int position = pd_schedule_has(plan->schedule, PD_FACT_V) ? pd_order_v(layout->ranks, s)
									   : pd_order_loop(layout->ranks, s);

		for (int r = 0; r < stage->replicas && !pd_schedule_has(plan->schedule, PD_FACT_ORDERED); r++)
			if (stage->ranks[r] != position * stage->replicas + r) {
				pd_say("stage %d is on rank %d, and %s puts it on rank %d: its speed may be another than the "
				       "plan's", s, stage->ranks[r], layout->who, position * stage->replicas + r);
				return;
			}
	}
}

static bool has_schedule(enum pd_layout_kind of, enum pd_schedule_kind schedule)
{
	bool others = kinds[of].others;

	return schedule == PD_SCHEDULE_1F1B || (schedule == PD_SCHEDULE_GPIPE ? kinds[of].gpipe || others
						: schedule == PD_SCHEDULE_INTERLEAVED ? kinds[of].chunks : others);
}

bool pd_layout_takes_tensor(enum pd_layout_kind kind)
{
	return kinds[kind].rules & TENSOR;
}

unsigned pd_layout_schedules(enum pd_layout_kind kind)
{
	unsigned schedules = 0;

	for (int s = 0; s < PD_SCHEDULE_KINDS; s++)
		if (has_schedule(kind, (enum pd_schedule_kind)s))
			schedules |= 1u << s;
	return schedules;
}

static int check_schedule(const struct pd_layout *layout, enum pd_layout_kind of, struct pd_error *err)
{
	enum pd_schedule_kind kind = layout->plan->schedule;
	bool gpipe = kinds[of].gpipe, chunks = kinds[of].chunks;

	if (has_schedule(of, kind))
		return 0;
	return pd_error_input(err, "%s: schedule: %s has no \"%s\": expected 1f1b%s%s", pd_plan_name(layout->plan),
			      layout->who, pd_schedule_kind_name[kind], gpipe ? " or gpipe" : "",
			      chunks ? " or interleaved" : "");
}

/* Tells whether a stage recomputes, but not all of its blocks: what is beside them does not count. */
static bool reruns_less(const struct pd_layout *layout, int s)
{
	const struct pd_plan *plan = layout->plan;
	const struct pd_blocks *blocks = &layout->blocks;
	int begin = blocks->first[blocks->decoder_first];
	int end = blocks->first[blocks->decoder_first + blocks->decoder_count];
	int first = plan->stages[s].first_layer, last = first + plan->stages[s].layer_count;
	bool all = blocks->decoder_count > 0;

	for (int l = pd_max(first, begin); l < pd_min(last, end) && all; l++)
		all = pd_plan_reruns(plan, s, l);
	return pd_plan_reruns_some(plan, s) && !all;
}

/* Checks that no stage recomputes only some of its blocks, or of its layers. */
static int check_whole(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	for (int s = 0; s < plan->stage_count; s++)
		if (reruns_less(layout, s))
			return pd_error_input(err, "%s: stages[%d].recompute: %s cannot recompute %d of %d layers: expected "
					      "--recompute=blocks, all or none", pd_plan_name(plan), s, layout->who,
					      pd_plan_rerun_count(plan, s), plan->stages[s].layer_count);
	return 0;
}

/* --recompute-modules: the layers of these kinds. */
const struct pd_rerun_module pd_rerun_modules[PD_RERUN_MODULES] = {
	{ "core_attn", { PD_LAYER_attention, PD_LAYER_attention } },
	{ "layernorm", { PD_LAYER_layernorm, PD_LAYER_rmsnorm } },
};

/* Returns which of these a layer is of, or -1. */
static int module_of(const struct pd_layout *layout, int layer)
{
	const struct pd_blocks *blocks = &layout->blocks;
	int begin = blocks->first[blocks->decoder_first];
	int end = blocks->first[blocks->decoder_first + blocks->decoder_count];
	const struct pd_model *model = layout->plan->profile->model;

	for (int m = 0; m < PD_RERUN_MODULES && model && layer >= begin && layer < end; m++)
		if (model->layers[layer].kind == pd_rerun_modules[m].kinds[0] || model->layers[layer].kind == pd_rerun_modules[m].kinds[1])
			return m;
	return -1;
}

/* Sets which modules have a layer that is computed again. */
static void find_modules(struct pd_layout *layout)
{
	const struct pd_plan *plan = layout->plan;

	for (int s = 0; s < plan->stage_count; s++)
		for (int l = plan->stages[s].first_layer; l < plan->stages[s].first_layer + plan->stages[s].layer_count; l++)
			if (module_of(layout, l) >= 0 && pd_plan_reruns(plan, s, l))
				layout->again[module_of(layout, l)] = true;
}

/*
 * Checks that these are computed again whole, and nothing else, in all stages that have more than one microbatch in
 * flight.
 */
static int check_modules(struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	find_modules(layout);
	for (int s = 0; s < plan->stage_count; s++)
		for (int l = plan->stages[s].first_layer; l < plan->stages[s].first_layer + plan->stages[s].layer_count; l++) {
			bool reruns = pd_plan_reruns(plan, s, l), all = plan->stages[s].warmup > 0;
			int m = module_of(layout, l);

			if (m >= 0 && layout->again[m] ? reruns || !all : !reruns)
				continue;
			return pd_error_input(err, "%s: stages[%d].recompute: %s computes attention or normalisation of all "
					      "blocks again, or all layers, and not %slayer \"%.60s\": expected "
					      "--recompute=attention or layernorm,rmsnorm, all or none", pd_plan_name(plan), s,
					      layout->who, reruns ? "" : "all of these but ", plan->profile->layers[l].name);
		}
	return 0;
}

/* Tells whether a stage computes only some of its layers again. */
static bool reruns_in_part(const struct pd_layout *layout)
{
	bool any = false;

	for (int s = 0; s < layout->plan->stage_count; s++)
		any |= reruns_less(layout, s);
	return any;
}

/* Megatron's interleaved schedule goes in rounds, of which the last must be whole for it to be the plan's. */
static int check_rounds(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int64_t local = plan->microbatches / plan->stages[0].replicas, round = plan->round ? plan->round : layout->ranks;

	if (!pd_schedule_has(plan->schedule, PD_FACT_ROUNDS) || local % round == 0)
		return 0;
	return pd_error_input(err, "%s: microbatches: %s needs a multiple of %" PRId64 ", %s, with schedule \"%s\", "
			      "found %" PRId64 "%s", pd_plan_name(plan), layout->who, round,
			      plan->round ? "the round" : "the ranks of a path", pd_schedule_kind_name[plan->schedule],
			      local, plan->stages[0].replicas > 1 ? " of each replica" : "");
}

/* PyTorch refuses these where it makes a schedule by its name. */
static int check_filled(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int64_t local = plan->microbatches / plan->stages[0].replicas;

	if ((plan->schedule != PD_SCHEDULE_1F1B && plan->schedule != PD_SCHEDULE_DUALPIPE_V) ||
	    local >= plan->stage_count)
		return 0;
	return pd_error_input(err, "%s: microbatches: %s needs at least as many as stages, %d, with schedule \"%s\", found %"
			      PRId64 "%s: expected more --microbatches, or fewer stages", pd_plan_name(plan), layout->who,
			      plan->stage_count, pd_schedule_kind_name[plan->schedule], local,
			      plan->stages[0].replicas > 1 ? " of each replica" : "");
}

static int check_equal(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int64_t local = plan->microbatches / plan->stages[0].replicas, rounds = local / layout->ranks;

	if (!pd_schedule_has(plan->schedule, PD_FACT_ROUNDS) || rounds <= 1 || local % rounds == 0)
		return 0;
	return pd_error_input(err, "%s: microbatches: %s goes in %" PRId64 " rounds with schedule \"%s\", %" PRId64
			      " ranks and %" PRId64 " microbatches%s, and needs equal ones: expected a multiple of %" PRId64,
			      pd_plan_name(plan), layout->who, rounds, pd_schedule_kind_name[plan->schedule],
			      (int64_t)layout->ranks, local, plan->stages[0].replicas > 1 ? " of each replica" : "",
			      rounds);
}

/* A stage that has one microbatch in flight gains nothing by recomputing, and never does in a plan. */
static int check_recompute(struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	if (check_whole(layout, err) < 0)
		return -1;
	for (int s = 0; s < plan->stage_count; s++)
		layout->recompute |= plan->stages[s].recompute;
	for (int s = 0; s < plan->stage_count; s++)
		if (layout->recompute && !plan->stages[s].recompute && plan->stages[s].warmup > 0)
			return pd_error_input(err, "%s: stages[%d].recompute: %s recomputes in all stages or in none: "
					      "expected --recompute=all or none", pd_plan_name(plan), s, layout->who);
	return 0;
}

/* Checks that every stage begins with a module. */
static int check_cuts(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;

	for (int s = 1; s < plan->stage_count; s++) {
		int layer = plan->stages[s].first_layer, m = pd_blocks_at(&layout->blocks, layer);

		if (m == layout->blocks.count)
			return pd_error_input(err, "%s: stage %d begins with layer \"%.60s\", within a module that %s "
					      "keeps whole: expected other --stages", pd_plan_name(plan), s,
					      plan->profile->layers[layer].name, layout->who);
	}
	return 0;
}

int pd_layout_begin_of(const struct pd_layout *layout, int stage)
{
	return stage == layout->plan->stage_count ? layout->blocks.count
		: pd_blocks_at(&layout->blocks, layout->plan->stages[stage].first_layer);
}

int pd_layout_letters_of(const struct pd_layout *layout, int s, struct pd_megatron_stage *out_p, struct pd_error *err)
{
	const struct pd_blocks *blocks = &layout->blocks;
	int begin = blocks->decoder_first, end = begin + blocks->decoder_count;
	int from = pd_layout_begin_of(layout, s), to = pd_layout_begin_of(layout, s + 1);

	if (s > 0 && (from < begin || from > end))
		return pd_error_input(err, "%s: stage %d begins with \"%.60s\", and %s keeps all before the first block "
				      "together, and all behind the last: expected other --stages",
				      pd_plan_name(layout->plan), s, blocks->names[from], layout->who);
	*out_p = (struct pd_megatron_stage){
		.decoders = (to < end ? to : end) - (from > begin ? from : begin),
		.embedding = s == 0, .loss = s == layout->plan->stage_count - 1,
	};
	if (out_p->decoders < 0)
		out_p->decoders = 0;
	return 0;
}

static int check_divides(const struct pd_layout *layout, const char *what, int64_t count,
			 struct pd_error *err)
{
	int64_t tensor = layout->plan->profile->group.tensor;

	return count % tensor == 0 ? 0
		: pd_error_input(err, "%s: %s cannot share %" PRId64 " %s out among %" PRId64 " devices: expected a "
				 "multiple of %" PRId64, pd_plan_name(layout->plan), layout->who, count, what,
				 tensor, tensor);
}

/* Checks that the devices of a rank have equal parts of heads and, by rows, of the sequence. */
static int check_parts(const struct pd_layout *layout, struct pd_error *err)
{
	const struct pd_profile *profile = layout->plan->profile;
	const struct pd_model *model = profile->model;

	for (int l = 0; model && profile->group.tensor > 1 && l < model->layer_count; l++) {
		const struct pd_layer *layer = &model->layers[l];

		if (layer->kind != PD_LAYER_attention)
			continue;
		if (check_divides(layout, "heads", layer->heads, err) < 0 ||
		    check_divides(layout, "heads of keys and values", layer->kv_heads, err) < 0 ||
		    (profile->group.sequence && layer->output.dims > 1 &&
		     check_divides(layout, "positions of the sequence", layer->output.size[0], err) < 0))
			return -1;
	}
	return 0;
}

/* What the devices of a rank share can be said to some systems alone, but for weights. */
static int check_group(const struct pd_layout *layout, int rules, struct pd_error *err)
{
	const struct pd_degrees *group = &layout->plan->profile->group;
	bool tensor = rules & TENSOR;

	if ((group->tensor <= 1 || tensor) && (group->sharded <= 1 || rules & SHARDED))
		return check_parts(layout, err);
	return pd_error_input(err, "%s: profile: group: %s cannot be told that a rank is %" PRId64 " devices: expected %s",
			      pd_plan_name(layout->plan), layout->who, pd_degrees_devices(group),
			      tensor ? "one that shares no weights out" : "one device");
}

/* Checks what the system recomputes, and sets it. */
static int check_again(struct pd_layout *layout, int rules, struct pd_error *err)
{
	if (!(rules & TOGETHER))
		return check_whole(layout, err);
	return rules & MODULES && reruns_in_part(layout) ? check_modules(layout, err) : check_recompute(layout, err);
}

static int check_links(const struct pd_layout *layout, struct pd_error *err)
{
	struct pd_wiring *wiring = pd_wiring_new(layout->plan);
	int result = pd_chain_check_links(layout->plan, wiring, layout->who, err);

	pd_wiring_free(wiring);
	return result;
}

/* Checks a plan by the row of its system. */
static int check_kind(struct pd_layout *layout, enum pd_layout_kind kind, struct pd_error *err)
{
	const struct pd_plan *plan = layout->plan;
	int rules = kinds[kind].rules;

	if (pd_topology_mixed(&plan->topology))
		return pd_error_input(err, "%s: its devices are of %d kinds, and a layout of %s does not say on which of "
				      "them a stage is: expected devices that are alike", pd_plan_name(plan),
				      plan->topology.kinds, layout->who);
	if (check_group(layout, rules, err) < 0 || pd_chain_check_flush(plan, layout->who, err) < 0 ||
	    pd_chain_check_replicas(plan, layout->who, err) < 0 || check_cuts(layout, err) < 0 ||
	    (rules & LINKS && check_links(layout, err) < 0) ||
	    (rules & SHARES && pd_chain_check_shares(plan, layout->who, err) < 0) ||
	    (rules & DECODER && pd_blocks_check_decoder(&layout->blocks, pd_plan_name(plan), layout->who, err) < 0) ||
	    check_schedule(layout, kind, err) < 0 || (!kinds[kind].others && check_leads(layout, err) < 0) || (rules & ROUNDS && check_rounds(layout, err) < 0) ||
	    (rules & FILLED && check_filled(layout, err) < 0) || (rules & EQUAL && check_equal(layout, err) < 0))
		return -1;
	return check_again(layout, rules, err);
}

static void layout_begin(struct pd_layout *layout, enum pd_layout_kind kind,
			 const struct pd_plan *plan, FILE *out)
{
	*layout = (struct pd_layout){ .plan = plan, .who = kinds[kind].system, .out = out,
				   .ranks = plan->rank_count / plan->stages[0].replicas };
	pd_blocks_init(&layout->blocks, plan->profile);
}

enum pd_memory_model pd_layout_memory(enum pd_layout_kind kind)
{
	return kinds[kind].memory;
}

const char *pd_layout_system(enum pd_layout_kind kind)
{
	return kinds[kind].system;
}

bool pd_layout_recomputes_apart(enum pd_layout_kind kind, const struct pd_plan *plan)
{
	struct pd_error err;
	struct pd_layout layout;
	bool apart;

	layout_begin(&layout, kind, plan, NULL);
	apart = check_again(&layout, kinds[kind].rules, &err) < 0;
	pd_blocks_release(&layout.blocks);
	return apart;
}

int pd_layout_check(enum pd_layout_kind kind, const struct pd_plan *plan, struct pd_error *err)
{
	struct pd_layout layout;
	int result;

	layout_begin(&layout, kind, plan, NULL);
	result = check_kind(&layout, kind, err);
	pd_blocks_release(&layout.blocks);
	return result;
}

int pd_layout_write(enum pd_layout_kind kind, const struct pd_plan *plan, FILE *out, struct pd_error *err)
{
	static pd_layout_writer *const write[] = {
#define LAYOUT_KIND(name, ...) pd_layout_write_##name,
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND
	};
	struct pd_layout layout;
	int result;

	layout_begin(&layout, kind, plan, out);
	result = check_kind(&layout, kind, err) < 0 ? -1 : write[kind](&layout, err);
	if (result == 0)
		say_placement(&layout);
	pd_blocks_release(&layout.blocks);
	if (result == 0 && (fflush(out) != 0 || ferror(out)))
		return pd_error_failed(err, "cannot write the layout: %s", strerror(errno));
	return result;
}
