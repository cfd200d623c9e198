#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank takes the right GPU where mpirun or srun has given each process its own, and pd-topo measures GPUs.
# test/emulated can provide two GPUs, too.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
CUDA_VISIBLE_DEVICES=1 pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 \
	"$MODELS/lenet5.json" >lenet5 2>why || test_skip_all "no second GPU: $(cat why)"
pd-plan --topology=4@10Gbit/s --stages="$(jq ".layers | length" lenet5)x4" lenet5 >plan

# devices GPUS...: prints the numbers of the ranks' devices, where each of four processes sees one of these.
devices() {
	cat >one <<-END
		shift \$OMPI_COMM_WORLD_RANK
		CUDA_VISIBLE_DEVICES=\$1 exec pd-run --print-mapping --synthetic plan
	END
	timeout 60 mpirun -np 4 sh one "$@" 2>err | jq -c 'select(.event == "rank") | .device' |
		tr '\n' ' '
}

test_ok "all see the same GPUs: each rank takes the next" '
	[ "$(devices 0,1,2,3 0,1,2,3 0,1,2,3 0,1,2,3)" = "0 1 2 3 " ]
'
test_ok "each sees one of its own: that is its first" '
	[ "$(devices 0 1 2 3)" = "0 0 0 0 " ]
'
test_ok "pairs see two each" '
	[ "$(devices 0,1 0,1 2,3 2,3)" = "0 1 0 1 " ]
'
test_ok "pd-topo measures the memory of GPUs, and links between them" '
	CUDA_VISIBLE_DEVICES=0,1 pd-topo -q --device=cuda >own
	CUDA_VISIBLE_DEVICES=0 pd-topo -q --device=cuda >shared
	jq -se "(.[0].device.memory_bytes / 2 | floor) == .[1].device.memory_bytes" own shared
	jq -e "[.levels[].count] == [2] and (has(\"processors\") | not)" own
	pd-topo -q --device=cpu | jq -e ".processors > 0"
'
test_done
