#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Without a GPU, programs start, with CUDA or without, say plainly that none can be used, and compute on the
# processors where nobody asked for more.  make check-gpu tests machines with a GPU.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

model=$PD_SOURCE/share/models/mlp.json

test_ok "programs start" '
	for program in pd-profile pd-run pd-plan pd-schedule pd-replay; do
		"$program" --version >/dev/null
	done
'

if pd-profile --device=cuda --no-link --iterations=1 "$MODELS/mlp.json" >/dev/null 2>&1; then
	test_skip "what is said without a GPU" "this machine has one: make check-gpu"
	test_done
fi

test_ok "pd-profile --device=cuda says that no GPU can be used" '
	status 3 pd-profile --device=cuda "$MODELS/mlp.json" >out 2>err
	cat err
	one_line err
	grep -q "^pd-profile: --device=cuda: no GPU can be used: " err
	! [ -s out ] || false
'

test_ok "--device=auto then takes the processors" '
	pd-profile --no-link --iterations=1 --batch-size=8 "$MODELS/mlp.json" >profile.json
	grep -q "\"kind\": \"cpu\"" profile.json
'

test_ok "pd-run --device=cuda says so too, and ends" '
	pd-plan --gpus=1 profile.json >plan.json
	status 3 timeout 60 pd-run --device=cuda --synthetic --minibatches=2 plan.json >out 2>err
	cat err
	grep -q "^pd-run: .*--device=cuda: no GPU can be used: " err
'

test_ok "how GPUs exchange is no question for processors" '
	pd-plan --gpus=1 profile.json >plan.json
	for program in "pd-run --synthetic --minibatches=2" pd-profile; do
		case $program in
		pd-run*) file=plan.json ;;
		*) file=$MODELS/mlp.json ;;
		esac
		status 2 $program --device=cpu --transport=nccl "$file" >out 2>err
		cat err
		one_line err
		grep -q "transport=nccl: the cpu device.s workers share a memory" err
		status 2 $program --device=cpu --transport=wires "$file" >out 2>err
		cat err
		grep -q "transport.*auto.*nccl.*staged" err
	done
'

test_ok "a device that nobody knows is bad input" '
	status 2 pd-profile --device=gpu "$MODELS/mlp.json" 2>err
	cat err
	grep -q "expected one of auto, cuda, cpu, found" err
'

test_done
