/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs on several hosts.
 *
 * A launcher that people have, such as mpirun or srun, has started the same program once for each
 * rank.  The first of these processes supervises, and starts its own rank as on one machine.  Every
 * other is the agent of its rank: it connects to the first, starts the rank, gives it a connection of
 * its own, and says how it ended.  From the launcher's PMIx server comes only what the agents need to
 * find the first (run/launch/meeting.h).
 *
 * No rank outlives its agent, no agent its connection to the first; and what is lost is found out in
 * seconds, at both ends (pd_socket_watch).
 *
 * PMIx brings one message from the first to all (where to connect, and words that serve once:
 * run/launch/meeting.h), by its one barrier, and later addresses; it does not tell survivors of a
 * death, and its barriers hang after one.  What is lost is found out by the kernel, which probes
 * the agents' connections, at both ends; so nobody has to be awake for that, and a run that is
 * stopped as a whole goes on.
 */
#pragma once

#include "run/launch/launcher.h"

/*
 * Is called first by main(), with the program's name, instead of pd_program_begin().  Returns -1 where the program
 * goes on, alone or as the first; else the status with which it ends: it was an agent, which has done all that it
 * does, or could not begin, which was said.  Whatever ends the first one from then on, also before ranks are
 * started, its agents end with the same status.
 */
int pd_hosts_begin(const char *program);
/* Returns how many processes were started together; up to 1: the program is alone. */
int pd_hosts_processes(void);
/* Returns what starts ranks: on these hosts, or, where the program is alone, on this one. */
const struct pd_launcher_ops *pd_hosts_launcher(void);
/*
 * In the first process: hosts come together by that interface of this one, and exchange by the addresses by
 * which they are connected to it.  NULL: by any.
 */
int pd_hosts_network(const char *interface, struct pd_error *err);
