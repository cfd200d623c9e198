#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first minutes on a GPU: runs everything that has only run without one, what says most in the
# least time first.  A call takes no longer than BUDGET seconds (540) and leaves one file,
# gpu-first.tar.gz, with logs, figures, a summary, and marks of which steps went well.  The next
# call takes that up: it goes on with the steps that were not tried, then tries again those that
# failed.  So it can be called one time after the other on machines that keep nothing.
#
#     sh contrib/gpu-first.sh                     in a build tree, after make check TESTS=
#     sh run-here.sh -- sh gpu-first.sh           in a folder made by contrib/gpu-bundle.sh
#     sh ... gpu-first.sh layers nccl             these steps alone, again if need be
#     sh ... gpu-first.sh --list                  the steps, each with its limit in seconds
#
# FROM: the archive of the call before (gpu-first.tar.gz); OUT: the folder for the new one (.).  It is
# written after each step, and when the script is told to end.  PD_SOURCE and PD_BUILD as for tests.
# PYTHON: one that has PyTorch, for the comparison.  NETWORKS and BATCH: which models are timed, and
# their samples in a minibatch (vgg16 resnet50; 64).  PERCENT: of each step's limit (100).
# Status: 0 every step went well; 1 one did not; 4 none failed, but not all were run: call it again.
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
networks=${NETWORKS:-vgg16 resnet50}
batch=${BATCH:-64}
models=$PD_SOURCE/share/models
list=no
[ "${1-}" != --list ] || list=yes
[ $list = yes ] || [ -x "$PD_BUILD/bin/pd-worker" ] ||
	{ echo "$PD_BUILD: no build tree (PD_BUILD names it)" >&2; exit 2; }

out=$(cd "${OUT:-.}" && pwd) || exit 3
from=${FROM:-gpu-first.tar.gz}
wanted=" $* "
since=$(date +%s)
# what is left at the end is for the archive, and for ending a step that will not
end=$((since + ${BUDGET:-540} - 15))
work=$(mktemp -d) || exit 3
logs=$work/gpu-first
mkdir "$logs"
child=

pack() {
	tar -C "$work" -czf "$out/gpu-first.tar.gz.new" gpu-first &&
		mv "$out/gpu-first.tar.gz.new" "$out/gpu-first.tar.gz" ||
		{ echo "$out/gpu-first.tar.gz: cannot be written" >&2; exit 3; }
}

say() {
	printf '%-16s %s\n' "$1" "$2" | tee -a "$logs/summary"
}

finish() {
	if [ -n "$child" ]; then
		# timeout passes it on, and kills what does not end
		kill -TERM "$child" 2>/dev/null
		wait "$child"
		tail -c 400000 "$work/log" >"$logs/$name.log"
		say "$name" "cut: the call was told to end"
		pack
	fi
	rm -rf "$work"
	trap - EXIT
	exit "$1"
}

if [ $list = no ]; then
	if [ -e "$from" ]; then
		tar -C "$work" -xzf "$from" || { echo "$from: cannot be read" >&2; exit 2; }
	fi
	# another machine, perhaps: its libraries are loaded first, with time for that
	[ $# -gt 0 ] || rm -f "$logs"/machine.* "$logs"/there.*
	trap 'finish 143' TERM
	trap 'finish 130' INT HUP
fi
trap 'rm -rf "$work"' EXIT

# tried NAME: does this pass leave it alone?  The first runs what was not tried, or was cut short;
# the second what failed in a call before.
tried() {
	case $wanted in
	"  ") ;;
	*" $1 "*) [ $pass = 2 ] ; return ;;
	*) return 0 ;;
	esac
	[ ! -e "$logs/$1.good" ] || return 0
	if [ $pass = 1 ]; then
		[ -e "$logs/$1.bad" ]
	else
		[ ! -e "$logs/$1.bad" ] || [ -e "$work/$1.now" ]
	fi
}

# step NAME SECONDS COMMAND...: 0: it went well, or did so before, or is for another pass.
step() {
	name=$1 limit=$(($2 * ${PERCENT:-100} / 100))
	shift 2
	if [ $list = yes ]; then
		printf '%-16s %s\n' "$name" "$limit"
		return 0
	fi
	! tried "$name" || return 0
	begun=$(date +%s)
	left=$((end - begun))
	# one that will hardly end in what is left is for the next call
	if [ $left -lt $((limit / 3)) ] || [ $left -lt 5 ]; then
		say "$name" "not run: no time left in this call"
		return 0
	fi
	full=$limit
	[ $left -ge "$limit" ] || limit=$left
	touch "$work/$name.now"
	timeout -k 5 "$limit" "$@" >"$work/log" 2>&1 </dev/null &
	child=$!
	wait $child
	status=$?
	child=
	tail -c 400000 "$work/log" >"$logs/$name.log"
	took=$(($(date +%s) - begun))
	counts="$(grep -c '^ok ' "$work/log") ok, $(grep -c '^not ok ' "$work/log") not ok,"
	counts="$counts $(grep -c '# SKIP' "$work/log") skipped"
	rm -f "$logs/$name.good" "$logs/$name.bad"
	if [ $status -eq 0 ]; then
		touch "$logs/$name.good"
		say "$name" "good, $took s: $counts"
	elif { [ $status -eq 124 ] || [ $status -eq 137 ]; } && [ $limit -lt $((full * 3 / 4)) ]; then
		say "$name" "cut after $took s, the end of this call: $counts"
		status=0
	else
		touch "$logs/$name.bad"
		[ $status -ne 124 ] || status="124, over $limit s"
		say "$name" "BAD, status $status, $took s: $counts"
	fi
	pack
	[ "$status" = 0 ]
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
		at=$1/$2
		pd-profile --device=cuda --dtype='"$type $flags"' --no-link --iterations=10 \
			--batch-size='"$batch"' "$3" >"$at.json"
		echo "layers with engines of the graph API: $(grep -c "\"engines\"" "$at.json")"
		grep "\"step_ns\"" "$at.json"
		pd-plan --gpus=1 "$at.json" >"$at.plan"
		pd-run --device=cuda '"$flags"' --synthetic --minibatches=60 "$at.plan" |
			tail -n 1 | tee "$at.report"
		grep -q "\"memory\": \"as predicted\"" "$at.report"' \
		sh "$logs" "$1-$2" "$models/$1.json"
}

# torch MODEL BATCH TYPE: against PyTorch, with which the comparison begins; MODEL can be gpt.
torch() {
	step "torch-$1-$2-$3" 400 env TYPES="$3" \
		sh "$PD_SOURCE/test/bench/gpu-vs-torch.sh" "$1" "$2"
}

all() {
	step machine 60 sh -c 'nvidia-smi; nvidia-smi topo -m; nproc; free -m
		ldd "$PD_BUILD/bin/pd-worker"; true'
	# the first load of the libraries, cold, takes a minute or two
	step there 180 pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 \
		"$models/lenet5.json" || { cat "$logs/there.log"; return 1; }

	# kernels and streams
	step arith 60 "$PD_BUILD/test/unit/cuda-arith"
	step kernels 60 "$PD_BUILD/test/conform/kernels"
	step stream 120 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/stream"
	step layers 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/layers"
	step iteration 120 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/iteration"

	# whole networks, alone on the GPU, in the type that matters most; how fast
	for model in $networks; do
		network "$model" bf16
	done
	for model in $networks; do
		torch "$model" "$batch" bf16
	done
	torch gpt 8 bf16

	# several ranks; where NCCL hangs or fails: is it what CUDA does while transfers wait?
	step transfers 120 "$PD_BUILD/test/conform/transfers"
	step nccl 400 env PD_TEST_WAYS=nccl sh "$PD_SOURCE/test/t9004-nccl.sh"
	if [ $list = yes ] || [ -e "$logs/nccl.bad" ]; then
		step nccl-careful 400 env PD_TEST_WAYS=nccl CUDA_MODULE_LOADING=EAGER \
			PD_CUDA_GRAPHS=no NCCL_DEBUG=WARN sh "$PD_SOURCE/test/t9004-nccl.sh"
	fi
	step staged 400 env PD_TEST_WAYS=staged sh "$PD_SOURCE/test/t9004-nccl.sh"

	# the rest of the kernels; other types
	step no-graphs 120 env PD_TEST_DEVICE=cuda PD_CUDA_GRAPHS=no "$PD_BUILD/test/conform/stream"
	step partition 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/partition"
	script gpu 500 t9002-gpu.sh
	for model in $networks; do
		network "$model" tf32
		torch "$model" "$batch" tf32
	done
	step devices 300 "$PD_BUILD/test/conform/devices"
	script sanitizer 500 t9003-sanitizer.sh

	# training, each kind of schedule and update
	step auto 400 env PD_TEST_WAYS=auto sh "$PD_SOURCE/test/t9004-nccl.sh"
	script order 300 t4014-order.sh
	script pairs 300 t4003-pairs.sh
	script split 300 t4004-split.sh
	script recompute 300 t4008-recompute.sh
	script mixed 300 t4009-mixed.sh
	script updates 300 t4006-updates.sh
	script tied 300 t4007-tied.sh
	script pipemare 300 t4015-pipemare.sh
	script files 300 t4010-schedule-files.sh
	for model in $networks; do
		for more in 128 256; do
			torch "$model" "$more" bf16
			torch "$model" "$more" tf32
		done
	done
	torch gpt 32 bf16
}

pass=1
if [ $list = yes ]; then
	all
	exit 0
fi
say "$(date +%H:%M:%S)" "on $(nvidia-smi -L 2>/dev/null | head -n 1)"
for pass in 1 2; do
	all || break
done
cat "$logs"/torch-*.log 2>/dev/null | grep '[0-9]%$' >"$logs/figures"
say "$(date +%H:%M:%S)" "$(($(date +%s) - since)) s in this call"
pack

# what is good and bad of all there is, in this call or one before
list=yes
good=0 failed=0 open=0
for name in $(all | awk '$1 != "nccl-careful" { print $1 }'); do
	if [ -e "$logs/$name.good" ]; then
		good=$((good + 1))
	elif [ -e "$logs/$name.bad" ]; then
		failed=$((failed + 1))
	else
		open=$((open + 1))
	fi
done
echo "$good good, $failed failed, $open not run; $out/gpu-first.tar.gz"
[ $failed -eq 0 ] || finish 1
[ $open -eq 0 ] || finish 4
finish 0
