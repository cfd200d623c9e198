#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first minutes on a GPU: runs, in the order of what they say, everything that has only run
# without one; no step longer than its limit, all together no longer than BUDGET seconds (1700).
# LOGS (gpu-first) gets a file for each step and `summary`, a line for each.  A step that went well
# is not run again when the script is: so it can be given its time in pieces.
#
#     sh contrib/gpu-first.sh                     in a build tree, after make check TESTS=
#     sh run-here.sh -- sh gpu-first.sh           in a folder made by contrib/gpu-bundle.sh
#     sh ... gpu-first.sh layers nccl             these steps alone, again if need be
#
# PD_SOURCE and PD_BUILD as for tests.  PYTHON: one that has PyTorch, for the comparison.
# Status: 0 every step went well, 1 one did not, or there was no time for it.
set -u

here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${PD_SOURCE-}" ]; then
	case $here in
	*/contrib) PD_SOURCE=${here%/contrib} ;;
	*) PD_SOURCE=$here ;;
	esac
fi
PD_BUILD=$(cd "${PD_BUILD:-.}" && pwd)
PATH=$PD_BUILD/bin:$PATH
PD_GPU=yes      # that there is none is a failure
export PD_SOURCE PD_BUILD PATH PD_GPU
[ -x "$PD_BUILD/bin/pd-worker" ] ||
	{ echo "$PD_BUILD: no build tree (PD_BUILD names it)" >&2; exit 2; }

logs=${LOGS:-gpu-first}
mkdir -p "$logs" || exit 3
logs=$(cd "$logs" && pwd)
models=$PD_SOURCE/share/models
wanted=" $* "
since=$(date +%s)
end=$((since + ${BUDGET:-1700}))
bad=0

say() {
	printf '%-14s %s\n' "$1" "$2" | tee -a "$logs/summary"
}

# step NAME SECONDS COMMAND...
step() {
	name=$1 limit=$2
	shift 2
	case $wanted in
	*" $name "*) ;;
	"  ") [ -e "$logs/$name.good" ] && return 0 ;;
	*) return 0 ;;
	esac
	begun=$(date +%s)
	if [ $((end - begun)) -lt 10 ]; then
		say "$name" "not run: no time left"
		bad=1
		return 1
	fi
	[ "$limit" -le $((end - begun)) ] || limit=$((end - begun))
	timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
	status=$?
	took=$(($(date +%s) - begun))
	counts="$(grep -c '^ok ' "$logs/$name.log") ok, $(grep -c '^not ok ' "$logs/$name.log") not ok,"
	counts="$counts $(grep -c '# SKIP' "$logs/$name.log") skipped"
	if [ $status -eq 0 ]; then
		touch "$logs/$name.good"
		say "$name" "good, $took s: $counts"
		return 0
	fi
	rm -f "$logs/$name.good"
	[ $status -ne 124 ] || status="124, over $limit s"
	say "$name" "BAD, status $status, $took s: $counts; $logs/$name.log"
	bad=1
	return 1
}

# script NAME SECONDS FILE: a test script, of the GPU.
script() {
	step "$1" "$2" env PD_TEST_DEVICE=cuda sh "$PD_SOURCE/test/$3"
}

# network MODEL TYPE: profiled, which times every algorithm and engine, planned, trained.
network() {
	case $2 in
	tf32) flags=--tf32 type=f32 ;;
	*) flags= type=$2 ;;
	esac
	step "$1-$2" 300 sh -ec '
		bytes="\"memory\": \"as predicted\""
		pd-profile --device=cuda --dtype='"$type $flags"' --no-link --iterations=10 \
			--batch-size=64 "'"$models/$1.json"'" >"'"$logs/$1-$2.json"'"
		echo "layers with engines of the graph API: $(grep -c \"engines\" "'"$logs/$1-$2.json"'")"
		grep "\"step_ns\"" "'"$logs/$1-$2.json"'"
		pd-plan --gpus=1 "'"$logs/$1-$2.json"'" >"'"$logs/$1-$2.plan"'"
		pd-run --device=cuda '"$flags"' --synthetic --minibatches=60 "'"$logs/$1-$2.plan"'" |
			tail -n 1 | tee "'"$logs/$1-$2.report"'"
		grep -q "$bytes" "'"$logs/$1-$2.report"'"'
}

say "$(date +%H:%M:%S)" "on $(nvidia-smi -L 2>/dev/null | head -n 1)"
step machine 60 sh -c 'nvidia-smi; nvidia-smi topo -m; nproc; ldd "$PD_BUILD/bin/pd-worker"'
step there 60 pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 "$models/lenet5.json" ||
	{ cat "$logs/there.log" 2>/dev/null; exit 1; }

# kernels and streams
step arith 60 "$PD_BUILD/test/unit/cuda-arith"
step stream 120 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/stream"
step layers 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/layers"
step no-graphs 120 env PD_TEST_DEVICE=cuda PD_CUDA_GRAPHS=no "$PD_BUILD/test/conform/stream"
step partition 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/partition"

# whole networks, alone on the GPU
network vgg16 bf16
network resnet50 bf16
network vgg16 tf32
script gpu 600 t9002-gpu.sh

# several ranks
step transfers 120 "$PD_BUILD/test/conform/transfers"
# where it hangs or fails: is it what CUDA does while transfers wait?
script nccl 600 t9004-nccl.sh ||
	step nccl-careful 400 env CUDA_MODULE_LOADING=EAGER PD_CUDA_GRAPHS=no NCCL_DEBUG=WARN \
		sh "$PD_SOURCE/test/t9004-nccl.sh"

# how fast
step torch 600 sh "$PD_SOURCE/test/bench/gpu-vs-torch.sh" vgg16 64 resnet50 64
grep '[0-9]%$' "$logs/torch.log" 2>/dev/null

# the rest
step devices 300 "$PD_BUILD/test/conform/devices"
script sanitizer 600 t9003-sanitizer.sh
script order 300 t4006-order.sh
script pairs 300 t4003-pairs.sh
script split 300 t4004-split.sh
script recompute 300 t4008-recompute.sh
script mixed 300 t4009-mixed.sh
script updates 300 t4006-updates.sh
script tied 300 t4007-tied.sh
script pipemare 300 t4007-pipemare.sh
script files 300 t4010-schedule-files.sh
step torch-more 900 sh "$PD_SOURCE/test/bench/gpu-vs-torch.sh" vgg16 128 vgg16 256 resnet50 128 \
	resnet50 256

say "$(date +%H:%M:%S)" "$(($(date +%s) - since)) s in all"
exit $bad
