/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/like.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/names.h"
#include "base/opt.h"
#include "estimate/estimate.h"
#include "planner/cut/partition.h"
#include "planner/search/gain.h"
#include "planner/top.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const answers[] = { "no", "yes", NULL };
static const char *const shards[] = { "none", "optimizer", "full", NULL };

/* The words of a layout: a number from 1 to `most`, or one of some names. */
static const struct like_key {
	const char *name;
	size_t offset;
	int64_t most;
	const char *const *names;
} keys[] = {
#define NUMBER(name, member, most) { name, offsetof(struct pd_like, member), most, NULL }
#define NAMED(name, member, names) { name, offsetof(struct pd_like, member), 0, names }
	NUMBER("tp", tensor, PD_MAX_RANKS), NAMED("sp", sequence, answers),
	NUMBER("pp", positions, PD_MAX_RANKS), NUMBER("vp", chunks, 4096),
	NUMBER("dp", replicas, PD_MAX_RANKS), NUMBER("cp", context, PD_MAX_RANKS),
	NUMBER("ep", experts, PD_MAX_RANKS), NUMBER("fsdp", sharded, PD_MAX_RANKS),
	NAMED("shard", shard, shards), NUMBER("micro", micro, PD_MAX_EXTENT),
	NUMBER("batch", batch, PD_MAX_EXTENT), NUMBER("round", round, PD_MAX_ROUND),
	NAMED("schedule", schedule, pd_schedule_kind_name),
	NAMED("weights", weights, pd_weight_kind_name),
#undef NUMBER
#undef NAMED
};

/* What recomputation is called elsewhere, and what --recompute calls it. */
static const char *const recomputes[][2] = {
	{ "full", "blocks" }, { "selective", "attention" }, { "alternate", "blocks:/2" },
	{ "selective_op", "selective-op" },
};

static void set_recompute(struct pd_like *like, const char *value)
{
	for (size_t i = 0; i < PD_COUNT(recomputes); i++)
		if (strcmp(value, recomputes[i][0]) == 0)
			value = recomputes[i][1];
	free(like->recompute);
	like->recompute = pd_strdup(value);
}

static int find_key(const char *word, struct pd_error *err)
{
	const char *names[PD_COUNT(keys) + 2] = { NULL };
	int count = (int)PD_COUNT(keys);

	for (int k = 0; k < count; k++)
		names[k] = keys[k].name;
	names[count] = "recompute";
	return pd_names_find(names, word, err);
}

static int read_value(struct pd_like *like, const struct like_key *key, const char *value,
		      struct pd_error *err)
{
	void *member = (char *)like + key->offset;
	int *number = member;

	if (!key->names)
		return pd_parse_count(value, 1, key->most, member, err);
	*number = pd_names_find(key->names, value, err);
	return *number < 0 ? -1 : 0;
}

/* Reads "tp=4", in place. */
static int read_word(struct pd_like *like, char *word, struct pd_error *err)
{
	char *value = strchr(word, '=');
	int k;

	if (!value)
		return pd_error_input(err, "expected words such as tp=4, found \"%.60s\"", word);
	*value++ = '\0';
	k = find_key(word, err);
	if (k < 0)
		return -1;
	if (k == (int)PD_COUNT(keys)) {
		set_recompute(like, value);
		return 0;
	}
	return read_value(like, &keys[k], value, err) < 0 ? pd_error_prefix(err, "%s", word) : 0;
}

/* Refuses what is not planned, and what contradicts itself. */
static int check_words(const struct pd_like *like, struct pd_error *err)
{
	bool named = like->schedule >= 0;
	enum pd_schedule_kind schedule = named ? (enum pd_schedule_kind)like->schedule
					       : PD_SCHEDULE_NONE;

	if (like->context > 1)
		return pd_error_input(err, "cp=%" PRId64 ": plans have no context parallelism: "
				      "expected cp=1", like->context);
	if (like->experts > 1)
		return pd_error_input(err, "ep=%" PRId64 ": plans have no expert parallelism: "
				      "expected ep=1", like->experts);
	if (like->schedule == PD_SCHEDULE_ORDERED)
		return pd_error_input(err, "schedule=ordered: expected the name of a schedule");
	if (like->chunks > 1 && named && !pd_schedule_has(schedule, PD_FACT_SHARES))
		return pd_error_input(err, "vp=%" PRId64 ": schedule \"%s\" has one stage on each "
				      "rank: expected interleaved", like->chunks,
				      pd_schedule_kind_name[schedule]);
	if (like->chunks > 1 && like->positions <= 1)
		return pd_error_input(err, "vp=%" PRId64 ": expected pp=2 or more", like->chunks);
	if (like->sharded > 1 && like->shard >= 0 && like->shard != PD_LIKE_FULL)
		return pd_error_input(err, "fsdp=%" PRId64 ": expected shard=full, found shard=%s",
				      like->sharded, shards[like->shard]);
	if (like->sharded > 1 && like->replicas > 0 && like->replicas % like->sharded != 0)
		return pd_error_input(err, "fsdp=%" PRId64 ": expected a divisor of dp=%" PRId64,
				      like->sharded, like->replicas);
	return 0;
}

/* Makes blanks of the commas between words; in recompute=attention,gelu what follows has no "=". */
static void part_words(char *text)
{
	for (char *c = text; *c; c++) {
		size_t word = *c == ',' ? strcspn(c + 1, ", =") : 0;

		if (*c == ',' && c[1 + word] == '=')
			*c = ' ';
	}
}

int pd_like_parse(const char *text, const struct pd_layout_door *door, struct pd_like *like_p,
		  struct pd_error *err)
{
	char *copy = pd_strdup(text), *rest = NULL, *word;
	int status = 0;

	*like_p = (struct pd_like){ .text = pd_strdup(text), .door = door, .sequence = -1,
				    .shard = -1, .schedule = -1, .weights = -1 };
	part_words(copy);
	word = strtok_r(copy, " ", &rest);
	if (!word)
		status = pd_error_input(err, "expected words such as tp=4, found none");
	for (; word && status == 0; word = strtok_r(NULL, " ", &rest))
		status = read_word(like_p, word, err);
	if (status == 0)
		status = check_words(like_p, err);
	free(copy);
	if (status < 0)
		pd_like_release(like_p);
	return status < 0 ? pd_error_prefix(err, "--like") : 0;
}

void pd_like_release(struct pd_like *like)
{
	free(like->text);
	free(like->recompute);
	*like = (struct pd_like){ 0 };
}

/* What a layout is planned with. */
struct likening {
	const struct pd_like *like;
	const struct pd_planner_ask *ask;
	struct pd_plan_request request;
	struct pd_group_request groups;
	/* those of the microbatch that is said, or one that was estimated for it */
	struct pd_profile **profiles;
	int *numbers;                   /* of these in ask */
	bool estimated, grouped;
	int64_t replicas;               /* of a rank */
	char *stages;
	int *segments;
};

static int64_t one_or(int64_t n)
{
	return n > 0 ? n : 1;
}

/* Sets degrees: ranks of tensor x sharded devices, so many replicas of each stage. */
static int set_degrees(struct likening *l, struct pd_error *err)
{
	const struct pd_like *like = l->like;
	const struct pd_topology *topology = l->ask->request->topology;
	int64_t tensor = one_or(like->tensor), positions = one_or(like->positions);
	int64_t pipeline = tensor * positions, sharded = one_or(like->sharded);
	int64_t all = like->replicas ? like->replicas : pd_max(topology->devices / pipeline, 1);

	if (pipeline * all > topology->devices)
		return pd_error_input(err, "tp %" PRId64 " x pp %" PRId64 " x dp %" PRId64
				      " are %" PRId64 " devices, and the topology has %" PRId64,
				      tensor, positions, all, pipeline * all, topology->devices);
	if (like->shard == PD_LIKE_FULL && like->sharded == 0)
		sharded = all;
	if (all % sharded != 0)
		return pd_error_input(err, "fsdp=%" PRId64 ": expected a divisor of dp %" PRId64,
				      sharded, all);
	if (tensor * sharded > 1 && pd_topology_mixed(topology))
		return pd_error_input(err, "%s: expected devices of one kind, and these are of %d",
				      tensor > 1 ? "tp" : "shard=full", topology->kinds);
	l->replicas = all / sharded;
	l->groups = (struct pd_group_request){ .count = 1, .asked = true };
	l->groups.spans = tensor * sharded > topology->level[0].count ||
			  (l->ask->groups && l->ask->groups->spans);
	l->groups.choices[0] = (struct pd_group_choice){
		.group = { .tensor = tensor, .sharded = sharded,
			   .sequence = like->sequence > 0 && tensor > 1 },
		.shards_optimizer = like->shard == PD_LIKE_OPTIMIZER
	};
	return 0;
}

/* Takes the profiles of the microbatch that is said, or has one estimated for it. */
static int set_profiles(struct likening *l, struct pd_error *err)
{
	const struct pd_planner_ask *ask = l->ask;
	const struct pd_profile *first = ask->profiles[0];
	int count = 0;

	l->profiles = pd_calloc((size_t)ask->count, sizeof(struct pd_profile *));
	l->numbers = pd_calloc((size_t)ask->count, sizeof(*l->numbers));
	if (pd_degrees_devices(&first->group) > 1)
		return pd_error_input(err, "profile \"%.60s\" is of %" PRId64 " devices that act "
				      "as one: "
				      "expected one of a single device", first->name,
				      pd_degrees_devices(&first->group));
	for (int i = 0; i < ask->count; i++)
		if (l->like->micro == 0 || ask->profiles[i]->batch_size == l->like->micro) {
			l->numbers[count] = i;
			l->profiles[count++] = ask->profiles[i];
		}
	if (count == 0) {
		if (!first->sheet || !first->model)
			return pd_error_input(err, "micro=%" PRId64 ": no profile has this batch "
					      "size: "
					      "expected pd-profile --batch-size=%" PRId64,
					      l->like->micro, l->like->micro);
		l->profiles[0] = pd_estimate_again(first, l->like->micro, NULL,
						   first->memory.model != PD_MEMORY_OWN, err);
		if (!l->profiles[0])
			return -1;
		l->estimated = true;
	}
	return count > 0 ? count : 1;
}

/*
 * Tells whether times are estimated anew for the degrees.  They are for single devices, too, of
 * programs that keep less than pd-run does.
 */
static bool needs_groups(const struct likening *l)
{
	const struct pd_group_choice *choice = &l->groups.choices[0];
	const struct pd_profile *profile = l->profiles[0];
	bool others = choice->shards_optimizer || profile->memory.model != PD_MEMORY_OWN;

	return pd_degrees_devices(&choice->group) > 1 || (profile->sheet && profile->model &&
							  others);
}

/*
 * Returns the schedule of the layout: what it says, what the request does if that may be, or the
 * usual one.
 */
static enum pd_schedule_kind schedule_of(const struct likening *l)
{
	const struct pd_like *like = l->like;
	const struct pd_plan_request *request = &l->request;
	bool several = like->chunks > 1;
	bool named = !request->any_schedule && request->schedule != PD_SCHEDULE_ORDERED;

	if (like->schedule >= 0)
		return (enum pd_schedule_kind)like->schedule;
	if (!named || pd_schedule_has(request->schedule, PD_FACT_SHARES) != several)
		return several ? PD_SCHEDULE_INTERLEAVED : PD_SCHEDULE_1F1B;
	return request->schedule;
}

/* Sets how many stages a rank has. */
static int set_chunks(struct likening *l, struct pd_error *err)
{
	enum pd_schedule_kind schedule = l->request.schedule;
	int64_t chunks = one_or(l->like->chunks);

	if (pd_schedule_has(schedule, PD_FACT_V)) {
		chunks = PD_PLANNER_CHUNKS;
		if (l->like->chunks > 0 && l->like->chunks != chunks)
			return pd_error_input(err, "vp=%" PRId64 ": schedule \"%s\" has %d on each "
					      "rank",
					      l->like->chunks, pd_schedule_kind_name[schedule],
					      PD_PLANNER_CHUNKS);
	}
	l->request.chunks = pd_schedule_has(schedule, PD_FACT_SHARES) ? (int)chunks : 0;
	l->request.any_chunks = false;
	return 0;
}

static int set_policy(struct likening *l, bool weights_said, struct pd_error *err)
{
	const struct pd_like *like = l->like;
	struct pd_plan_request *request = &l->request;
	enum pd_schedule_kind schedule = schedule_of(l);

	if (schedule == PD_SCHEDULE_NONE && one_or(like->positions) == 1)
		schedule = PD_SCHEDULE_1F1B;
	request->schedule = schedule;
	request->any_schedule = request->any_weights = request->straight = false;
	if (like->weights >= 0)
		request->weights = (enum pd_weight_kind)like->weights;
	else if (!weights_said)
		request->weights = pd_schedule_goes_with(schedule, PD_WEIGHTS_FLUSH)
			? PD_WEIGHTS_FLUSH : pd_schedule_usual_weights(schedule);
	if (!pd_schedule_goes_with(schedule, request->weights))
		return pd_error_input(err, "schedule \"%s\" does not go with weights \"%s\"",
				      pd_schedule_kind_name[schedule],
				      pd_weight_kind_name[request->weights]);
	if (!pd_schedule_has(schedule, PD_FACT_ROUNDS))
		request->round = 0;
	else if (like->round > 0)
		request->round = like->round;
	if (!pd_schedule_has(schedule, PD_FACT_LEADS))
		request->startup = PD_STARTUP_FRUGAL;
	return set_chunks(l, err);
}

/* Sets the microbatches of an update where the size of one is known. */
static int set_batch(struct likening *l, struct pd_planner_ask *with, struct pd_error *err)
{
	int64_t batch = l->like->batch ? l->like->batch : l->ask->batch;
	int64_t sharded = l->groups.choices[0].group.sharded, micro = l->profiles[0]->batch_size;
	int64_t each = micro * sharded;

	with->batch = batch;
	if (l->like->batch)
		l->request.microbatches = 0;
	if (batch == 0 || with->count > 1)
		return 0;
	if (batch % (each * l->replicas) != 0)
		return pd_error_input(err, "a global batch of %" PRId64 " samples is no multiple "
				      "of "
				      "microbatches of %" PRId64 " on %" PRId64 " replicas", batch,
				      micro, sharded * l->replicas);
	l->request.microbatches = batch / each;
	with->batch = 0;
	return 0;
}

/* Returns how many layers each of so many stages has that take about equally long; or NULL. */
static int *even_times(const struct likening *l, int stages, struct pd_error *err)
{
	bool v = pd_schedule_has(l->request.schedule, PD_FACT_V);
	int chunks = pd_max(l->request.chunks, 1), *layers = NULL;
	struct pd_partition *partition;
	struct pd_costs costs;

	pd_costs_init(&costs, l->profiles[0], pd_weights_copy_shared(l->request.weights));
	partition = v ? pd_v_partition(&costs, stages / chunks)
		      : pd_chunks_partition(&costs, chunks, stages / chunks, 0, err);
	if (!partition || partition->stage_count != stages)
		pd_error_input(err, "pp x vp are %d stages, and the network can be cut into %d",
			       stages, costs.unit_count);
	else
		layers = pd_memdup(partition->layers, (size_t)stages * sizeof(*layers));
	pd_partition_free(partition);
	pd_costs_release(&costs);
	return layers;
}

/* Returns stages of so many layers as --stages takes them. */
static char *stages_text(const int *layers, int stages, int64_t replicas)
{
	char *text;
	size_t size;
	FILE *out = pd_mem_stream(&text, &size);

	for (int s = 0; s < stages; s++)
		fprintf(out, "%s%dx%" PRId64, s > 0 ? "," : "", layers[s], replicas);
	pd_mem_stream_close(out);
	return text;
}

static int set_stages(struct likening *l, struct pd_error *err)
{
	int64_t stages = one_or(l->like->positions) * pd_max(l->request.chunks, 1);
	const struct pd_profile *profile = l->profiles[0];
	int *layers;

	if (stages > profile->layer_count)
		return pd_error_input(err, "pp x vp are %" PRId64 " stages, and the network has %d "
				      "layers", stages, profile->layer_count);
	layers = l->like->door->even_stages(profile, (int)stages);
	if (!layers)
		layers = even_times(l, (int)stages, err);
	if (!layers)
		return -1;
	l->stages = stages_text(layers, (int)stages, l->replicas);
	l->request.stages = l->stages;
	l->request.stages_need = "this layout needs";
	free(layers);
	return 0;
}

static int set_recomputed(struct likening *l, struct pd_error *err)
{
	const char *what = l->like->recompute;
	struct pd_plan_request *request = &l->request;
	int kind = what ? pd_names_index(pd_recompute_kind_name, what) : -1;

	if (!what)
		return 0;
	request->recomputed = NULL;
	request->segments_asked = false;
	if (kind >= 0) {
		request->recompute = (enum pd_recompute_kind)kind;
		return 0;
	}
	request->recompute = PD_RECOMPUTE_NONE;
	l->segments = l->like->door->segments(l->profiles[0], what, err);
	request->segments = l->segments;
	request->segments_asked = true;
	return l->segments ? 0 : pd_error_prefix(err, "recompute");
}

/*
 * Has replicas share out what the optimizer keeps, or not, as the layout says; was[i] is whether
 * those of a profile did.
 */
static int set_sharded(const struct likening *l, int count, bool *was, struct pd_error *err)
{
	bool asked = l->like->shard == PD_LIKE_OPTIMIZER;

	if (asked && !l->grouped && l->profiles[0]->memory.model == PD_MEMORY_OWN)
		return pd_error_input(err, "shard=optimizer: pd-run shares nothing out: expected "
				      "--memory-model=torch or megatron");
	for (int i = 0; i < count; i++) {
		struct pd_memory_rule *rule = &l->profiles[i]->memory;

		was[i] = rule->sharded;
		if (l->like->shard >= 0)
			rule->sharded = asked && rule->model != PD_MEMORY_OWN;
	}
	return 0;
}

/* Leaves the profiles of ask as they were; one that the plan took over is NULL there. */
static void restore_profiles(const struct likening *l, int count, const bool *was)
{
	for (int i = 0; i < count; i++) {
		if (l->profiles[i])
			l->profiles[i]->memory.sharded = was[i];
		else if (!l->estimated)
			l->ask->profiles[l->numbers[i]] = NULL;
	}
}

static void likening_release(struct likening *l)
{
	if (l->estimated)
		pd_profile_free(l->profiles[0]);
	free(l->profiles);
	free(l->numbers);
	free(l->stages);
	free(l->segments);
}

static struct pd_plan *plan_likening(struct likening *l, bool weights_said, struct pd_error *err)
{
	struct pd_planner_ask with = { .profiles = NULL, .request = &l->request };
	struct pd_plan *plan;
	bool *was;

	if (set_degrees(l, err) < 0)
		return NULL;
	with.count = set_profiles(l, err);
	if (with.count < 0 || set_policy(l, weights_said, err) < 0 ||
	    set_batch(l, &with, err) < 0 || set_stages(l, err) < 0 || set_recomputed(l, err) < 0)
		return NULL;
	with.profiles = l->profiles;
	l->grouped = needs_groups(l);
	with.groups = l->grouped ? &l->groups : NULL;
	was = pd_calloc((size_t)with.count, sizeof(*was));
	plan = NULL;
	if (set_sharded(l, with.count, was, err) == 0) {
		plan = pd_planner_choose(&with, err);
		restore_profiles(l, with.count, was);
	}
	free(was);
	return plan;
}

struct pd_plan *pd_like_plan(const struct pd_like *like, const struct pd_planner_ask *ask,
			     bool weights_said, struct pd_error *err)
{
	struct likening l = { .like = like, .ask = ask, .request = *ask->request };
	struct pd_plan *plan = plan_likening(&l, weights_said, err);

	likening_release(&l);
	if (!plan)
		pd_error_prefix(err, "--like");
	return plan;
}

/* Gives the profile of ask that a plan took over back, with the memory that it had. */
static void give_back(const struct pd_planner_ask *ask, const struct pd_memory_rule *memory,
		      struct pd_plan *plan)
{
	for (int i = 0; i < ask->count; i++) {
		if (ask->profiles[i])
			continue;
		ask->profiles[i] = plan->profile;
		ask->profiles[i]->memory = *memory;
		plan->profile = NULL;
	}
}

int pd_like_row(const struct pd_like *like, const struct pd_planner_ask *ask, bool weights_said,
		struct pd_top_row *row_p, struct pd_error *err)
{
	struct pd_memory_rule memory = ask->profiles[0]->memory;        /* of all of them */
	struct pd_plan_request unlimited = *ask->request;
	struct pd_planner_ask with = *ask;
	struct pd_plan *plan;
	bool fits;

	with.top = NULL;
	plan = pd_like_plan(like, &with, weights_said, err);
	fits = plan != NULL;
	if (!plan && err->status == PD_EXIT_NO) {
		unlimited.memory_bytes = PD_MEMORY_UNLIMITED;
		with.request = &unlimited;
		plan = pd_like_plan(like, &with, weights_said, err);
	}
	if (!plan)
		return -1;
	*row_p = pd_top_row_of(plan, plan->predicted.period_ns);
	row_p->yours = like->text;
	row_p->fits = fits;
	row_p->value = pd_gain_value(ask->request->min_gain, row_p->period_ns, (int)row_p->devices,
				     row_p->batch_size);
	row_p->bottleneck = ask->top->bottleneck(plan);
	give_back(ask, &memory, plan);
	pd_plan_free(plan);
	return 0;
}
