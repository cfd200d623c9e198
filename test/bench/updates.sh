#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds what is said of a whole update against replays of PLANS random plans (300), of 1 to 4,096 microbatches and 1 to
# 1,024 devices, as test/unit/updates does with few small ones: shorter updates must tell it to 0.2 % in the mean and 2 %
# at most.  Estimates, by which searches rank plans, are shown beside.
#     make -C BUILD test/unit/updates; sh test/bench/updates.sh
set -e
. "$(dirname "$0")/bench-lib.sh"
exec "$PD_BUILD/test/unit/updates" "${PLANS:-300}" 20000000
