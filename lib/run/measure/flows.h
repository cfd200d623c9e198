/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process does while a machine is measured (machine.h): it sends and receives as it is told,
 * and says how fast that was.
 *
 * A round is one message, {"event": "round", "flows": [...], "ping": {...}}.  A flow is {"peer",
 * "receive", "bytes", "count"}: `count` messages of `bytes`, some of them under way at a time.  The
 * answer, {"event": "measured", "flows": [{"bytes", "times"}], "latency_ns"}, has for each flow that
 * this process receives when each of its messages was there, on this host's clock.  A ping is {"peer",
 * "first", "count"}: 8 bytes to and fro; the latency is half of the lower quartile of the round trips.
 */
#pragma once

#include "run/launch/task.h"

/* For pd-worker; begins with {"event": "measure", "device", "ranks", "seat"}. */
extern const struct pd_rank_task pd_flows_task;
