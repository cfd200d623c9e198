/* SPDX-License-Identifier: Apache-2.0 */
/* measures the machine that ranks would be on -> topology */
#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/processors.h"
#include "base/program.h"
#include "base/progress_bar.h"
#include "run/launch/hosts.h"
#include "run/measure/machine.h"

#include <string.h>

static int64_t ranks;
static bool quiet;
static const char *device = "auto";
static const char *network;

static const struct pd_opt options[] = {
	{ "ranks", 'n', PD_OPT_COUNT, "N", "without a launcher: N processes of this host (default: 2)",
	  &ranks, 2, 65536 },
	{ "device", 'd', PD_OPT_STRING, "NAME", "device: auto (default), cpu or cuda", &device },
	{ "network", 0, PD_OPT_STRING, "INTERFACE", "of the first host, by which hosts exchange", &network },
	{ "quiet", 'q', PD_OPT_FLAG, NULL, "no progress, and no summary on standard error", &quiet },
	{ 0 }
};

static const struct pd_command command = {
	.name = "pd-topo",
	.synopsis = "[OPTION]...",
	.summary = "Measure a machine: levels of links, their bandwidths and latencies.",
	.options = options,
	.max_operands = 0,
};

static struct pd_progress_bar bar;

static void show(void *unused, int done, int total)
{
	if (done == 1)
		pd_progress_bar_begin(&bar, "links", total, quiet);
	pd_progress_bar_show(&bar, done, NULL);
}

static int write_all(const struct pd_machine *machine, struct pd_error *err)
{
	json_t *document = pd_topology_json(&machine->topology);
	int status = pd_json_write(document, stdout, err);

	json_decref(document);
	if (status == 0 && !quiet)
		pd_machine_print(machine, stderr);
	return status;
}

static int measure(int processes, struct pd_error *err)
{
	const struct pd_machine_progress progress = { .step = show };
	struct pd_machine machine;
	int status;

	if (pd_output_check(err) < 0)
		return -1;
	status = pd_machine_measure(pd_hosts_launcher(), processes, device, &progress, &machine, err);
	pd_progress_bar_end(&bar);
	if (status == 0)
		status = write_all(&machine, err);
	pd_machine_release(&machine);
	return status;
}

int main(int argc, char **argv)
{
	struct pd_error err = { 0 };
	int status = pd_hosts_begin(command.name), together = pd_hosts_processes();

	if (status >= 0)
		return status;
	pd_command_parse(&command, argc, argv);
	pd_mem_for("what the processes say");
	if (pd_hosts_network(network, &err) < 0)
		return pd_command_fail(&err);
	if (together > 1 && ranks > 0)
		status = pd_error_input(&err, "--ranks: mpirun or srun says how many ranks there are");
	else if (together <= 1 && ranks > pd_processors() && strcmp(device, "cuda") != 0)
		status = pd_error_input(&err, "--ranks=%lld: this machine lets us use %d processors, and "
					"ranks that share one measure each other, not links",
					(long long)ranks, pd_processors());
	else
		status = measure(together > 1 ? together : ranks ? (int)ranks : 2, &err);
	return status < 0 ? pd_command_fail(&err) : pd_command_end(PD_EXIT_YES);
}
