/* SPDX-License-Identifier: Apache-2.0 */
/* model + device -> profile */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/processors.h"
#include "base/program.h"
#include "base/progress_bar.h"
#include "doors/kineto/kineto.h"
#include "doors/network/named.h"
#include "estimate/estimate.h"
#include "run/launch/hosts.h"
#include "run/measure/companions.h"
#include "run/measure/kinds.h"
#include "run/measure/layers.h"
#include "run/measure/link.h"
#include "run/measure/operation_cost.h"
#include "run/measure/shared_processor.h"
#include "run/transport/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_RANKS 4096         /* of traces that are read */
#define UNKNOWN_PART 0.02       /* of backward, of which nothing is said */
#define USUAL_BATCH 32          /* samples of a microbatch */
#define SHORT_NS 1000000000     /* of which no progress is shown */
#define NEEDS_SHEET \
	"a device by its data sheet (pd-device(5)), since pd-run does not share layers out"

static const char *device = "auto", *file, *from, *trace_file, *blocks;
static bool fit;
static int dtype = -1;          /* -1: not said */
static bool no_link;
static int transport;
static int64_t batch_size;      /* 0: not said */
static int64_t threads, workers = 1;
static const char *tensor, *machine;
static struct pd_degrees group = { .tensor = 1, .sharded = 1 };
static struct pd_measure_options measure;

/* Tells whether times are to come from a data sheet: the device is none of this machine's. */
static bool by_sheet(void)
{
	return strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0 &&
	       pd_sheet_known(device);
}

/* Tells whether nothing runs, but times are estimated. */
static bool estimates(void)
{
	return by_sheet() && !fit;
}

static bool shares_layers(void)
{
	return atoi(tensor) > 1;
}

static bool shares_weights(void)
{
	return group.sharded > 1;
}

static bool names_transport(void)
{
	return transport > 0;
}

static const struct pd_opt options[] = {
	PD_OPT_GROUP("What is computed"),
	{ "batch-size", 'b', PD_OPT_COUNT, "N", "samples in a microbatch (default: 32)",
	  &batch_size, 1, PD_MAX_EXTENT },
	{ "dtype", 0, PD_OPT_CHOICE, "TYPE", "type to compute in: f32, bf16, f16 (default: the model's, else f32)",
	  &dtype, .choices = pd_dtype_of_nets },
	{ "iterations", 'i', PD_OPT_COUNT, "N", "timed steps (default: enough for a stable median)",
	  &measure.iterations, 1, 100000 },
	{ "over", 0, PD_OPT_COUNT, "SECONDS",
	  "spread timed steps over so long (default: one behind the other)", &measure.over_s, 1,
	  1 << 20 },
	PD_OPT_GROUP("Device"),
	{ "device", 'd', PD_OPT_STRING, "NAME",
	  "device: auto (default), cpu, cuda, or one by its data sheet", &device,
	  .alone = "batch-size dtype tf32 no-link tensor sharded topology", .counts = estimates,
	  .which = "a data sheet", .why = "times are by its data sheet, and nothing runs" },
	{ "fit", 0, PD_OPT_FLAG, NULL,
	  "fit that device to measured profiles, the operands, and write it", &fit,
	  .alone = "device", .why = "nothing runs" },
	{ "tensor", 0, PD_OPT_STRING, "T[,sequence]",
	  "T devices share each layer out and act as one", &tensor, .needs = "device",
	  .counts = shares_layers, .why = NEEDS_SHEET },
	{ "sharded", 0, PD_OPT_COUNT, "F",
	  "F such share samples and weights out, too, and act as one", &group.sharded, 1,
	  PD_MOST_GROUP, .needs = "device", .counts = shares_weights, .why = NEEDS_SHEET },
	{ "topology", 0, PD_OPT_STRING, "FILE|STRING",
	  "the machine whose links they use, such as 8@450GB/s,8@400GB/s", &machine,
	  .needs = "tensor sharded" },
	{ "tf32", 0, PD_OPT_FLAG, NULL, "let a GPU round factors of f32 products to TF32",
	  &measure.tf32 },
	{ "threads", 't', PD_OPT_COUNT, "N", "threads of a worker (default: half the processors)",
	  &threads, 1, 1 << 20 },
	{ "workers", 'w', PD_OPT_COUNT, "N", "workers at once, one of them timed (default: 1)",
	  &workers, 1, 1 << 20 },
	PD_OPT_GROUP("Another program's measurements"),
	{ "from", 0, PD_OPT_STRING, "TRACE",
	  "measure nothing, read torch.profiler's; operands: the other ranks'", &from,
	  .alone = "blocks trace", .why = "it measures nothing" },
	{ "blocks", 0, PD_OPT_STRING, "REGEX",
	  "modules and labels of these names are one layer each", &blocks, .needs = "from" },
	{ "trace", 0, PD_OPT_STRING, "FILE", "write what they say as a trace, too", &trace_file,
	  .needs = "from" },
	PD_OPT_GROUP("Link"),
	{ "transport", 0, PD_OPT_CHOICE, "NAME",
	  "auto (default); GPUs: nccl, staged; hosts: tcp, ucx", &transport,
	  .choices = pd_provider_names, .excludes = "no-link", .counts = names_transport },
	{ "no-link", 0, PD_OPT_FLAG, NULL, "measure neither the link nor the cost of operations",
	  &no_link },
	{ 0 }
};

static const struct pd_command command = {
	.name = "pd-profile",
	.synopsis = "[OPTION]... [model.json | TRACE...]",
	.summary = "Time every layer of a network on a device.",
	.options = options,
	.max_operands = MOST_RANKS - 1,
};

/* Refuses operands that are no files, and says of networks by name which program writes them. */
static int check_operands(int argc, char **argv, int first, struct pd_error *err)
{
	for (int i = first; i < argc; i++) {
		if (strcmp(argv[i], "-") == 0 || access(argv[i], F_OK) == 0)
			continue;
		if (pd_network_known(argv[i]) && !strchr(argv[i], '/'))
			return pd_error_input(err, "%s: no such file; pd-model %s writes that network",
					      argv[i], argv[i]);
		if (pd_network_known(argv[i]))
			return pd_error_input(err, "%s: no such file; of the hub: hf download %s "
					      "config.json --local-dir DIR, and pd-model DIR", argv[i],
					      argv[i]);
		return pd_error_input(err, "%s: cannot open: %s", *argv[i] ? argv[i] : "\"\"",
				      strerror(errno));
	}
	return 0;
}

/* Tells whether --device is a device that measures, or is like one. */
static bool measures(void)
{
	bool found = strcmp(device, "auto") == 0 || strcasecmp(device, "gpu") == 0;
	struct pd_likeness likeness = { .word = device };
	char meant[PD_MEANT_TEXT];

	for (int i = 0; pd_devices[i]; i++) {
		found |= strcmp(device, pd_devices[i]->name) == 0;
		pd_likeness_try(&likeness, pd_devices[i]->name);
	}
	return found || *pd_likeness_say(&likeness, meant);
}

/* Refuses a name like that of a device by its data sheet; others are refused where devices are looked for. */
static int check_name(struct pd_error *err)
{
	char meant[PD_MEANT_TEXT];

	if (pd_sheet_known(device))
		return 0;
	if (pd_sheet_folder_missing() && !measures())
		return pd_error_input(err, "--device: expected one of auto, cuda, cpu, found \"%.60s\"; the folder of devices "
				      "by their data sheets, %s, is not there: PD_DEVICES names another (pd(7))", device,
				      pd_sheet_folder_missing());
	if (!*pd_sheet_say(device, meant))
		return 0;
	return pd_error_input(err, "--device: expected one of auto, cuda, cpu, or a device by its data sheet (pd-device(5)), "
			      "found \"%.60s\"%s", device, meant);
}

static int check_options(int operands, struct pd_error *err)
{
	if (!from && !fit && operands > 1)
		return pd_error_input(err, "unexpected operand: expected one model, found %d files", operands);
	if (check_name(err) < 0)
		return -1;
	if (fit && !by_sheet() && strcmp(device, "auto") != 0)
		return pd_error_input(err, "--fit: expected --device=NAME, a device by its data sheet (pd-device(5)), or no "
				      "--device, found \"%.60s\"", device);
	if (tensor && pd_degrees_parse_tensor(tensor, 1, &group.tensor, &group.sequence, err) <= 0)
		return -1;
	if (dtype >= 0)
		measure.dtype = pd_dtype_find(pd_dtype_of_nets[dtype]);
	measure.batch_size = batch_size ? batch_size : USUAL_BATCH;
	return 0;
}

static void show(void *bar, int64_t done, int64_t total)
{
	((struct pd_progress_bar *)bar)->total = total;
	pd_progress_bar_show(bar, done, NULL);
}

/* Chooses a worker's threads: its share of the processors, counting at least two workers. */
static int choose_threads(struct pd_error *err)
{
	int processors = pd_processors();

	if (threads == 0)
		threads = processors / (workers > 2 ? workers : 2);
	if (threads == 0)
		threads = 1;
	if (threads * workers <= processors) {
		measure.threads = (int)threads;
		return 0;
	}
	if (workers == 1)
		return pd_error_input(err, "--threads=%d: this machine lets us use %d processors",
				      (int)threads, processors);
	return pd_error_input(err, "--workers=%d: %d threads each are more than the %d processors "
			      "that this machine lets us use", (int)workers, (int)threads, processors);
}

/*
 * Measures the link.  It forks, so it comes before there are threads, and before a GPU is asked
 * for, whose driver does not survive a fork.
 */
static int measure_link(struct pd_link_found *found_p, struct pd_error *err)
{
	const struct pd_link_ends ends = {
		.device = device, .how = transport > 0 ? pd_provider_names[transport] : NULL,
	};

	return no_link ? 0 : pd_measure_link(&ends, found_p, err);
}

static int find_device(struct pd_error *err)
{
	measure.device = pd_device_find(device, err);
	if (!measure.device)
		return -1;
	if (workers == 1 || !measure.device->separate_memory)
		return 0;
	return pd_error_input(err, "--workers=%d: only processors share a memory; with --device=%s"
			      " each worker has its own", (int)workers, measure.device->name);
}

/* Begins a message about what the model asks for with the name of its document. */
static void *in_model(struct pd_error *err)
{
	if (err->status == PD_EXIT_USAGE)
		pd_error_prefix(err, "%s", pd_document_name(file));
	return NULL;
}

static struct pd_profile *run(const struct pd_model *model, struct pd_error *err)
{
	struct pd_link_found link = { 0 };
	int64_t operation = 0;
	struct pd_profile *profile;
	struct pd_companions *companions;
	struct pd_progress_bar bar;
	double in_turns = 0;

	if (choose_threads(err) < 0)
		return NULL;
	if (measure_link(&link, err) < 0 || find_device(err) < 0)
		return NULL;
	if (!no_link && !measure.device->separate_memory &&
	    pd_measure_operation_cost(measure.device->name, &operation, err) < 0)
		return NULL;
	if (workers > 1 && pd_measure_shared_processor(model, &measure, &in_turns, err) < 0)
		return in_model(err);
	measure.workers = (int)workers;
	sched_getaffinity(0, sizeof(measure.all), &measure.all);
	companions = pd_companions_start(model, &measure, (int)workers - 1, err);
	if (!companions)
		return NULL;
	measure.companions = workers > 1 ? companions : NULL;
	pd_measure_pin(0, (int)threads);
	pd_mem_for("a layer that is timed");
	pd_progress_bar_begin(&bar, "profiling", 1, false);
	bar.after_ns = SHORT_NS;
	pd_progress_bar_show(&bar, 0, NULL);
	measure.progress = show;
	measure.context = &bar;
	profile = pd_measure_layers(model, &measure, err);
	pd_progress_bar_end(&bar);
	if (!profile)
		in_model(err);
	if (pd_companions_end(companions, err) < 0) {
		pd_profile_free(profile);
		return NULL;
	}
	if (profile) {
		profile->workers = workers;
		profile->in_turns = in_turns;
		profile->link_bandwidth_bytes_per_s = link.bandwidth_bytes_per_s;
		profile->link_latency_ns = link.latency_ns;
		if (profile->rounds.count > 0)
			profile->link_spread = link.spread;
		profile->operation_ns = operation;
	}
	return profile;
}

static int print(struct pd_profile *profile, struct pd_error *err)
{
	json_t *document;
	int status;

	pd_mem_for("the profile to be written");
	document = pd_profile_json(profile);
	status = pd_json_write(document, stdout, err);
	json_decref(document);
	return status;
}

/* Has every rank time the layers, and writes a profile of each kind of device. */
static int measure_ranks(const struct pd_model *model, struct pd_error *err)
{
	struct pd_kind_profile *list;
	int count, status;

	if (workers > 1)
		return pd_error_input(err, "--workers=%d: the launcher has started the ranks that are timed at once",
				      (int)workers);
	if (transport > 0)
		return pd_error_input(err, "--transport does nothing here: pd-topo measures the links between ranks");
	measure.threads = (int)threads;
	status = pd_kinds_measure(pd_hosts_launcher(), pd_hosts_processes(), model, device, &measure, &list, &count, err);
	if (status < 0)
		in_model(err);
	for (int k = 0; k < count && status == 0; k++) {
		char least[32], most[32];

		pd_say("%d rank%s with %s, a step in %s to %s", list[k].ranks, list[k].ranks == 1 ? "" : "s",
		       list[k].profile->device_name, pd_show_time(list[k].least_ns, least),
		       pd_show_time(list[k].most_ns, most));
		status = print(list[k].profile, err);
	}
	pd_kinds_free(list, count);
	return status;
}

static bool is_alike(const struct pd_model *model, const struct pd_profile *profile, int a, int b)
{
	const struct pd_shape *a_shape = &model->layers[a].output;
	const struct pd_shape *b_shape = &model->layers[b].output;
	const char *kernel = profile->layers[b].slow_kernel;

	return kernel && strcmp(profile->layers[a].slow_kernel, kernel) == 0 &&
	       model->layers[a].kind == model->layers[b].kind &&
	       a_shape->dims == b_shape->dims &&
	       memcmp(a_shape->size, b_shape->size,
		      (size_t)a_shape->dims * sizeof(*a_shape->size)) == 0;
}

/* Warns of layers on slow kernels, once for all of one kind, shape and kernel. */
static void warn_slow(const struct pd_profile *profile)
{
	const struct pd_model *model = profile->model;

	for (int l = 0; l < profile->layer_count; l++) {
		bool first = profile->layers[l].slow_kernel != NULL;
		int more = 0;

		for (int m = 0; m < profile->layer_count && first; m++) {
			first = m >= l || !is_alike(model, profile, l, m);
			more += m > l && is_alike(model, profile, l, m);
		}
		if (!first)
			continue;
		fprintf(stderr, "pd-profile: warning: layer \"%s\"", model->layers[l].name);
		if (more > 0)
			fprintf(stderr, " (and %d more of its kind and shape)", more);
		fprintf(stderr, " runs on a slow kernel, \"%s\": the library has no quick one for "
			"this %s\n", profile->layers[l].slow_kernel,
			pd_layer_kind_name[model->layers[l].kind]);
	}
}

static int write_trace(const struct pd_trace *trace, struct pd_error *err)
{
	struct pd_file out;

	if (pd_file_create(&out, trace_file, err) < 0)
		return pd_error_prefix(err, "--trace");
	if (pd_trace_write(trace, out.stream, err) == 0 && pd_file_commit(&out, err) == 0)
		return 0;
	pd_file_abandon(&out);
	return -1;
}

/* Says what of the traces is not in the profile. */
static void tell_missing(const struct pd_kineto_missing *missing)
{
	if (missing->blocks > 0)
		pd_say("%s: it names no modules; its %d blocks are operators that repeat themselves: record it with "
		       "profile(with_stack=True) to have the modules", from, missing->blocks);
	if (missing->compiled > 0)
		pd_say("warning: %s: it is of a compiled network, where all that one graph computes is one layer, and has %d "
		       "layer%s: for the modules trace an uncompiled run (TORCH_COMPILE_DISABLE=1)", from,
		       missing->compiled, missing->compiled == 1 ? "" : "s");
	if (missing->device)
		pd_say("warning: %s: it tells of a GPU, and times are those of the processor: if the GPU trained, record it "
		       "with activities=[CPU, CUDA]", from);
	if (missing->unread[0] != '\0')
		pd_say("warning: %s: events of category \"%s\" are not known, and do not count",
		       from, missing->unread);
	if (missing->passes > 0)
		pd_say("warning: %s: %zu forwards have other layers than most, and do not count",
		       from, missing->passes);
	if (missing->backward > UNKNOWN_PART)
		pd_say("warning: %s: %.0f %% of backward belongs to no module, and does not count", from,
		       100 * missing->backward);
}

/* Makes a profile, and a trace, of the traces of torch.profiler: `from` and the operands. */
static int convert(int count, char **operands, struct pd_error *err)
{
	const char **files = pd_calloc((size_t)count + 1, sizeof(*files));
	struct pd_trace *trace;
	struct pd_kineto_missing missing;
	int status = -1;

	files[0] = from;
	for (int f = 0; f < count; f++)
		files[f + 1] = operands[f];
	pd_mem_for("the traces");
	trace = pd_kineto_read(files, count + 1, blocks, &missing, err);
	free(files);
	if (trace)
		tell_missing(&missing);
	if (trace && (!trace_file || write_trace(trace, err) == 0))
		status = print(trace->plan->profile, err);
	pd_trace_free(trace);
	return status;
}

/* Makes a device of what a profile says of its own. */
static struct pd_sheet *sheet_of(const struct pd_profile *profile, struct pd_error *err)
{
	return pd_sheet_of(profile->device_name, profile->device_kind,
			   profile->device_memory_bytes > 0 ? profile->device_memory_bytes : 1, err);
}

/* Fits a device to the profiles, and writes its document. */
static int fit_device(int count, char **operands, struct pd_error *err)
{
	struct pd_profile **profiles = pd_calloc((size_t)count + 1, sizeof(struct pd_profile *));
	struct pd_sheet *sheet = NULL;
	json_t *document = NULL;
	int read = 0, status = 0;

	for (; read < count && status == 0; read++) {
		profiles[read] = pd_profile_read(operands[read], 0, err);
		status = profiles[read] ? 0 : -1;
	}
	if (status == 0 && read == 0)
		status = pd_error_input(err, "--fit: expected the files of measured profiles");
	if (status == 0)
		sheet = by_sheet() ? pd_sheet_read(device, err) : sheet_of(profiles[0], err);
	if (sheet && pd_estimate_fit(sheet, profiles, read, err) == 0)
		document = pd_sheet_json(sheet, profiles[0]->device_name);
	status = document ? pd_json_write(document, stdout, err) : -1;
	json_decref(document);
	for (int p = 0; p < read; p++)
		pd_profile_free(profiles[p]);
	free(profiles);
	pd_sheet_free(sheet);
	return status;
}

/* Sets the links of devices that act as one: those of the machine, if there is one. */
static int link_group(struct pd_error *err)
{
	struct pd_topology topology;

	if (!machine)
		return 0;
	if (pd_topology_read(machine, &topology, err) < 0)
		return -1;
	if (topology.devices < pd_degrees_devices(&group))
		return pd_error_input(err, "--topology: found %lld devices: expected at least %lld, "
				      "which act as one", (long long)topology.devices,
				      (long long)pd_degrees_devices(&group));
	pd_estimate_links(&topology, &group);
	return 0;
}

/* Says which link the devices of a group were taken to have. */
static void say_link(const struct pd_profile *profile)
{
	long long bandwidth = profile->group.tensor_link.bandwidth_bytes_per_s;
	long long devices = pd_degrees_devices(&group);
	char rate[32];

	if (!machine && devices > 1)
		pd_say("each of the %lld devices is taken to reach all others over the link of "
		       "\"%s\", %s, as within one server: --topology names another machine", devices,
		       profile->device_name, pd_show_rate(bandwidth, rate));
}

/* Estimates the profile of a device by its data sheet. */
static struct pd_profile *estimate(const struct pd_model *model, struct pd_error *err)
{
	struct pd_sheet *sheet = link_group(err) < 0 ? NULL : pd_sheet_read(device, err);
	const struct pd_estimate how = { sheet, measure.batch_size, measure.dtype, measure.tf32, false, group };
	struct pd_profile *profile = sheet ? pd_estimate_profile(&how, model, err) : NULL;

	if (profile)
		say_link(profile);
	pd_sheet_free(sheet);
	return profile;
}

/* Takes the model's type where none is said. */
static void take_dtype(const struct pd_model *model)
{
	if (dtype < 0 && model->dtype < PD_DTYPES)
		measure.dtype = model->dtype;
}

/* Names the defaults that decide the times. */
static void say_assumed(const struct pd_model *model)
{
	char type[64] = "", batch[64] = "";

	if (dtype < 0 && measure.dtype != PD_F32)
		snprintf(type, sizeof(type), "computed in %s, as the model says (--dtype)",
			 pd_dtype_name[measure.dtype]);
	else if (dtype < 0 && by_sheet())
		snprintf(type, sizeof(type), "computed in %s (--dtype)", pd_dtype_name[measure.dtype]);
	if (batch_size == 0 && by_sheet())
		snprintf(batch, sizeof(batch), "microbatches of %d samples (--batch-size)", USUAL_BATCH);
	if (*type || *batch)
		pd_say("%s: %s%s%s", model->name, type, *type && *batch ? ", " : "", batch);
}

static int measure_model(const char *operand, struct pd_error *err)
{
	struct pd_model *model;
	struct pd_profile *profile;
	int status;

	pd_mem_for("the model");
	file = operand;
	model = pd_model_read(file, err);
	if (!model)
		return -1;
	take_dtype(model);
	if (pd_hosts_processes() > 1 && !by_sheet()) {
		status = pd_model_check_batch(model, measure.batch_size, err);
		if (status < 0)
			in_model(err);
		else
			status = measure_ranks(model, err);
		if (status == 0)
			say_assumed(model);
		pd_model_free(model);
		return status;
	}
	profile = pd_model_check_batch(model, measure.batch_size, err) < 0 ? in_model(err)
		: by_sheet() ? estimate(model, err) : run(model, err);
	if (profile)
		say_assumed(model);
	pd_model_free(model);
	if (!profile)
		return -1;
	if (profile->model && !profile->estimated_from)
		warn_slow(profile);
	status = print(profile, err);
	pd_profile_free(profile);
	return status;
}

int main(int argc, char **argv)
{
	struct pd_error err = { 0 };
	int first, status = pd_hosts_begin(command.name);

	if (status >= 0)
		return status;
	first = pd_command_parse(&command, argc, argv);
	if (check_operands(argc, argv, first, &err) < 0 ||
	    check_options(argc - first, &err) < 0 || pd_output_check(&err) < 0)
		return pd_command_fail(&err);
	status = from ? convert(argc - first, argv + first, &err)
	       : fit ? fit_device(argc - first, argv + first, &err)
		      : measure_model(pd_operand(argc, argv, first, 0), &err);
	return status < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}
