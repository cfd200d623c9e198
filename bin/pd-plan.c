/* SPDX-License-Identifier: Apache-2.0 */
/* profile + topology -> plan */
#include "base/clock.h"
#include "base/file_kind.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/names.h"
#include "base/opt.h"
#include "base/progress_bar.h"
#include "doors/layout/even.h"
#include "doors/layout/read.h"
#include "doors/layout/segments.h"
#include "doors/layout/write.h"
#include "doors/machine/machine.h"
#include "doors/network/named.h"
#include "estimate/sizes.h"
#include "explain/answer.h"
#include "explain/explain.h"
#include "explain/remarks.h"
#include "explain/top.h"
#include "plan/show.h"
#include "plan/sparse.h"
#include "planner/cut/task.h"
#include "planner/kinds.h"
#include "planner/like.h"
#include "predict/step.h"
#include "topology/contract.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_PROFILES 64
#define LEAST_IMAGES 8          /* of a microbatch, where samples have no tokens */
#define SHORT_NS 1000000000     /* of which no progress is shown */
#define MIN_GAIN 1.0            /* percent, where nobody pays for whole servers */

static struct pd_plan_request request = { .sparsity = -1 };
static int64_t gpus, processors;
static const char *topology_name, *kinds_of_devices;
static const char *on, *device;         /* whose devices' profiles are estimated here */
static struct pd_named_machine machine;       /* that `on` names */
static struct pd_network_ask network;   /* what is said of the model */
static int dtype = -1;                  /* -1: not said */
static bool explain, quiet, eager, questions;
static struct {
	int64_t most_asked;
	bool pareto;
} best_plans;
static struct pd_top top;
static const char *like_text;
static struct pd_like like;
static struct pd_group_request groups;
static const char *tensor;
static int cost, format;
static const char *bucket, *recompute = "auto";
static int gradient_dtype;
/* Each is the number of a kind, or that of "auto", which is how many kinds there are. */
static int schedule = -1;              /* -1: not said */
static int all_reduce = PD_REDUCER_dense;
static int weights = -1;                /* -1: not said */
static bool weights_open;               /* none was named */
static int64_t chunks, batch;
static const char *virtual_stages;
static double min_gain = -1, times = 1, pairs;
static struct pd_effort effort;
static struct pd_progress_bar bar;
static struct pd_search_progress progress;
static volatile sig_atomic_t interrupted;       /* by this signal */
static bool memory_is_systems;          /* as the system of --format keeps it, without being asked */

static const char *const schedules[] = {
#define SCHEDULE_KIND(symbol, name, usual, weights, facts, what) name,
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
	"auto", "zb-auto", NULL
};
/* As torch.distributed.pipelining calls them, with its classes' names. */
static const char *const torch_schedules[][2] = {
	{ "1F1B", "1f1b" }, { "Schedule1F1B", "1f1b" },
	{ "GPipe", "gpipe" }, { "ScheduleGPipe", "gpipe" },
	{ "Interleaved1F1B", "interleaved" }, { "ScheduleInterleaved1F1B", "interleaved" },
	{ "ZBVZeroBubble", "zb-v" }, { "ScheduleZBVZeroBubble", "zb-v" },
	{ "DualPipeV", "dualpipe-v" }, { "ScheduleDualPipeV", "dualpipe-v" },
#define NO_BFS "!PyTorch's schedule without 1F1B; expected interleaved, which keeps less, or its " \
	"table (pd-schedule --plan=PLAN TABLE.csv)"
#define NO_INTERLEAVED_ZB "!PyTorch's schedule of several stages a rank; expected zb-auto or zb-v, " \
	"or its table (pd-schedule --plan=PLAN TABLE.csv)"
	{ "LoopedBFS", NO_BFS }, { "ScheduleLoopedBFS", NO_BFS },
	{ "InterleavedZeroBubble", NO_INTERLEAVED_ZB },
	{ "ScheduleInterleavedZeroBubble", NO_INTERLEAVED_ZB }, { NULL }
};

#define ZB_AUTO (PD_SCHEDULE_KINDS + 1) /* schedule "ordered", by the name of what is done */

static const char *const weight_kinds[] = {
#define WEIGHT_KIND(symbol, name, facts, what) name,
#include "plan/weight_kind.def"
#undef WEIGHT_KIND
	"auto", NULL
};

static const char *const reducers[] = {
#define REDUCER_KIND(symbol, name, what) name,
#include "sums/reducer_kind.def"
#undef REDUCER_KIND
	"auto", NULL
};

static int memory_model = -1;    /* not given: the profile's */
static double memory_margin = -1;
static const char *shard = "";
static bool shards_optimizer, shards_full;

/* then enum pd_layout_kind */
enum { JSON, SVG, DOT, TABLE, MARKDOWN, CSV, JSONL, LAYOUTS };
static const char *const formats[] = {
	"json", "svg", "dot", "table", "markdown", "csv", "jsonl",
#define LAYOUT_KIND(name, ...) #name,
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND
	NULL
};

/* For which system: enum pd_layout_kind, or SYSTEMS: pd-run; -1: not said. */
static const char *const systems[] = {
#define LAYOUT_KIND(name, ...) #name,
#include "doors/layout/layout_kind.def"
#undef LAYOUT_KIND
	"pd-run", NULL
};
#define PD_RUN PD_LAYOUT_KINDS
static int system_asked = -1;

enum { CUT_LAYERS, CUT_MODULES, CUT_BLOCKS };
static const char *const cuts[] = { "layers", "modules", "blocks", NULL };
static int cut = -1;                    /* -1: not said */

/* Tells whether the stages that recompute are named by their numbers. */
static bool names_stages(void)
{
	bool numbers = isdigit((unsigned char)*recompute);

	for (const char *c = recompute; *c; c++)
		numbers = numbers && (isdigit((unsigned char)*c) ||
				      (*c == ',' && isdigit((unsigned char)c[1])));
	return numbers;
}

static const struct pd_opt options[] = {
	PD_OPT_GROUP("Machine"),
	{ "gpus", 'g', PD_OPT_COUNT, "N", "plan for N devices with links as in the profile", &gpus,
	  1, PD_MAX_RANKS },
	{ "topology", 't', PD_OPT_STRING, "FILE|STRING", "the machine, such as 4@12GB/s,4@10Gbit/s",
	  &topology_name, .excludes = "gpus on", .why = "each says how many devices there are" },
	{ "on", 0, PD_OPT_STRING, "[Nx]MACHINE",
	  "N servers by name, such as 8xdgx-h100 (pd-machine(5)), or a file of nvidia-smi topo -m, NCCL or "
	  "pd-topo", &on, .excludes = "gpus devices", .why = "it says which devices there are" },
	{ "device", 'd', PD_OPT_STRING, "NAME",
	  "the devices by their data sheet (pd-device(5)): the operand is a model", &device,
	  .excludes = "devices processors" },
	{ "devices", 0, PD_OPT_STRING, "LIST",
	  "what ranks have, in their order, such as A100x16,V100x16: a profile of each kind",
	  &kinds_of_devices },
	{ "tensor", 0, PD_OPT_STRING, "T,...[,sequence]",
	  "ranks are T devices that share layers out; tries each number", &tensor },
	{ "group-spans", 0, PD_OPT_FLAG, NULL, "devices that act as one may be of several servers",
	  &groups.spans },
	{ "processors", 0, PD_OPT_COUNT, "N", "all ranks share N processors of one machine",
	  &processors, 1, PD_MAX_RANKS },
	{ "memory", 'm', PD_OPT_BYTES, "BYTES", "memory of one device, such as 16GB",
	  &request.memory_bytes, 1 },
	{ "memory-model", 0, PD_OPT_CHOICE, "NAME",
	  "whose memory: pd-run (default), torch, megatron", &memory_model,
	  .choices = pd_memory_model_name },
	{ "memory-margin", 0, PD_OPT_REAL, "PERCENT",
	  "with --memory-model: what the allocator keeps, of what is used (default: 10)",
	  &memory_margin, 0, 1000 },
	{ "shard", 0, PD_OPT_STRING, "WHAT",
	  "share out what the optimizer keeps among replicas: optimizer; or all weights among "
	  "devices that act as one: full; optimizer,full tries both",
	  &shard },
	PD_OPT_GROUP("Model"),
	{ "dtype", 0, PD_OPT_CHOICE, "TYPE",
	  "type to compute in: f32, bf16, f16 (default: the model's, else bf16)", &dtype,
	  .choices = pd_dtype_of_nets, .needs = "on device" },
	{ "sequence", 0, PD_OPT_COUNT, "N", "tokens of a sample (default: the model's)",
	  &network.size.sequence, 1, PD_NETWORK_MOST, .needs = "on device" },
	PD_OPT_GROUP("Schedule and weights"),
	{ "schedule", 0, PD_OPT_CHOICE, "NAME",
#define SCHEDULE_KIND(symbol, name, ...) name ", "
#include "plan/schedule_kind.def"
#undef SCHEDULE_KIND
	  "zb-auto, auto (default: 1f1b; of a model: auto)", &schedule, .choices = schedules,
	  .aliases = torch_schedules },
	{ "weights", 0, PD_OPT_CHOICE, "NAME",
#define WEIGHT_KIND(symbol, name, ...) name ", "
#include "plan/weight_kind.def"
#undef WEIGHT_KIND
	  "auto (default: pd-plan(1))", &weights, .choices = weight_kinds },
	{ "microbatches", 0, PD_OPT_COUNT, "M",
	  "microbatches of an update (default: see pd-plan(1))", &request.microbatches, 1,
	  1 << 30 },
	{ "batch", 'b', PD_OPT_COUNT, "B", "most samples of an update, cut into microbatches",
	  &batch, 1, PD_MAX_EXTENT, .excludes = "microbatches",
	  .why = "each says how many samples an update is made of" },
	{ "virtual-stages", 0, PD_OPT_STRING, "V|auto",
	  "stages of each rank, interleaved; auto: the best of 2 to 8 (default: 2, with "
	  "--schedule=auto: auto)",
	  &virtual_stages, .excludes = "chunks" },
	{ "chunks", 0, PD_OPT_COUNT, "V", "the same, with a number", &chunks, 1, 4096 },
	{ "round", 0, PD_OPT_COUNT, "G",
	  "microbatches that go through a stage before its rank's next one, interleaved "
	  "(default: the ranks)",
	  &request.round, 1, PD_MAX_ROUND },
	{ "eager", 0, PD_OPT_FLAG, NULL, "do every forward that arrives before the first backward",
	  &eager },
	{ "recompute", 0, PD_OPT_STRING, "STAGES",
	  "what is computed again: auto (default), selective, none, all, blocks, stages 0,2, kinds "
	  "attention,gelu, modules:NAME, layers:NAME",
	  &recompute, .otherwise = "all", .needs = "stages", .counts = names_stages,
	  .which = "numbers", .why = "it has numbers of stages" },
	{ "agree", 0, PD_OPT_FLAG, NULL, "all stages agree on every update, as to clip gradients",
	  &request.agree },
	PD_OPT_GROUP("Sums of gradients"),
	{ "all-reduce", 0, PD_OPT_CHOICE, "NAME",
	  "how replicas sum gradients: "
#define REDUCER_KIND(symbol, name, ...) name ", "
#include "sums/reducer_kind.def"
#undef REDUCER_KIND
	  "auto (default: dense)",
	  &all_reduce, .choices = reducers },
	{ "gradient-dtype", 0, PD_OPT_CHOICE, "TYPE",
	  "what gradients are rounded to between replicas: f32 (default), bf16, f16",
	  &gradient_dtype, .choices = pd_dtype_of_nets },
	{ "bucket", 0, PD_OPT_STRING, "BYTES|auto",
	  "replicas sum gradients in buckets of more than BYTES, under backward", &bucket },
	{ "pairs", 0, PD_OPT_REAL, "PART",
	  "a forward and a backward that run together take PART of their time, such as 0.9 "
	  "(default: the profile's)",
	  &pairs, PD_PAIRS_LEAST, 1 },
	{ "sparsity", 0, PD_OPT_REAL, "PART",
	  "replicas keep PART of their chunks of gradients for later, such as 0.85",
	  &request.sparsity, 0, PD_SPARSITY_MOST },
	{ "chunk", 0, PD_OPT_COUNT, "N", "gradients of a chunk (default: 32000)", &request.chunk, 1,
	  PD_MAX_EXTENT, .needs = "sparsity" },
	{ "sparsity-warmup", 0, PD_OPT_COUNT, "N",
	  "minibatches in which the sparsity rises from 0 (default: 0)", &request.sparsity_warmup,
	  0, PD_MAX_EXTENT, .needs = "sparsity" },
	PD_OPT_GROUP("Search"),
	{ "straight", 's', PD_OPT_FLAG, NULL, "one rank per stage: no replicas",
	  &request.straight },
	{ "stages", 0, PD_OPT_STRING, "LIST",
	  "layers and replicas by hand, such as 8x1,6x1; megatron:LAYOUT, parts:0,9,18 or "
	  "fqns:FILE",
	  &request.stages },
	{ "like", 0, PD_OPT_STRING, "LAYOUT",
	  "plan this layout, such as \"tp=4 pp=4 vp=5 dp=4\"; with --top, a row of it beside the "
	  "others",
	  &like_text, .excludes = "stages cost straight devices" },
	{ "cut", 0, PD_OPT_CHOICE, "WHERE",
	  "where stages may begin: layers (default), modules, blocks", &cut, .choices = cuts,
	  .excludes = "stages", .why = "--stages says itself where stages begin" },
	{ "min-gain", 0, PD_OPT_REAL, "PERCENT",
	  "gain that one more device must bring (default: 1; 0 where the topology has servers)",
	  &min_gain, 0, 100 },
	{ "effort", 0, PD_OPT_REAL, "TIMES",
	  "how long a search may go on, in times of the usual (default: 1)", &times, 0, 1e6 },
	{ "cost", 'c', PD_OPT_CHOICE, "NAME",
	  "compare plans by: simulated (default), sosp19, released, released-no-traffic", &cost,
	  .choices = pd_cost_kind_name },
	PD_OPT_GROUP("Output"),
	{ "for", 0, PD_OPT_CHOICE, "SYSTEM",
	  "plan what a system can train: torchtitan, megatron, deepspeed, galvatron, pd-run", &system_asked,
	  .choices = systems },
	{ "format", 'f', PD_OPT_CHOICE, "NAME",
	  "write the plan (json, the default), a drawing of it (svg, dot), its stages for "
	  "another system (torchtitan, megatron, deepspeed, galvatron) or, with --top, table, "
	  "markdown, csv, jsonl",
	  &format, .choices = formats },
	{ "top", 0, PD_OPT_COUNT, "N",
	  "write the N best layouts instead of a plan (--format=table, on a terminal; else jsonl)",
	  &best_plans.most_asked, 1, 256, .excludes = "stages cost" },
	{ "pareto", 0, PD_OPT_FLAG, NULL,
	  "of these, those that no other beats in samples/s, devices and memory", &best_plans.pareto,
	  .needs = "top" },
	{ "questions", 0, PD_OPT_FLAG, NULL,
	  "answer questions on standard input, an object a line with options as keys, a line each",
	  &questions, .alone = "quiet" },
	{ "explain", 'e', PD_OPT_FLAG, NULL, "explain the plan on standard error", &explain },
	{ "quiet", 'q', PD_OPT_FLAG, NULL, "do not say what the plan comes to", &quiet },
	{ 0 }
};

static const char *const elsewhere[][2] = {
	{ "batch-size", "pd-profile" }, { "workers", "pd-profile" }, { NULL }
};

static const struct pd_command command = {
	.name = "pd-plan",
	.synopsis = "[OPTION]... [profile.json ... | MODEL]",
	.summary = "Divide a network into stages, and stages among devices.",
	.options = options,
	.elsewhere = elsewhere,
	.max_operands = MOST_PROFILES,
};

#define BAR_STEPS 1000
/* of a search, when half of its part counts as done: most are done sooner */
#define HALF_STEPS 1.5e9
/* of searching: before that nobody knows how long it will take */
#define LEFT_AFTER_NS 2000000000

/* How far the search is, as it was drawn. */
static struct {
	double part;
	int64_t searching_ns;           /* when equal pipelines had been looked at; 0: they are */
	double from, left_s;            /* the part that was done then; what was said to be left */
} drawn = { .left_s = INFINITY };

/*
 * Writes about how long it will go on, never more than before, or nothing: that is not known yet.
 */
static const char *show_left(char text[32])
{
	int64_t now = pd_now_ns(), since;

	if (progress.part >= PD_SEARCH_LOOKED && drawn.searching_ns == 0) {
		drawn.searching_ns = now;
		drawn.from = drawn.part;
	}
	since = drawn.searching_ns > 0 ? now - drawn.searching_ns : 0;
	text[0] = '\0';
	if (since < LEFT_AFTER_NS || drawn.part <= drawn.from)
		return text;
	drawn.left_s = fmin(drawn.left_s, (double)since / 1e9 * (1 - drawn.part) /
			    (drawn.part - drawn.from));
	snprintf(text, 32, "about %.0f s left, ", ceil(drawn.left_s));
	return text;
}

/* Draws how far the search is.  Bar and time never run backwards, though efforts begin anew. */
static void show(void *context, int64_t done, int64_t most)
{
	double within = (double)done / ((double)done + HALF_STEPS);
	double part = progress.part + (progress.next - progress.part) * within;
	char note[160], left[32];
	int length;

	(void)context;
	(void)most;
	drawn.part = fmax(drawn.part, fmin(part, 0.999));
	length = snprintf(note, sizeof(note), "%s", show_left(left));
	if (progress.variants > 1)
		length += snprintf(note + length, sizeof(note) - (size_t)length,
				   "%d of %d variants looked at, ",
				   (int)pd_min(progress.looked, progress.variants),
				   progress.variants);
	if (progress.samples_per_s > 0)
		snprintf(note + length, sizeof(note) - (size_t)length, "best %.4g samples/s (%s)",
			 progress.samples_per_s, pd_schedule_kind_name[progress.schedule]);
	bar.total = BAR_STEPS;
	pd_progress_bar_show(&bar, (int64_t)(drawn.part * BAR_STEPS), note);
}

static void interrupt(int signal)
{
	interrupted = signal;
}

/* Has the first SIGINT end the search, unless it is ignored; a second one ends the process. */
static void catch_interrupt(void)
{
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND };
	struct sigaction was;

	if (sigaction(SIGINT, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
		sigaction(SIGINT, &action, NULL);
}

/* Has SIGINT end the process again, and says what it ended. */
static void end_search(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL }, was;

	pd_progress_bar_end(&bar);
	if (sigaction(SIGINT, NULL, &was) == 0 && was.sa_handler == interrupt)
		sigaction(SIGINT, &action, NULL);
	if (interrupted)
		pd_say("interrupted: the search is not done, and what it has is the best so far");
}

/* Says how much a search may do, and how far it is. */
static void begin_search(void)
{
	pd_progress_bar_begin(&bar, "searching", 0, quiet);
	bar.after_ns = SHORT_NS;
	effort = (struct pd_effort){ .most = (int64_t)(times * PD_PLANNER_EFFORT), .progress = show,
				     .stopped = &interrupted };
	request.effort = &effort;
	catch_interrupt();
}

/* Returns the other system for which is planned, enum pd_layout_kind; -1: none. */
static int target(void)
{
	return system_asked >= 0 ? (system_asked == PD_RUN ? -1 : system_asked)
				 : format >= LAYOUTS ? format - LAYOUTS : -1;
}

/* Sets what the system for which is planned can do. */
static int request_system(struct pd_error *err)
{
	if (system_asked >= 0 && format >= LAYOUTS && format - LAYOUTS != system_asked)
		return system_asked == PD_RUN
			       ? pd_error_input(err, "--format=%s: pd-run reads the plan itself: expected json with "
						"--for=pd-run", formats[format])
			       : pd_error_input(err, "--format=%s: expected json or --format=%s with --for=%s", formats[format],
						systems[system_asked], systems[system_asked]);
	if (system_asked == PD_RUN && memory_model < 0)
		memory_model = PD_MEMORY_OWN;
	if (target() < 0)
		return 0;
	request.equal = true;
	request.schedules = pd_layout_schedules((enum pd_layout_kind)target());
	if (schedule >= 0 && schedule < PD_SCHEDULE_KINDS && !(request.schedules & 1u << schedule) && system_asked >= 0)
		return pd_error_input(err, "--schedule=%s: %s has no such schedule", schedules[schedule],
				      pd_layout_system((enum pd_layout_kind)target()));
	return 0;
}

/* Tells whether what is asked for is of other systems, which train by flush alone; so do those that run groups. */
static bool wants_flush(void)
{
	return target() >= 0 || groups.asked || shards_optimizer ||
	       (memory_model >= 0 && memory_model != PD_MEMORY_OWN);
}

/* Takes flush where it is all that can be, and no weights were named. */
static void take_flush(void)
{
	request.any_weights = false;
	request.weights = PD_WEIGHTS_FLUSH;
}

/* Sets how many stages a rank has, or that this is open. */
static int request_virtual_stages(struct pd_error *err)
{
	bool automatic = virtual_stages && strcmp(virtual_stages, "auto") == 0;

	if (virtual_stages && !automatic && pd_parse_count(virtual_stages, 1, 4096, &chunks, err) < 0)
		return pd_error_prefix(err, "--virtual-stages: expected auto or a number");
	if (automatic && request.stages)
		return pd_error_input(err, "--virtual-stages=auto: --stages says itself how many stages there are");
	if (automatic && !request.any_schedule && schedule != PD_SCHEDULE_INTERLEAVED)
		return pd_error_input(err, "--virtual-stages=auto: expected --schedule=interleaved or auto, found "
				      "\"%s\"", schedules[schedule]);
	request.any_chunks = automatic || (request.any_schedule && chunks == 0 && !request.stages);
	request.chunks = (int)chunks;
	return 0;
}

/* Sets schedule, weights and chunks. */
static int request_policy(struct pd_error *err)
{
	bool simulated = request.cost == PD_COST_SIMULATED;

	if (schedule < 0)
		schedule = PD_SCHEDULE_1F1B;
	request.any_schedule = schedule == PD_SCHEDULE_KINDS;
	if (request_virtual_stages(err) < 0)
		return -1;
	if (request.any_schedule)
		schedule = PD_SCHEDULE_1F1B;
	if (schedule == ZB_AUTO)
		schedule = PD_SCHEDULE_ORDERED;
	weights_open = weights < 0 || weights == PD_WEIGHT_KINDS;
	request.any_weights = weights == PD_WEIGHT_KINDS || (request.any_schedule && weights_open);
	request.schedule = (enum pd_schedule_kind)schedule;
	request.weights = weights_open ? pd_schedule_usual_weights(request.schedule) : (enum pd_weight_kind)weights;
	if (weights_open && wants_flush())
		take_flush();
	if (chunks && !pd_schedule_has(request.schedule, PD_FACT_SHARES) && !request.any_schedule)
		return pd_error_input(err, "--chunks: schedule \"%s\" has one stage on each rank; expected "
				      "\"interleaved\"", schedules[schedule]);
	if (request.round && !pd_schedule_has(request.schedule, PD_FACT_ROUNDS) && !request.any_schedule)
		return pd_error_input(err, "--round: schedule \"%s\" has no rounds; expected \"interleaved\"",
				      schedules[schedule]);
	if (chunks && chunks != PD_PLANNER_CHUNKS && pd_schedule_has(request.schedule, PD_FACT_V))
		return pd_error_input(err, "--chunks: schedule \"%s\" has %d on each rank, found %" PRId64,
				      schedules[schedule], PD_PLANNER_CHUNKS, chunks);
	if (pd_schedule_has(request.schedule, PD_FACT_SHARES) && !chunks &&
	    !pd_schedule_has(request.schedule, PD_FACT_ORDERED))
		request.chunks = PD_PLANNER_CHUNKS;
	request.startup = eager ? PD_STARTUP_EAGER : PD_STARTUP_FRUGAL;
	if (eager && !pd_schedule_has(request.schedule, PD_FACT_LEADS))
		return pd_error_input(err, "--eager: only schedule \"1f1b\" has a start-up of its own, "
				      "found \"%s\"", schedules[schedule]);
	if (request.agree && !request.any_weights &&
	    !pd_weights_have(request.weights, PD_WEIGHTS_GROUPS))
		return pd_error_input(err, "--agree: expected weights \"2bw\" or \"flush\", with which "
				      "all stages can wait for each other before an update, found "
				      "\"%s\"", weight_kinds[request.weights]);
	if (request.recompute == PD_RECOMPUTE_SELECTIVE && pd_weights_have(request.weights, PD_WEIGHTS_REREADS) && !request.any_weights)
		return pd_error_input(err, "--recompute=selective: with weights \"latest\" recomputing changes what is "
				      "trained: expected none, all, or numbers of stages");
	if (!simulated && (request.recompute == PD_RECOMPUTE_ALL || request.recompute == PD_RECOMPUTE_SELECTIVE ||
			   request.recomputed || request.segments_asked))
		return pd_error_input(err, "--recompute: --cost=%s prices no recomputation",
				      pd_cost_kind_name[request.cost]);
	if (!simulated && (!pd_planner_plain(&request) || eager || request.any_schedule ||
			   request.any_weights))
		return pd_error_input(err, "--cost: \"%s\" prices schedule 1f1b with weights stash and"
				      " an update per minibatch of each replica, no other",
				      pd_cost_kind_name[request.cost]);
	return 0;
}

/* Sets what is shared out. */
static int request_shard(struct pd_error *err)
{
	shards_optimizer = strcmp(shard, "optimizer") == 0;
	shards_full = strcmp(shard, "full") == 0;
	if (strcmp(shard, "optimizer,full") == 0 || strcmp(shard, "full,optimizer") == 0)
		shards_optimizer = shards_full = true;
	if (!*shard || shards_optimizer || shards_full)
		return 0;
	return pd_error_input(err, "--shard: expected optimizer, full, or optimizer,full, found "
			      "\"%.60s\"", shard);
}

/* Sets how devices are put together. */
static int request_groups(struct pd_error *err)
{
	int64_t numbers[PD_GROUPS_MOST];
	bool sequence = false;
	int count = tensor ? pd_degrees_parse_tensor(tensor, PD_GROUPS_MOST, numbers, &sequence, err) : 0;

	if (count < 0)
		return -1;
	if (request_shard(err) < 0)
		return -1;
	if (shards_full && count == 0)
		numbers[count++] = 1;
	for (int i = 0; i < count; i++)
		groups.choices[groups.count++] = (struct pd_group_choice){
			.group = { .tensor = numbers[i], .sharded = 1,
				   .sequence = sequence && numbers[i] > 1 },
			.shards_optimizer = shards_optimizer };
	groups.asked = count > 0;
	return 0;
}

/* Adds groups that share weights out, twice as many devices each time, as far as the topology has them. */
static int add_sharded(const struct pd_topology *topology, struct pd_error *err)
{
	int64_t most = groups.spans ? topology->devices : topology->level[0].count;
	int count = groups.count;

	for (int i = 0; i < count && shards_full; i++)
		for (int64_t f = 2; f * groups.choices[i].group.tensor <= most; f *= 2) {
			if (groups.count == PD_GROUPS_MOST)
				return pd_error_input(err, "--shard=full: expected at most %d ways to put devices together",
						      PD_GROUPS_MOST);
			groups.choices[groups.count] = (struct pd_group_choice){ .group = groups.choices[i].group };
			groups.choices[groups.count++].group.sharded = f;
		}
	return 0;
}

/* Sets how replicas sum. */
static int request_sums(struct pd_error *err)
{
	bool sparse = request.sparsity >= 0;
	struct pd_error wrong;

	if (!sparse)
		request.sparsity = 0;
	else if (request.chunk == 0)
		request.chunk = PD_CHUNK_USUAL;
	request.gradient_dtype = pd_dtype_find(pd_dtype_of_nets[gradient_dtype]);
	request.any_reducer = all_reduce == PD_REDUCER_KINDS;
	if (!request.any_reducer) {
		request.reducer = (enum pd_reducer_kind)all_reduce;
		if (pd_reducer_check(request.reducer, request.gradient_dtype, err) < 0)
			return -1;
	}
	request.any_bucket = bucket && strcmp(bucket, "auto") == 0;
	if (!bucket || request.any_bucket ||
	    (pd_parse_bytes(bucket, &request.bucket_bytes, &wrong) == 0 && request.bucket_bytes > 0))
		return 0;
	return pd_error_input(err, "--bucket: expected \"auto\" or a number of bytes such as 25MB, "
			      "found \"%.60s\"", bucket);
}

/* Sets what recomputes, but layers, which a profile has. */
static void request_recompute(void)
{
	int kind = pd_names_index(pd_recompute_kind_name, recompute);

	if (kind >= 0) {
		request.recompute = (enum pd_recompute_kind)kind;
		return;
	}
	request.segments_asked = !names_stages();
	if (!request.segments_asked)
		request.recomputed = recompute;
}

/* Sets which layers are computed again together. */
static int request_segments(const struct pd_profile *profile, int **segments_p, struct pd_error *err)
{
	*segments_p = request.segments_asked ? pd_layout_segments(profile, recompute, err)
					     : pd_layout_block_segments(profile);
	request.segments = *segments_p;
	return *segments_p || !request.segments_asked ? 0 : pd_error_prefix(err, "--recompute");
}

/* Makes a topology of devices that are joined by the profiles' link, the slowest of several. */
static int make_flat(int64_t count, const char *file, struct pd_profile **profiles, int profile_count,
		     struct pd_topology *topology, struct pd_error *err)
{
	int64_t bandwidth = profiles[0]->link_bandwidth_bytes_per_s, latency_ns = 0;
	bool shared = true;

	for (int i = 0; i < profile_count && kinds_of_devices; i++)
		if (profiles[i]->link_bandwidth_bytes_per_s < bandwidth)
			bandwidth = profiles[i]->link_bandwidth_bytes_per_s;
	for (int i = 0; i < (kinds_of_devices ? profile_count : 1); i++) {
		if (profiles[i]->link_latency_ns > latency_ns)
			latency_ns = profiles[i]->link_latency_ns;
		shared = shared && profiles[i]->in_step.sum_bytes_per_s > 0;
	}
	if (count > 1 && !bandwidth)
		return pd_error_input(err, "%s: has no measured link: give --topology, such as "
				      "--topology=%" PRId64 "@10Gbit/s", pd_document_name(file), count);
	/* A single device sends nothing, so any bandwidth will do. */
	if (pd_topology_flat(count, bandwidth ? bandwidth : 1, latency_ns, topology, err) < 0)
		return -1;
	topology->level[0].shared_memory = shared;
	return 0;
}

/* Reads the topology that is named, or makes one of so many devices. */
static int make_topology(const char *file, struct pd_profile **profiles, int count,
			 struct pd_topology *topology, struct pd_error *err)
{
	struct pd_topology kinds = { .devices = 1 };

	if (kinds_of_devices && pd_topology_parse_devices(kinds_of_devices, &kinds, err) < 0)
		return pd_error_prefix(err, "--devices");
	if (on) {
		*topology = machine.topology;
		return 0;
	}
	if (!topology_name && !gpus && !kinds_of_devices)
		return pd_error_input(err, "nothing says how many devices there are: give --gpus=N"
				      ", --topology, or --on=MACHINE such as 8xdgx-h100");
	if (topology_name ? pd_topology_read(topology_name, topology, err) < 0
			  : make_flat(gpus ? gpus : kinds.device_run[kinds.device_runs - 1].end, file, profiles,
				      count, topology, err) < 0)
		return -1;
	request.min_gain = (min_gain >= 0 ? min_gain : topology->levels > 1 ? 0 : MIN_GAIN) / 100;
	if (!kinds_of_devices)
		return 0;
	if (topology->kinds)
		return pd_error_input(err, "--devices: the topology says itself what devices it has");
	topology->memory_bytes = 0;
	if (pd_topology_parse_devices(kinds_of_devices, topology, err) < 0 || pd_topology_check_devices(topology, err) < 0)
		return pd_error_prefix(err, "--devices");
	return 0;
}

/* Brings the profiles of kinds of devices together, and refuses what is not known of several kinds. */
static int join_kinds(struct pd_profile **profiles, const char **files, int *count_p,
		      struct pd_topology *topology, struct pd_error *err)
{
	if (processors)
		topology->processors = processors;
	if (pd_planner_join_kinds(profiles, files, count_p, topology, err) < 0)
		return -1;
	if (!pd_topology_mixed(topology))
		return 0;
	for (int k = 0; k < topology->kinds && request.memory_bytes > 0; k++)
		topology->kind[k].memory_bytes = request.memory_bytes;
	if (request.cost != PD_COST_SIMULATED)
		return pd_error_input(err, "--cost: \"%s\" prices devices of one kind, and these are of %d",
				      pd_cost_kind_name[request.cost], topology->kinds);
	if (groups.asked)
		return pd_error_input(err, "--%s: expected devices of one kind, and these are of %d", tensor ? "tensor"
				      : "shard=full", topology->kinds);
	if (topology->processors)
		return pd_error_input(err, "--processors: ranks that share processors have devices of one kind, and "
				      "these are of %d", topology->kinds);
	return 0;
}

/* Makes the machine that of the groups of devices that the profiles are of, unless groups are to be looked for. */
static int contract(struct pd_profile **profiles, int count, struct pd_topology *topology, struct pd_error *err)
{
	int64_t devices = pd_degrees_devices(&profiles[0]->group);

	for (int i = 1; i < count; i++)
		if (pd_degrees_devices(&profiles[i]->group) != devices)
			return pd_error_input(err, "the profiles are of groups of %" PRId64 " and %" PRId64 " devices",
					      devices, pd_degrees_devices(&profiles[i]->group));
	if (groups.asked)
		return 0;
	request.memory_bytes = pd_times(request.memory_bytes, devices);
	return pd_topology_contract(topology, devices, groups.spans, topology, err);
}

static int write_plan(const struct pd_plan *plan, struct pd_error *err)
{
	json_t *json;
	int status;

	if (format == SVG)
		return pd_plan_svg(plan, stdout, err);
	if (format == DOT)
		return pd_plan_dot(plan, stdout, err);
	if (format >= LAYOUTS)
		return pd_layout_write((enum pd_layout_kind)(format - LAYOUTS), plan, stdout, err);
	if (target() >= 0 && pd_layout_check((enum pd_layout_kind)target(), plan, err) < 0)
		return -1;
	json = pd_plan_json(plan);
	status = pd_json_write(json, stdout, err);
	json_decref(json);
	return status;
}

/* Sets where profiles may be cut: as was said, or as the format has it. */
static int join(struct pd_profile **profiles, int count, struct pd_error *err)
{
	int kind = cut == CUT_MODULES ? PD_LAYOUT_torchtitan : cut == CUT_BLOCKS ? PD_LAYOUT_megatron
		 : cut < 0 ? target() : -1;

	request.runs = kind >= 0;
	for (int i = 0; i < count && kind >= 0; i++)
		if (pd_layout_join((enum pd_layout_kind)kind, profiles[i], err) < 0)
			return -1;
	return 0;
}

/* Brings stages by hand into a list, of layers of the first profile; all are of one model. */
static int list_stages(const struct pd_profile *profile, char **list_p, struct pd_error *err)
{
	int64_t round;

	if (!request.stages)
		return 0;
	*list_p = pd_layout_stages(profile, request.stages, &round, err);
	request.stages = *list_p;
	if (!*list_p)
		return -1;
	if (request.round && round && request.round != round)
		return pd_error_input(err, "--round: found %" PRId64 ", and --stages says %" PRId64, request.round, round);
	request.round = round ? round : request.round;
	return 0;
}

/* Tells whether the operand is a model, whose profiles are made here. */
static bool takes_model(const char *operand)
{
	return device || (on && (!operand || !pd_file_says_format(operand, "pd-profile")));
}

/* Refuses operands that are no files, and models where no machine is named. */
static int check_operands(int argc, char **argv, int first, struct pd_error *err)
{
	bool models = on || device;

	for (int i = first; i < argc; i++) {
		if (strcmp(argv[i], "-") == 0 || models)
			continue;
		if (pd_network_known(argv[i]))
			return pd_error_input(err, "%s is a model, not a profile: give a machine, such as "
					      "--on=8xdgx-h100, or --device (or see pd-profile)", argv[i]);
		if (pd_name_ends(argv[i], ".csv") && access(argv[i], F_OK) == 0)
			return pd_error_input(err, "%s: this is a table of PyTorch: pd-schedule "
					      "--plan=plan.json makes a schedule of it", argv[i]);
		if (access(argv[i], F_OK) != 0)
			return pd_error_input(err, "%s: cannot open: %s", *argv[i] ? argv[i] : "\"\"",
					      strerror(errno));
	}
	if (argc - first > 1 && takes_model(argv[first]))
		return pd_error_input(err, "unexpected operand \"%.100s\" behind \"%.100s\", a model",
				      argv[first + 1], argv[first]);
	return 0;
}

/*
 * Opens what nobody said of how a model is laid out: degrees of tensor parallelism, a sharded optimizer, schedules.
 * What another system, a plan by hand or a published cost asks for stays as it is.
 */
static void open_request(const struct pd_model *model)
{
	static char degrees[PD_TENSOR_TEXT];
	bool theirs = memory_model != PD_MEMORY_OWN &&
		      (target() < 0 || pd_layout_takes_tensor((enum pd_layout_kind)target()));
	int64_t most = on ? machine.topology.level[0].count : INT64_MAX;

	if (request.cost != PD_COST_SIMULATED || request.stages || (like_text && top.most == 0))
		return;
	if (schedule < 0)
		schedule = PD_SCHEDULE_KINDS;
	if (!theirs || tensor || (weights >= 0 && weights != PD_WEIGHTS_FLUSH))
		return;
	if (pd_estimate_tensor(model, most, degrees)) {
		tensor = degrees;
		shard = *shard ? shard : "optimizer";
	}
}

/* Reads the machine, and makes the profiles of the model by data sheet, one for each size of a microbatch. */
static int make_profiles(const char *operand, struct pd_profile **profiles, const char **files,
			 int *count_p, struct pd_error *err)
{
	struct pd_sheet *sheet = on ? machine.sheet : pd_sheet_read(device, err);
	struct pd_named_network named;
	struct pd_estimate how = { .sheet = sheet, .group = { .tensor = 1, .sharded = 1 } };
	int count = -1;

	network.quiet = quiet;
	if (sheet && pd_network_named(operand, &network, &named, err) == 0) {
		open_request(named.model);
		how.dtype = dtype >= 0 ? pd_dtype_find(pd_dtype_of_nets[dtype])
			  : named.model->dtype < PD_DTYPES ? named.model->dtype
			  : sheet->products_per_s[PD_BF16] > 0 ? PD_BF16 : PD_F16;
		if (dtype < 0 && !quiet)
			pd_say("%s: computed in %s%s (--dtype)", named.model->name, pd_dtype_name[how.dtype],
			       named.model->dtype < PD_DTYPES ? ", as the model says" : "");
		count = pd_estimate_sizes(&how, named.model, pd_sample_tokens(named.model) > 0 ? 1 : LEAST_IMAGES,
					  batch ? batch : INT64_MAX, profiles, err);
		pd_named_network_release(&named);
	}
	if (!on)
		pd_sheet_free(sheet);
	*count_p = count > 0 ? count : 0;
	for (int p = 0; p < *count_p; p++)
		files[p] = operand;
	return count < 0 ? -1 : 0;
}

/* Refuses a profile by the data sheet of other devices than the machine's. */
static int check_machine(const struct pd_profile *profile, const char *file, struct pd_error *err)
{
	if (!on || !profile->estimated_from || strcmp(profile->estimated_from, machine.sheet->name) == 0)
		return 0;
	return pd_error_input(err, "%s: its times are of \"%.60s\", and --on=%.60s has \"%.60s\"",
			      pd_document_name(file), profile->estimated_from, on, machine.sheet->name);
}

/*
 * Reads all of the operands, or standard input; *count_p of them have been read even if it fails.
 */
static int read_profiles(int argc, char **argv, int first, struct pd_profile **profiles,
			 const char **files, int *count_p, struct pd_error *err)
{
	int count = argc > first ? argc - first : 1;

	*count_p = 0;
	if (check_operands(argc, argv, first, err) < 0)
		return -1;
	if (on && pd_named_machine_read(on, device, quiet, &machine, err) < 0)
		return -1;
	if (takes_model(pd_operand(argc, argv, first, 0)))
		return make_profiles(pd_operand(argc, argv, first, 0), profiles, files, count_p, err);
	for (int i = 0; i < count; i++) {
		const char *file = pd_operand(argc, argv, first, i);
		int before = *count_p;

		if (pd_profile_read_all(file, PD_PLANNER_LAYERS, profiles, MOST_PROFILES, count_p, err) < 0)
			return -1;
		for (int p = before; p < *count_p; p++) {
			files[p] = file;
			if (pairs > 0)
				pd_profile_set_pairs(profiles[p], pairs);
			for (int k = 0; k < p; k++)
				if (pd_profile_same_model(profiles[k], files[k], profiles[p], file, err) < 0)
					return -1;
			if (check_machine(profiles[p], file, err) < 0)
				return -1;
		}
	}
	return 0;
}

/* Returns whose memory is predicted: what an option says, or the profile; devices that act as one run Megatron-LM. */
static struct pd_memory_rule memory_rule(const struct pd_profile *profile)
{
	struct pd_memory_rule rule = profile->memory;

	if (memory_model < 0 && target() >= 0 && rule.model == PD_MEMORY_OWN && !groups.asked &&
	    request.weights == PD_WEIGHTS_FLUSH && !request.any_weights) {
		enum pd_layout_kind kind = (enum pd_layout_kind)target();

		rule = (struct pd_memory_rule){ pd_layout_memory(kind), false, PD_MEMORY_MARGIN };
		memory_is_systems = true;
	}
	if (memory_model >= 0 || (groups.asked && rule.model == PD_MEMORY_OWN))
		rule = (struct pd_memory_rule){ memory_model >= 0 ? (enum pd_memory_model)memory_model
						: PD_MEMORY_MEGATRON, false, PD_MEMORY_MARGIN };
	if (rule.model == PD_MEMORY_OWN)
		return (struct pd_memory_rule){ .model = PD_MEMORY_OWN };
	rule.sharded |= shards_optimizer && !shards_full;       /* else each way says it */
	rule.margin = memory_margin < 0 ? rule.margin : memory_margin / 100;
	return rule;
}

static int set_memory(struct pd_profile **profiles, int count, struct pd_error *err)
{
	const struct pd_memory_rule rule = memory_rule(profiles[0]);

	if (groups.asked && rule.model == PD_MEMORY_OWN)
		return pd_error_input(err, "--memory-model=pd-run: pd-run does not share layers or weights out");
	if (rule.model == PD_MEMORY_OWN && (memory_margin >= 0 || shards_optimizer))
		return pd_error_input(err, "--%s: expected only with --memory-model=torch or megatron",
				      shards_optimizer ? "shard=optimizer" : "memory-margin");
	for (int i = 0; i < count; i++)
		profiles[i]->memory = rule;
	/* With f16 all ranks learn of an update's overflow before it is made (pd-run). */
	if (weights_open && (rule.model != PD_MEMORY_OWN || profiles[0]->dtype == PD_F16))
		take_flush();
	if (rule.model != PD_MEMORY_OWN && (request.any_weights || !pd_weights_have(request.weights, PD_WEIGHTS_DRAINS)))
		return pd_error_input(err, "memory of %s: it keeps one version of the weights: expected "
				      "--weights=flush", pd_memory_model_name[rule.model]);
	return 0;
}

/* Reads the one operand, where that is a plan that is to be written for another system; NULL: it is none, or wrong. */
static struct pd_plan *read_plan(int argc, char **argv, int first, struct pd_error *err)
{
	struct pd_place root;
	struct pd_plan *plan = NULL;
	const char *name;

	err->status = PD_EXIT_YES;
	if (format < LAYOUTS || argc != first + 1 || strcmp(argv[first], "-") == 0)
		return NULL;
	root = pd_place_root(argv[first], pd_json_load(argv[first], err));
	if (!root.value) {
		err->status = PD_EXIT_YES;      /* such as several profiles */
		return NULL;
	}
	name = json_string_value(json_object_get(root.value, "format"));
	if (name && strcmp(name, "pd-plan") == 0)
		plan = pd_plan_parse_at(&root, err);
	json_decref(root.value);
	return plan;
}

static void free_profiles(struct pd_profile **profiles, int count)
{
	for (int i = 0; i < count; i++)
		pd_profile_free(profiles[i]);
}

/* Tells whether the system that a plan is for cannot recompute in these stages alone, which nobody asked for. */
static bool recomputes_apart(const struct pd_plan *plan)
{
	return target() >= 0 && strcmp(recompute, "auto") == 0 &&
	       pd_layout_recomputes_apart((enum pd_layout_kind)target(), plan);
}

static struct pd_plan *make_plan(struct pd_profile **profiles, int count,
				 struct pd_batch_choice *choices, struct pd_error *err)
{
	struct pd_planner_ask ask = { .profiles = profiles, .count = count, .batch = batch, .request = &request,
				      .groups = groups.asked ? &groups : NULL, .choices = choices,
				      .top = top.most > 0 ? &top : NULL, .progress = &progress };
	struct pd_top_row like_row = { .stages = NULL };
	struct pd_plan *plan;

	/* the formulas know nothing of lanes, which replicas must divide */
	if (!request.stages && request.cost != PD_COST_SIMULATED && pd_profile_lane_round(profiles[0]) > 0)
		request.straight = true;
	if (like_text && top.most == 0)
		return pd_like_plan(&like, &ask, !weights_open, err);
	if (like_text && pd_like_row(&like, &ask, !weights_open, &like_row, err) < 0)
		return NULL;
	plan = pd_planner_choose(&ask, err);
	if (plan && like_text)
		pd_top_add(&top, &like_row);
	if (!plan || !recomputes_apart(plan))
		return plan;
	if (!quiet)
		pd_say("some stages do not fit without recomputation, and %s recomputes in all or in none: all do",
		       pd_layout_system((enum pd_layout_kind)target()));
	request.recompute = PD_RECOMPUTE_ALL;
	for (int i = 0; i < count && !groups.asked; i++)
		if (!profiles[i])
			profiles[i] = plan->profile;
	if (!groups.asked)
		plan->profile = NULL;
	pd_plan_free(plan);
	for (int i = 0; i < groups.count; i++)
		groups.choices[i].chosen = false;
	return pd_planner_choose(&ask, err);
}

/* Says what is worth a line beside the plan. */
static void remark(const struct pd_plan *plan, const struct pd_topology *given)
{
	pd_remark_shared(plan, &request);
	if (quiet)
		return;
	if (memory_is_systems)
		pd_remark_memory(plan, pd_layout_system((enum pd_layout_kind)target()));
	pd_remark_order(plan, given);
	pd_remark_recompute(plan, &request, recompute);
	pd_remark_formula(plan);
}

/* Refuses formats of plans for a table of several, and those of a table for a plan. */
static int check_top(struct pd_error *err)
{
	bool of_table = format >= TABLE && format <= JSONL;

	if (top.most > 0 && !of_table && format != JSON)
		return pd_error_input(err, "--top: expected --format=table, markdown, csv or "
				      "jsonl, "
				      "found \"%s\"", formats[format]);
	if (top.most == 0 && of_table)
		return pd_error_input(err, "--format=%s: expected it with --top", formats[format]);
	return 0;
}

/* Reads the layout of --like; alone, it says what some options say, too. */
static int check_like(struct pd_error *err)
{
	const char *also = tensor ? "tensor" : *shard ? "shard" : chunks > 0 ? "chunks"
			 : virtual_stages ? "virtual-stages" : NULL;

	if (!like_text)
		return 0;
	if (pd_like_parse(like_text, &pd_layout_door, &like, err) < 0)
		return -1;
	if (also && top.most == 0)
		return pd_error_input(err, "--%s: expected it with --like and --top, for what is "
				      "searched: --like says it of its own layout", also);
	return 0;
}

/* Writes the best plans. */
static int write_top(struct pd_error *err)
{
	static const enum pd_table_format tables[] = {
		[TABLE] = PD_TABLE_TEXT, [MARKDOWN] = PD_TABLE_MARKDOWN, [CSV] = PD_TABLE_CSV,
		[JSONL] = PD_TABLE_JSONL
	};
	int as = format != JSON ? format : isatty(STDOUT_FILENO) ? TABLE : JSONL;

	return pd_top_write(&top, tables[as], stdout, err);
}

/* What is read and made for one plan. */
struct making {
	struct pd_topology topology;
	struct pd_profile *profiles[MOST_PROFILES];
	const char *files[MOST_PROFILES];
	struct pd_batch_choice choices[MOST_PROFILES];
	int count;
	char *list;
	int *segments;
	int64_t memory_bytes;
};

/* Plans what the options and operands say. */
static struct pd_plan *answer(struct making *made, int argc, char **argv, int first,
			      struct pd_error *err)
{
	struct pd_topology *topology = &made->topology;
	struct pd_profile **profiles = made->profiles;
	struct pd_plan *plan = NULL;
	int status;

	request.cost = (enum pd_cost_kind)cost;
	top = (struct pd_top){ .most = (int)best_plans.most_asked, .pareto = best_plans.pareto,
			       .bottleneck = pd_top_bottleneck };
	if (check_top(err) < 0)
		return NULL;
	request_recompute();
	status = request_system(err) < 0 ? -1 : check_like(err);
	if (status == 0 && (on || device))      /* what a model leaves open is part of the request */
		status = read_profiles(argc, argv, first, profiles, made->files, &made->count, err);
	if (status == 0 && (request_groups(err) < 0 || request_sums(err) < 0 ||
			    request_policy(err) < 0 || pd_output_check(err) < 0))
		status = -1;
	request.topology = topology;
	made->memory_bytes = request.memory_bytes;
	pd_mem_for("the profile");
	if (status == 0 && !on && !device)
		status = read_profiles(argc, argv, first, profiles, made->files, &made->count, err);
	if (status == 0 && set_memory(profiles, made->count, err) == 0 &&
	    request_segments(profiles[0], &made->segments, err) == 0 &&
	    list_stages(profiles[0], &made->list, err) == 0 &&
	    (made->list || join(profiles, made->count, err) == 0) &&
	    make_topology(made->files[0], profiles, made->count, topology, err) == 0 &&
	    add_sharded(topology, err) == 0 && contract(profiles, made->count, topology,
							err) == 0 &&
	    join_kinds(profiles, made->files, &made->count, topology, err) == 0) {
		pd_mem_for("the search for a plan");
		begin_search();
		if (format != SVG || groups.asked || pd_degrees_devices(&profiles[0]->group) > 1 ||
		    pd_plan_svg_check(topology, err) == 0)
			plan = make_plan(profiles, made->count, made->choices, err);
		end_search();
	}
	free_profiles(profiles, made->count);
	return plan;
}

static void making_release(struct making *made)
{
	pd_like_release(&like);
	pd_named_machine_release(&machine);
	free(made->list);
	free(made->segments);
}

/* Has nothing be left of the question before. */
static void forget(struct pd_opt_values *values)
{
	request = (struct pd_plan_request){ .sparsity = -1 };
	groups = (struct pd_group_request){ .count = 0 };
	pd_opt_values_restore(values);          /* some of which are members of these */
	progress = (struct pd_search_progress){ .variants = 0 };
	weights_open = memory_is_systems = shards_optimizer = shards_full = false;
}

/* Sets an option as a member says, or notes a profile. */
static int take_member(struct pd_opt_values *values, const char *key, const json_t *value,
		       struct pd_error *err)
{
	static const char *const others[] = { "questions", "format", "explain", "quiet", NULL };
	char *text;
	int status;

	if (pd_names_index(others, key) >= 0)
		return pd_error_input(err, "\"%s\": is no option of a question", key);
	if (json_is_false(value))
		return 0;
	if (json_is_true(value) || json_is_string(value))
		return pd_opt_values_set(values, key, json_string_value(value), err);
	if (!json_is_number(value))
		return pd_error_input(err, "\"%s\": expected a string, a number, true or false",
				      key);
	text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	status = pd_opt_values_set(values, key, text, err);
	free(text);
	return status;
}

/* Sets the options of a question; returns how many profiles it names, or -1. */
static int take_question(struct pd_opt_values *values, json_t *question, char **files,
			 struct pd_error *err)
{
	const char *key;
	json_t *value;
	int count = 0;

	if (!json_is_object(question))
		return pd_error_input(err, "expected an object");
	json_object_foreach(question, key, value) {
		const json_t *one = json_is_array(value) ? json_array_get(value, 0) : value;

		if (strcmp(key, "id") == 0)
			continue;
		if (strcmp(key, "profile") != 0 && strcmp(key, "model") != 0) {
			if (take_member(values, key, value, err) < 0)
				return -1;
			continue;
		}
		for (size_t i = 0; one; one = json_array_get(value, ++i)) {
			if (!json_is_string(one) || strcmp(json_string_value(one), "-") == 0 ||
			    count == MOST_PROFILES)
				return pd_error_input(err, "\"%s\": expected a name, or a list of at "
						      "most %d", key, MOST_PROFILES);
			files[count++] = (char *)(uintptr_t)json_string_value(one);
		}
	}
	if (count == 0)
		return pd_error_input(err, "expected the key \"profile\", or \"model\" with \"on\"");
	return pd_opt_values_check(values, err) < 0 ? -1 : count;
}

/* Adds what came of a question to its answer. */
static int answer_question(struct pd_opt_values *values, json_t *question, json_t *object,
			   struct pd_error *err)
{
	struct making made = { .count = 0 };
	char *files[MOST_PROFILES + 1] = { NULL };
	struct pd_plan *plan = NULL;
	int count;

	forget(values);
	quiet = true;
	count = take_question(values, question, files, err);
	if (count > 0)
		plan = answer(&made, count, files, 0, err);
	if (plan && top.most == 0) {
		top.rows = pd_calloc(1, sizeof(*top.rows));
		top.rows[0] = pd_top_row_of(plan, plan->predicted.period_ns);
		top.rows[0].bottleneck = pd_top_bottleneck(plan);
		top.rows[0].pareto = true;
		top.rows[0].degree_asked = groups.asked;
		top.rows[0].yours = like_text ? like.text : NULL;
		top.most = top.count = 1;
	}
	if (plan)
		pd_json_set(object, "choices", pd_top_json(&top));
	pd_top_release(&top);
	pd_plan_free(plan);
	making_release(&made);
	return plan ? 0 : -1;
}

/*
 * Answers one line; the answer has the question's id, and what came of it or why there is nothing.
 */
static void answer_line(struct pd_opt_values *values, const char *line, size_t length)
{
	json_error_t at;
	json_t *question = json_loadb(line, length, JSON_REJECT_DUPLICATES, &at),
		*object = json_object();
	json_t *id = json_object_get(question, "id");
	struct pd_error err;
	int status = -1;

	pd_json_set(object, "format", json_string("pd-answer"));
	pd_json_set(object, "version", json_integer(1));
	if (id)
		json_object_set(object, "id", id);
	if (!question)
		pd_error_input(&err, "expected an object of JSON: %s", at.text);
	else
		status = answer_question(values, question, object, &err);
	if (status < 0) {
		pd_json_set(object, "error", pd_json_shown(err.text));
		pd_json_set(object, "status", json_integer(err.status));
	}
	json_dumpf(object, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(object);
	json_decref(question);
}

/* Answers what is asked on standard input, in its order, until it ends or SIGINT does it. */
static int answer_questions(void)
{
	struct pd_opt_values *values;
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	questions = false;
	values = pd_opt_values_new(&command);
	while (!interrupted && (length = getline(&line, &room, stdin)) > 0)
		if (line[strspn(line, " \t\r\n")] != '\0')
			answer_line(values, line, (size_t)length);
	free(line);
	pd_opt_values_free(values);
	return pd_command_end(interrupted ? PD_EXIT_NO : PD_EXIT_YES);
}

int main(int argc, char **argv)
{
	static struct making made;
	struct pd_error err;
	struct pd_plan *plan;
	int first, status;

	pd_network_ask_init(&network);
	first = pd_command_parse(&command, argc, argv);
	if (questions && argc > first) {
		pd_error_input(&err, "--questions: expected no profile: each question names its "
			       "own");
		return pd_command_fail(&err);
	}
	if (questions)
		return answer_questions();
	plan = read_plan(argc, argv, first, &err);
	if (plan || err.status != PD_EXIT_YES) {
		status = plan ? write_plan(plan, &err) : -1;
		pd_plan_free(plan);
		return status < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
	}
	plan = answer(&made, argc, argv, first, &err);
	if (!plan) {
		making_release(&made);
		return pd_command_fail(&err);
	}
	pd_mem_for("the plan to be written");
	status = top.most > 0 ? write_top(&err) : write_plan(plan, &err);
	pd_top_release(&top);
	if (status == 0)
		remark(plan, &made.topology);
	if (status == 0 && (explain || !quiet))
		pd_answer_print(plan, made.memory_bytes, stderr);
	if (status == 0 && explain)
		fputc('\n', stderr);
	if (status == 0 && explain && groups.asked)
		pd_groups_explain(&groups, stderr);
	if (status == 0 && explain && (made.count > 1 || batch))
		pd_batch_explain(made.choices, made.count, stderr);
	if (status == 0 && explain)
		pd_plan_explain(plan, stderr);
	pd_plan_free(plan);
	making_release(&made);
	return status < 0 ? pd_command_fail(&err)
			  : pd_command_end(interrupted ? PD_EXIT_NO : PD_EXIT_YES);
}
