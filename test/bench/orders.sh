#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The searches of orders on many random requests, of which the tests have some:
#     sh test/bench/orders.sh
# EXACT (600) requests of up to 4 positions and 6 microbatches against the best order of all, a fifth of as many of up to
# 8 positions with ever more room, and PLANS (60) small profiles against every other schedule in its own memory, and with
# more memory, devices and faster links.  PD_BUILD names the build tree.  It takes some ten minutes of a processor.
set -e
cd "$(dirname "$0")/../.."
build=${PD_BUILD:-$PWD/build}
"$build/test/unit/order-exact" "${EXACT:-600}"
PD_BUILD=$build PD_ORDER_CASES=${PLANS:-60} exec sh test/t2017-orders.sh
