/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/other_launchers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct other_launcher {
	const char *name;
	const char *size;               /* the variable with the number of processes */
	const char *sign;               /* a variable that it sets, too; NULL: that one says enough */
	const char *instead;
};

#define PMIX "mpirun of Open MPI, or srun --mpi=pmix"

/* The first that fits is named: Slurm's --mpi=pmi2 sets variables of MPICH. */
static const struct other_launcher others[] = {
	{ "srun", "SLURM_STEP_NUM_TASKS", NULL, "srun --mpi=pmix" },
	{ "Intel MPI's mpirun", "PMI_SIZE", "I_MPI_MPIRUN", PMIX },
	{ "MPICH's mpiexec, or another with PMI 1 or 2,", "PMI_SIZE", "PMI_RANK", PMIX },
	{ "MVAPICH's launcher", "MV2_COMM_WORLD_SIZE", NULL, PMIX },
	{ "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", NULL, "an Open MPI that has PMIx" },
	{ "torchrun", "WORLD_SIZE", "TORCHELASTIC_RUN_ID",
	  "pd-run alone, which starts all ranks of one machine, or for several " PMIX },
	{ "a launcher for PyTorch", "WORLD_SIZE", "MASTER_ADDR",
	  "pd-run alone, which starts all ranks of one machine, or for several " PMIX },
};

static bool is_it(const struct other_launcher *other)
{
	const char *size = getenv(other->size);

	return size && atoi(size) > 1 && (!other->sign || getenv(other->sign));
}

int pd_launched_alone(struct pd_error *err)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (is_it(&others[i]))
			return pd_error_input(err, "%s started %.20s processes without PMIx, and each would "
					      "work by itself: expected %s (if that is meant, unset %s)",
					      others[i].name, getenv(others[i].size), others[i].instead,
					      others[i].size);
	return 0;
}
