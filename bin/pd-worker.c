/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run: started by pd-run, told what to do over a socket; not for people. */
#include "base/opt.h"
#include "base/program.h"
#include "run/launch/process.h"
#include "run/measure/flows.h"
#include "run/measure/kinds.h"
#include "run/rank/rank.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	struct stat st;

	pd_program_begin("pd-worker");
	if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
		puts("Usage: none.  pd-run starts a pd-worker for each rank.");
		return pd_command_end(PD_EXIT_YES);
	}
	if (argc != 2 || fstat(PD_WORKER_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		fputs("pd-worker: started by pd-run, not by hand\n", stderr);
		return PD_EXIT_USAGE;
	}
	pd_process_begun();
	return (int)pd_rank_main(atoi(argv[1]), PD_WORKER_FD,
				 fcntl(PD_WORKER_EXCHANGE_FD, F_GETFD) < 0 ? -1 : PD_WORKER_EXCHANGE_FD,
				 (const struct pd_rank_task *const []){ &pd_training_task, &pd_flows_task, &pd_kinds_task,
								       NULL });
}
