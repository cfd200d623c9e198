/* SPDX-License-Identifier: Apache-2.0 */
#include "run/launch/launcher.h"

#include <unistd.h>

#define GRACE_MS 2000

const char *pd_launcher_gone(struct pd_launcher *launcher, int rank, char fate[PD_FATE_TEXT])
{
	enum pd_ended ended;

	for (int ms = 0; (ended = launcher->ops->ended(launcher, rank)) == PD_STILL_RUNS && ms < GRACE_MS; ms++)
		usleep(1000);
	return ended == PD_STILL_RUNS ? "closed its connection" : launcher->ops->fate(launcher, rank, fate);
}
