#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs, in the first minutes on a GPU, everything that has only run without one.  The steps that say most in
# the least time come first.  A call takes at most BUDGET seconds (540) and leaves one file,
# gpu-first.tar.gz, with logs, figures, a summary, and marks of which steps succeeded.  The next call reads
# that file: it runs the steps that were not tried, then those that failed.  So the script can be called
# again and again on machines that keep nothing.
#
#     sh contrib/gpu-first.sh                     in a build tree, after make check TESTS=
#     sh run-here.sh -- sh gpu-first.sh           in a folder made by contrib/gpu-bundle.sh
#     sh ... gpu-first.sh layers nccl             runs these steps alone, whether or not they ran before
#     sh ... gpu-first.sh --list                  lists the steps, each with its limit in seconds
#
# FROM is the archive of the call before (gpu-first.tar.gz), OUT the folder for the new one (.).  The
# archive is written after each step, and when the script is told to end.  PD_SOURCE and PD_BUILD are those
# of the tests.  PYTHON is a Python that has PyTorch, for the comparison.  NETWORKS are the models that are
# timed (vgg16 resnet50), BATCH is their samples in a minibatch (64).  PERCENT scales the limit of each step
# (100).
#
# The exit status is 0 if every step succeeded, 1 if one failed, and 4 if none failed but some have not run;
# the script is then to be called again.
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
PD_GPU=yes      # Without a GPU the tests fail.
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
# The last 15 seconds are for the archive, and for killing a step that does not end.
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
		# timeout(1) passes the signal on, and kills a step that does not end.
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
	# This may be another machine, so the first steps, which look at it and load its libraries, run
	# again.
	[ $# -gt 0 ] || rm -f "$logs"/machine.* "$logs"/there.*
	trap 'finish 143' TERM
	trap 'finish 130' INT HUP
fi
trap 'rm -rf "$work"' EXIT

# tried NAME: succeeds if this pass leaves the step alone.  The first pass runs the steps that were not
# tried or were cut short, the second those that failed in a call before.
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

# step NAME SECONDS COMMAND...: runs a step unless this pass leaves it alone.  It fails only if the step ran
# and failed.
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
	# A step that will hardly end in the time left waits for the next call.
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

# script NAME SECONDS FILE: runs a test script on the GPU, as a step.
script() {
	step "$1" "$2" env PD_TEST_DEVICE=cuda sh "$PD_SOURCE/test/$3"
}

# network MODEL TYPE: profiles a model, which times every algorithm and engine, plans it and trains it, as a
# step.
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

# torch MODEL BATCH TYPE: compares with PyTorch, whose figure comes first, as a step.  MODEL can be gpt.
torch() {
	step "torch-$1-$2-$3" 400 env TYPES="$3" \
		sh "$PD_SOURCE/test/bench/gpu-vs-torch.sh" "$1" "$2"
}

all() {
	step machine 60 sh -c 'nvidia-smi; nvidia-smi topo -m; nproc; free -m
		ldd "$PD_BUILD/bin/pd-worker"; true'
	# The first load of the libraries, with cold caches, takes a minute or two.
	step there 180 pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 \
		"$models/lenet5.json" || { cat "$logs/there.log"; return 1; }

	# The next steps test kernels and streams.
	step arith 60 "$PD_BUILD/test/unit/cuda-arith"
	step kernels 60 "$PD_BUILD/test/conform/kernels"
	step stream 120 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/stream"
	step layers 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/layers"
	step iteration 120 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/iteration"

	# The next steps time whole networks, alone on the GPU, in the type that matters most.
	for model in $networks; do
		network "$model" bf16
	done
	for model in $networks; do
		torch "$model" "$batch" bf16
	done
	torch gpt 8 bf16

	# The next steps run several ranks.  If NCCL hangs or fails, nccl-careful shows whether the cause is
	# what CUDA does while transfers wait.
	step transfers 120 "$PD_BUILD/test/conform/transfers"
	step nccl 400 env PD_TEST_WAYS=nccl sh "$PD_SOURCE/test/t9004-nccl.sh"
	if [ $list = yes ] || [ -e "$logs/nccl.bad" ]; then
		step nccl-careful 400 env PD_TEST_WAYS=nccl CUDA_MODULE_LOADING=EAGER \
			PD_CUDA_GRAPHS=no NCCL_DEBUG=WARN sh "$PD_SOURCE/test/t9004-nccl.sh"
	fi
	step staged 400 env PD_TEST_WAYS=staged sh "$PD_SOURCE/test/t9004-nccl.sh"

	# The next steps test the remaining kernels, and other types.
	step no-graphs 120 env PD_TEST_DEVICE=cuda PD_CUDA_GRAPHS=no "$PD_BUILD/test/conform/stream"
	step partition 300 env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/partition"
	script gpu 500 t9002-gpu.sh
	for model in $networks; do
		network "$model" tf32
		torch "$model" "$batch" tf32
	done
	step devices 300 "$PD_BUILD/test/conform/devices"
	script sanitizer 500 t9003-sanitizer.sh

	# The next steps train, under each kind of schedule and update.
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

# The last line counts the steps by their marks, of this call and of those before.
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
