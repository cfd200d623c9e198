#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Profiles networks of torchvision and transformers with pd_profile.py, and plans each:
#
#     PYTHON=PYTHON sh contrib/torch/check.sh
#
# PYTHON is a Python that has torch, torchvision and transformers (python3), PD_BUILD the build tree.  The
# script says ok or not ok, as a test does.  It takes minutes, so `make check` does not run it.
PD_SOURCE=${PD_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
. "$PD_SOURCE/test/test-lib.sh"
PYTHONPATH=$PD_SOURCE/contrib/torch
export PYTHONPATH
"${PYTHON:-python3}" -c 'import torch, torchvision, transformers' 2>/dev/null ||
	test_skip_all "there is no PyTorch with torchvision and transformers for ${PYTHON:-python3}"

"${PYTHON:-python3}" "$PYTHONPATH/check.py" >checked 2>log || cat log
while read -r line; do
	name=$(echo "$line" | sed 's/.* - \([^ ]*\) .*/\1/')
	test_ok "$name is profiled: $line" 'case $line in not*) false ;; esac'
	test_ok "$name is planned for one and for four devices" '
		pd-plan -t 1@1GB/s "$name.json" | jq -e ".stages | length == 1"
		pd-plan -t 4@10GB/s --straight --weights=flush --microbatches=8 "$name.json" >plan.json
		pd-replay plan.json'
done <checked
test_ok "all networks were profiled" '[ "$(grep -c "^ok" checked)" -ge 12 ]'
test_done
