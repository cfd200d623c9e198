#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plans CASES (500) random requests, beginning with number FIRST (0), and again with more memory, more devices, faster
# links or more schedules, weights and recomputation left open.  A plan that is allowed more must not be slower by more
# than 0.5 %, and must be there.  What fails comes with the commands, whose profiles go to OUT (.).
#     CASES=2000 sh test/bench/monotone.sh
# PD_BUILD names the build tree.  The exit status is 1 if any failed.  test/unit/monotone has a few of these cases.
set -e
. "$(dirname "$0")/bench-lib.sh"
exec "${PD_BUILD:-.}/test/unit/monotone" "${CASES:-500}" "${FIRST:-0}" "$out"
