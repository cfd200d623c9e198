/* SPDX-License-Identifier: Apache-2.0 */
/* plan or schedule -> training: starts one process per rank and watches over them. */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/program.h"
#include "checkpoint/lock.h"
#include "doors/torch/torch.h"
#include "run/launch/hosts.h"
#include "run/supervisor/supervisor.h"
#include "run/transport/provider.h"
#include "schedule/file.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEWEST "newest"
#define MADE_UP "made-up data are what the network takes"

static struct pd_job job = {
	.device = "auto", .epochs = -1, .minibatches = -1, .seed = 1, .evaluate = true,
	.resume_step = -1, .evaluated_step = -1,
	/* below 0: not given */
	.optimizer = { 
		.rate = 0.01, .residual = -1,
		.hyper = {
#define HYPER(member, ...) .member = -1,
#include "engine/device/hyper.def"
#undef HYPER
		},
		.step_epochs = 30, .gamma = 0.1, .power = 2, .discrepancy = -1 },
};
static struct pd_supervision how = { .timeout_s = 300,
				     .silence_s = 10 };
static bool evaluate, no_evaluate;
static const char *resume;
static int64_t keep = 2;
static int optimizer, schedule, transport, decay, on_divergence;

enum { DECAY_ALL, DECAY_MATRICES };
static const char *const decay_names[] = { [DECAY_ALL] = "all", [DECAY_MATRICES] = "matrices", NULL };

enum { DIVERGENCE_CONTINUE, DIVERGENCE_STOP };
static const char *const divergence_names[] = {
	[DIVERGENCE_CONTINUE] = "continue", [DIVERGENCE_STOP] = "stop", NULL
};

static const char *loss_scale;
static double scale_init;
static int64_t scale_interval;

static const char *network;

/* What the options that some optimizers read need: "optimizer=adam optimizer=adamw"; by
 * name_readers(). */
#define READERS_TEXT 128
static struct {
#define HYPER(member, ...) char member[READERS_TEXT];
#include "engine/device/hyper.def"
#undef HYPER
} readers;

static bool decays(void)
{
	return job.optimizer.weight_decay > 0;
}

static bool decays_matrices(void)
{
	return decay == DECAY_MATRICES;
}

static const struct pd_opt options[] = {
	PD_OPT_GROUP("Device"),
	{ "device", 'd', PD_OPT_STRING, "NAME", "device: auto (default), cpu or cuda",
	  &job.device },
	{ "tf32", 0, PD_OPT_FLAG, NULL, "let a GPU round factors of f32 products to TF32",
	  &job.tf32 },
	{ "transport", 0, PD_OPT_CHOICE, "NAME",
	  "auto (default); GPUs: nccl, staged; hosts: tcp, ucx", &transport,
	  .choices = pd_provider_names },
	{ "network", 0, PD_OPT_STRING, "INTERFACE", "of the first host, by which hosts exchange",
	  &network },
	{ "threads", 't', PD_OPT_COUNT, "N", "threads per worker (default: the profile's)",
	  &job.threads, 1, 4096 },
	PD_OPT_GROUP("Data and length"),
	{ "data", 0, PD_OPT_STRING, "DIR|FILE",
	  "data set: IDX, CIFAR-10, .npy, .npz, tokens or text", &job.data,
	  .excludes = "synthetic" },
	{ "normalize", 0, PD_OPT_STRING, "MEAN,STD",
	  "normalise images: (bytes / 255 - MEAN) / STD; 0.5:0.4:0.3 for 3 channels",
	  &job.normalize, .needs = "data", .why = MADE_UP },
	{ "augment", 0, PD_OPT_STRING, "HOW",
	  "train on images changed at random: crop:N, flip, or both", &job.augment, .needs = "data",
	  .why = MADE_UP },
	{ "synthetic", 0, PD_OPT_COUNT, "MINIBATCHES",
	  "train on made-up data, epochs of so many (default: 10)", &job.synthetic_epoch, 1, 1e12,
	  .otherwise = "10", .excludes = "evaluate", .why = "made-up data have no test set" },
	{ "epochs", 'e', PD_OPT_COUNT, "N", "train N epochs in all (default: 1)", &job.epochs,
	  .excludes = "minibatches" },
	{ "minibatches", 'm', PD_OPT_COUNT, "N", "train N minibatches in all", &job.minibatches },
	{ "no-evaluate", 0, PD_OPT_FLAG, NULL, "do not evaluate after each epoch", &no_evaluate },
	{ "evaluate", 0, PD_OPT_FLAG, NULL,
	  "train nothing; evaluate --init, or a checkpoint of --checkpoint", &evaluate,
	  .alone = "device tf32 transport network threads data normalize init checkpoint resume "
		   "trace quiet force print-mapping silence timeout",
	  .needs = "init checkpoint", .why = "it trains nothing" },
	{ "seed", 's', PD_OPT_COUNT, "N", "seed of parameters, samples, dropout (default: 1)",
	  &job.seed },
	PD_OPT_GROUP("Optimizer"),
	{ "optimizer", 0, PD_OPT_CHOICE, "NAME",
	  "one of"
#define OPTIMIZER(symbol, name, ...) " " #name
#include "engine/device/optimizer.def"
#undef OPTIMIZER
	  " (default: sgd)",
	  &optimizer, .choices = pd_optimizer_kind_name },
	{ "lr", 0, PD_OPT_REAL, "X", "learning rate (default: 0.01)", &job.optimizer.rate, 0, 1e6 },
#define HYPER(member, option, key, least, most, what) \
	{ option, 0,	PD_OPT_REAL, \
	  "X",	  what, &job.optimizer.hyper.member, \
	  least,  most, .needs = readers.member },
#include "engine/device/hyper.def"
#undef HYPER
	{ "weight-decay", 0, PD_OPT_REAL, "X", "weight decay (default: 0)",
	  &job.optimizer.weight_decay, 0, 1e3, .counts = decays },
	{ "decay", 0, PD_OPT_CHOICE, "WHAT", "what decays: all (default) or matrices", &decay,
	  .choices = decay_names, .needs = "weight-decay", .counts = decays_matrices,
	  .which = "matrices" },
	{ "residual", 0, PD_OPT_REAL, "X",
	  "sparse sums: part kept of what stays (default: momentum)", &job.optimizer.residual, 0,
	  1 },
	PD_OPT_GROUP("Learning rate"),
	{ "lr-schedule", 0, PD_OPT_CHOICE, "NAME", "constant (default), step, polynomial or cosine",
	  &schedule, .choices = pd_lr_schedule_name },
	{ "lr-step", 0, PD_OPT_COUNT, "EPOCHS", "epochs between changes (default: 30)",
	  &job.optimizer.step_epochs, 1, 1e12, .needs = "lr-schedule=step" },
	{ "lr-gamma", 0, PD_OPT_REAL, "X", "factor of each change (default: 0.1)",
	  &job.optimizer.gamma, 0, 1, .needs = "lr-schedule=step" },
	{ "lr-power", 0, PD_OPT_REAL, "X", "the power (default: 2)", &job.optimizer.power, 0, 100,
	  .needs = "lr-schedule=polynomial" },
	{ "lr-warmup", 0, PD_OPT_COUNT, "N", "raise the rate during N minibatches (default: 0)",
	  &job.optimizer.warmup, 0, 1e12 },
	PD_OPT_GROUP("Gradients"),
	{ "clip-grad-norm", 0, PD_OPT_REAL, "X", "limit the norm of all gradients to X",
	  &job.optimizer.clip_norm, 1e-30, 1e30 },
	{ "loss-scale", 0, PD_OPT_STRING, "X", "factor of the loss for backward, or dynamic",
	  &loss_scale },
	{ "loss-scale-init", 0, PD_OPT_REAL, "X", "first value (default: 65536)", &scale_init, 1,
	  1e38, .needs = "loss-scale=dynamic" },
	{ "loss-scale-interval", 0, PD_OPT_COUNT, "N", "updates before it doubles (default: 2000)",
	  &scale_interval, 1, 1e12, .needs = "loss-scale=dynamic" },
	{ "lr-reschedule", 0, PD_OPT_COUNT, "N",
	  "latest: lower late stages' rates for N minibatches", &job.optimizer.reschedule, 1,
	  1e12 },
	{ "discrepancy", 0, PD_OPT_REAL, "D", "latest: correct late weights, with decay D below 1",
	  &job.optimizer.discrepancy, 0, PD_BETA_MOST },
	PD_OPT_GROUP("Parameters and checkpoints"),
	{ "init", 0, PD_OPT_STRING, "PATH",
	  "begin with parameters from a file, folder or checkpoint", &job.init,
	  .excludes = "resume", .why = "a checkpoint has its own parameters" },
	{ "init-new", 0, PD_OPT_STRING, "NAME,...",
	  "of these, begin anew with layers such as a new head", &job.init_new, .needs = "init" },
	{ "checkpoint", 'c', PD_OPT_STRING, "DIR", "write checkpoints into DIR, one each epoch",
	  &job.checkpoint },
	{ "checkpoint-every", 0, PD_OPT_COUNT, "N", "write one every N minibatches, too",
	  &job.checkpoint_every, 1, 1e12, .needs = "checkpoint" },
	{ "keep", 0, PD_OPT_COUNT, "N", "checkpoints kept (default: 2)", &keep, 1, 1e6,
	  .needs = "checkpoint" },
	{ "resume", 'r', PD_OPT_STRING, "STEP", "resume from a checkpoint (default: the newest)",
	  &resume, .otherwise = NEWEST, .needs = "checkpoint" },
	{ "on-divergence", 0, PD_OPT_CHOICE, "WHAT",
	  "if a loss is not finite: continue (default) or stop", &on_divergence,
	  .choices = divergence_names },
	{ "gather", 0, PD_OPT_STRING, "DIR", "bring a checkpoint of several hosts together in DIR",
	  &job.gather, .needs = "checkpoint" },
	PD_OPT_GROUP("Reports"),
	{ "trace", 0, PD_OPT_STRING, "FILE", "write every operation's times to FILE", &job.trace },
	{ "quiet", 'q', PD_OPT_FLAG, NULL, "report only the end", &how.quiet },
	{ "report-every", 0, PD_OPT_COUNT, "N", "minibatches between reports (default: 1/10 epoch)",
	  &how.report_every, 1, 1e12 },
	PD_OPT_GROUP("Workers"),
	{ "force", 0, PD_OPT_FLAG, NULL,
	  "train where ranks are not on the machines that the plan has", &how.force },
	{ "print-mapping", 0, PD_OPT_FLAG, NULL, "print which rank is where, and train nothing",
	  &how.print_mapping },
	{ "silence", 0, PD_OPT_COUNT, "SECONDS",
	  "a worker hangs that sleeps and is silent for so long (default: 10)", &how.silence_s, 1,
	  1e6 },
	{ "timeout", 0, PD_OPT_COUNT, "SECONDS",
	  "give up when nothing moves for so long (default: 300)", &how.timeout_s, 1, 1e6 },
	{ 0 }
};

static const char *const elsewhere[][2] = {
	{ "learning-rate", "--lr" }, { "batch-size", "pd-profile" }, { "dtype", "pd-profile" },
	{ "workers", "pd-profile" }, { "gpus", "pd-plan" }, { "topology", "pd-plan" }, { "stages", "pd-plan" },
	{ "schedule", "pd-plan" }, { "weights", "pd-plan" }, { "microbatches", "pd-plan" },
	{ "memory", "pd-plan" }, { "recompute", "pd-plan" }, { "sparsity", "pd-plan" }, { NULL }
};

static const struct pd_command command = {
	.name = "pd-run",
	.synopsis = "[OPTION]... [plan.json | schedule.jsonl]",
	.summary = "Train the network of a plan with pipelined workers, one process each.",
	.options = options,
	.elsewhere = elsewhere,
	.max_operands = 1,
	.files = true,
};

/* Writes which optimizers read the hyperparameter that is there in struct pd_hyper. */
static void name_readers_of(size_t offset, char text[READERS_TEXT])
{
	size_t used = 0;

	for (int k = 0; k < PD_OPTIMIZER_KINDS; k++)
		if (*(const double *)((const char *)&pd_optimizer_rows[k].defaults + offset) > 0)
			used += (size_t)snprintf(text + used, READERS_TEXT - used, "optimizer=%s ",
						 pd_optimizer_kind_name[k]);
}

static void name_readers(void)
{
#define HYPER(member, ...) name_readers_of(offsetof(struct pd_hyper, member), readers.member);
#include "engine/device/hyper.def"
#undef HYPER
}

/* Sets the hyperparameters that are not given to the optimizer's defaults. */
static void set_hyper(struct pd_hyper *hyper)
{
	const struct pd_hyper *defaults = &pd_optimizer_rows[optimizer].defaults;

#define HYPER(member, ...) if (hyper->member < 0) hyper->member = defaults->member;
#include "engine/device/hyper.def"
#undef HYPER
}

static int set_loss_scale(struct pd_error *err)
{
	bool dynamic = loss_scale && strcmp(loss_scale, "dynamic") == 0;

	if (dynamic) {
		job.optimizer.loss_scale = scale_init > 0 ? scale_init : PD_FIRST_LOSS_SCALE;
		job.optimizer.loss_scale_interval = scale_interval > 0 ? scale_interval
								       : PD_LOSS_SCALE_INTERVAL;
	} else if (loss_scale && pd_parse_real(loss_scale, 1e-30, 1e38, &job.optimizer.loss_scale,
					       err) < 0) {
		return pd_error_input(err, "--loss-scale: expected dynamic or a number from 1e-30 to "
				      "1e+38, found \"%.60s\"", loss_scale);
	}
	return 0;
}

static int check_evaluation(struct pd_error *err)
{
	if (job.init && job.checkpoint)
		return pd_error_input(
			err,
			"--evaluate: expected either --init=FILE or --checkpoint=DIR, found both");
	job.only_evaluates = true;
	job.minibatches = 0;
	job.optimizer.hyper.momentum = 0;       /* which needs no memory */
	return 0;
}

static int check_options(struct pd_error *err)
{
	if (evaluate && check_evaluation(err) < 0)
		return -1;
	if (!job.data && !job.synthetic_epoch && !job.gather)
		return pd_error_input(err, "no data: give --data=DIR%s", evaluate ? " or --data=FILE" :
				      ", --data=FILE or --synthetic");
	if (job.gather && !job.several)
		return pd_error_input(err, "--gather brings together what several hosts have: start it "
				      "on them, with mpirun or srun");
	if (job.trace && strcmp(job.trace, "-") == 0)
		return pd_error_input(err, "--trace: expected a file, found \"-\": standard output"
				      " is for reports");
	if (resume && strcmp(resume, NEWEST) != 0 &&
	    pd_parse_count(resume, 0, INT64_MAX - 1, &job.resume_step, err) < 0)
		return pd_error_input(err, "--resume: expected " NEWEST " or a whole number from 0, "
				      "found \"%.60s\"", resume);
	if (set_loss_scale(err) < 0)
		return -1;
	set_hyper(&job.optimizer.hyper);
	how.keep = (int)keep;
	job.optimizer.kind = (enum pd_optimizer_kind)optimizer;
	job.optimizer.spares_vectors = decay == DECAY_MATRICES;
	job.transport = transport > 0 ? pd_provider_names[transport] : NULL;
	job.optimizer.has_residual = job.optimizer.residual >= 0;
	job.optimizer.corrects = job.optimizer.discrepancy >= 0;
	job.optimizer.schedule = (enum pd_lr_schedule)schedule;
	job.evaluate = !no_evaluate;
	how.stops_on_divergence = on_divergence == DIVERGENCE_STOP;
	return 0;
}

/* Refuses options that would change a schedule, which is trained as it is. */
static int check_lists_options(const struct pd_lists *lists, struct pd_error *err)
{
	if (job.epochs >= 0 || job.minibatches >= 0)
		return pd_error_input(err, "%s: a schedule says itself what is trained, %" PRId64
				      " minibatches, and cannot be cut short or repeated: expected "
				      "none of --epochs and --minibatches", lists->name,
				      lists->minibatches);
	if (resume)
		return pd_error_input(err, "%s: a schedule begins with the first minibatch: "
				      "--resume is for plans", lists->name);
	if (job.checkpoint_every)
		return pd_error_input(err, "%s: the checkpoint of a schedule is at its end: "
				      "--checkpoint-every is for plans", lists->name);
	return 0;
}

/* Reads a plan, or a schedule with its plan and lists. */
static int read_order(const char *file, struct pd_error *err)
{
	if (pd_schedule_or_plan_read(file, pd_table_doors, &job.lists, &job.plan, err) < 0)
		return -1;
	if (job.lists && evaluate)
		return pd_error_input(err, "%s: a schedule says what is trained, and --evaluate trains nothing: "
				      "expected a plan", job.lists->name);
	if (job.lists) {
		if (check_lists_options(job.lists, err) < 0)
			return -1;
		job.plan = job.lists->owned;
		job.minibatches = job.lists->minibatches;
	} else if (job.epochs < 0 && job.minibatches < 0) {
		job.epochs = 1;
	}
	return 0;
}

/* Says once that ranks compute on different kinds of devices. */
static void say_kinds(const struct pd_plan *plan)
{
	for (int r = 1; r < plan->rank_count; r++)
		if (pd_topology_kind_of(&plan->topology, r) != pd_topology_kind_of(&plan->topology, 0)) {
			pd_say("ranks are on different kinds of devices, which round differently: the bits of a run are "
			       "those of its stages on these devices");
			return;
		}
}

int main(int argc, char **argv)
{
	struct pd_error err = { 0 };
	int first, status = pd_hosts_begin(command.name);

	if (status >= 0)
		return status;
	how.launcher = pd_hosts_launcher();
	job.several = pd_hosts_processes() > 1;
	name_readers();
	first = pd_command_parse(&command, argc, argv);
	job.quiet = how.quiet;
	job.file = pd_document_name(pd_operand(argc, argv, first, 0));
	if (check_options(&err) < 0 || pd_hosts_network(network, &err) < 0)
		return pd_command_fail(&err);
	pd_mem_for("the plan or schedule that is read");
	status = read_order(pd_operand(argc, argv, first, 0), &err);
	if (status == 0)
		status = pd_job_check(&job, (resume && !evaluate) || job.gather, &err);
	pd_mem_for("what the workers say");
	if (status == 0 && !how.quiet)
		say_kinds(job.plan);
	if (status == 0)
		status = pd_supervise(&job, &how, &err);
	pd_checkpoint_unlock(job.lock);
	pd_file_abandon(&job.trace_file);
	free(job.passed_over);
	free(job.run);
	pd_job_release_held(&job);
	json_decref(job.recipe);
	free(job.data_sum);
	free(job.init_sum);
	free(job.init_found);
	if (job.lists)
		pd_lists_free(job.lists);
	else
		pd_plan_free(job.plan);
	if (status > 0)
		return pd_command_end_by(status);
	return status < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}
