#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs, in the first minutes on a GPU, everything that has only run without one: the steps that say most in the
# least time come first.  Three calls fit the quarter of an hour for which a GPU may be lent; --plan prints
# them.  A call leaves one file, gpu-first.tar.gz, with logs, figures, a summary, and marks of which steps
# succeeded.  The next call goes on from that file, so it does not matter whether the machine is the same.
#
#     sh contrib/gpu-first.sh                     in a build tree, after make check TESTS=
#     sh run-here.sh -- sh gpu-first.sh           in a folder made by contrib/gpu-bundle.sh
#     sh ... gpu-first.sh layers nccl             runs these steps alone, whether or not they ran before
#     sh ... gpu-first.sh --plan                  prints the steps of each call, each with its limit in seconds
#     sh contrib/gpu-first.sh --numbers FOLDER    trains on the processor what first-light trains on the GPU, and
#                                                 leaves the plan and its losses in FOLDER
#
# A call runs the steps that neither succeeded before nor failed with this build.  Those that failed it runs
# alone, without graphs and then under compute-sanitizer: at its end, and from the third call on first.  It
# takes as many seconds as --plan says, or BUDGET.
#
# The archive is written after each step, and when the script is told to end: into OUT (the build tree) and,
# for the next call, into the build tree.  FROM is the archive of the call before for a build tree that has
# none, as on another machine.  PD_SOURCE and PD_BUILD are those of the tests.  PYTHON is a Python that has
# PyTorch, for the comparison.  DATA is a folder with Fashion-MNIST.  PERCENT scales the limit of each step
# (100).
#
# A test that looked at nothing, or left something out, has failed.  The exit status is 0 if every step
# succeeded, 1 if one failed, and 4 if none failed but some have not run; the script is then to be called
# again.
set -u

START=90        # seconds until a machine that is lent can be used
CALLS="270 250 230"     # seconds of each call; later ones have LATER
LATER=540
AROUND=18       # seconds of a call before its first step, and for the archive after its last

here=$(cd "$(dirname "$0")" && pwd)
self=$here/${0##*/}
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
models=$PD_SOURCE/share/models
data=${DATA:-/usr/share/datasets/fashion-mnist}
out=$(cd "${OUT:-$PD_BUILD}" && pwd) || exit 3
wanted=" $* "
since=$(date +%s)
work=$(mktemp -d) || exit 3
logs=$work/gpu-first
mkdir "$logs"
trap 'rm -rf "$work"' EXIT
child=

# pack: writes the archive where it is asked for, and where the next call looks for it.
pack() {
	for folder in "$out" "$PD_BUILD"; do
		tar -C "$work" -czf "$folder/gpu-first.tar.gz.new" gpu-first &&
			mv "$folder/gpu-first.tar.gz.new" "$folder/gpu-first.tar.gz" ||
			{ echo "$folder/gpu-first.tar.gz: cannot be written" >&2; exit 3; }
	done
}

# unpack: takes up what the call before left.  This may be another machine, so the first steps, which look at
# it and load its libraries, run again.
unpack() {
	from=$PD_BUILD/gpu-first.tar.gz
	[ -e "$from" ] || from=${FROM-}
	[ -z "$from" ] || tar -C "$work" -xzf "$from" || { echo "$from: cannot be read" >&2; exit 2; }
	[ "$wanted" != "  " ] || rm -f "$logs"/machine.* "$logs"/there.*
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
	exit "$1"
}

# tried NAME: succeeds if the step need not be run: it succeeded, or failed with this build; or, where steps
# were named, it was not, or was run.
tried() {
	case $wanted in
	"  ") [ -e "$logs/$1.good" ] || failed "$1" ;;
	*" $1 "*) [ -e "$work/$1.now" ] ;;
	esac
}

failed() {
	[ "$(cat "$logs/$1.bad" 2>/dev/null)" = "$build" ]
}

# wrong STATUS: prints what is wrong with the step that ended so, or nothing.
wrong() {
	if [ "$1" -eq 124 ]; then
		echo "over $limit s"
	elif [ "$1" -ne 0 ]; then
		echo "status $1"
	elif [ "$kind" = check ] && [ "$skipped" -gt 0 ]; then
		echo "$skipped skipped"
	elif [ "$kind" = check ] && [ "$good" -eq 0 ]; then
		echo "it tested nothing"
	fi
}

# judge STATUS SECONDS: says how the step ended, and leaves its mark.  One that was cut short by the end of
# the call has none.
judge() {
	good=$(grep -c '^ok ' "$work/log") skipped=$(grep -cE '^(ok .*|1\.\.0.*)# SKIP' "$work/log")
	counts="$2 s: $good ok, $(grep -c '^not ok ' "$work/log") not ok, $skipped skipped"
	why=$(wrong "$1")
	rm -f "$logs/$name.good" "$logs/$name.bad"
	if [ -z "$why" ]; then
		touch "$logs/$name.good"
		say "$name" "good, $counts"
	elif { [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; } && [ "$limit" -lt $((full * 3 / 4)) ]; then
		say "$name" "cut by the end of this call, $counts"
	else
		echo "$build" >"$logs/$name.bad"
		say "$name" "BAD, $why, $counts"
		grep '^not ok ' "$work/log" | head -n 5
	fi
}

# run NAME SECONDS COMMAND...: runs a step with this limit, or with what is left of the call.  A step that
# will hardly end in that waits for the next call.
run() {
	name=$1 full=$(($2 * ${PERCENT:-100} / 100))
	shift 2
	begun=$(date +%s)
	limit=$((end - begun))
	if [ $limit -lt $((full / 3)) ] || [ $limit -lt 5 ]; then
		say "$name" "not run: no time left in this call"
		return 0
	fi
	[ $limit -lt $full ] || limit=$full
	touch "$work/$name.now"
	timeout -k 5 "$limit" "$@" >"$work/log" 2>&1 </dev/null &
	child=$!
	wait $child
	status=$?
	child=
	tail -c 400000 "$work/log" >"$logs/$name.log"
	judge $status $(($(date +%s) - begun))
	pack
}

# sanitizes: asks compute-sanitizer once for a call whether it knows this machine; under gVisor it does not.
sanitizes() {
	if [ ! -e "$work/sanitizes" ]; then
		echo yes >"$work/sanitizes"
		! timeout 20 "$sanitizer" pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 \
			"$models/lenet5.json" 2>&1 | grep -qi "device not supported" || {
			echo no >"$work/sanitizes"
			say sanitizer "left out: it does not support this machine"
		}
	fi
	grep -q yes "$work/sanitizes"
}

# alone NAME SECONDS COMMAND...: looks for the cause of a failure, with each means once for a build.
alone() {
	first=$1 seconds=$2
	shift 2
	tried "$first-plain" || run "$first-plain" "$seconds" env PD_CUDA_GRAPHS=no "$@"
	sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
	[ -z "$sanitizer" ] || tried "$first-checked" || ! sanitizes ||
		run "$first-checked" "$seconds" "$sanitizer" --report-api-errors no \
			--target-processes all --error-exitcode 9 "$@"
}

# step NAME SECONDS COMMAND...: names a step.  In the pass called "new" it is run unless it was tried before,
# in the pass "failed" looked at alone if it failed before this call.
step() {
	case $pass in
	plan) printf '%-16s %5d\n' "$1" $(($2 * ${PERCENT:-100} / 100)) ;;
	new) tried "$1" || run "$@" ;;
	failed) ! failed "$1" || [ -e "$work/$1.now" ] || alone "$@" ;;
	esac
	kind=step
}

# check NAME SECONDS COMMAND...: names a step that prints TAP.  One that looks at nothing, or leaves something
# out, fails.
check() {
	kind=check
	step "$@"
}

# script NAME SECONDS FILE: runs a test script on the GPU, as a step.
script() {
	check "$1" "$2" env PD_TEST_DEVICE=cuda sh "$PD_SOURCE/test/$3"
}

# conform NAME SECONDS: runs a conformity test on the GPU, as a step.
conform() {
	check "$1" "$2" env PD_TEST_DEVICE=cuda "$PD_BUILD/test/conform/$1"
}

# torch MODEL BATCH TYPE SECONDS HOW: compares with PyTorch, whose figure comes first, as a step.  MODEL can be
# gpt; HOW are PyTorch's ways.
torch() {
	step "torch-$1-$2-$3" "$4" env TYPES="$3" HOW="$5" \
		sh "$PD_SOURCE/test/bench/gpu-vs-torch.sh" "$1" "$2"
}

# losses: prints the loss of each minibatch of a report.
losses() {
	sed -n 's/.*"event": "progress".*"loss": \([^,}]*\).*/\1/p'
}

# short_run DEVICE PLAN: prints the report of a short training, minibatch by minibatch.
short_run() {
	pd-run --device="$1" --synthetic --no-evaluate --minibatches=60 --optimizer=adamw --lr=1e-3 \
		--report-every=1 "$2"
}

# numbers FOLDER: writes the plan of a GPT of four blocks in bf16, which takes no GPU to make, and what it loses
# on the processor.
numbers() {
	mkdir -p "$1" && pd-model gpt --layers=4 --hidden=128 --heads=4 --sequence=128 --vocabulary=512 \
			--dropout=0 >"$1/model" &&
		pd-profile --device="$PD_SOURCE/share/devices/h100-sxm.json" --dtype=bf16 --batch-size=8 \
			"$1/model" >"$1/profile" &&
		pd-plan --gpus=1 "$1/profile" >"$1/plan" && short_run cpu "$1/plan" >"$1/report" &&
		losses <"$1/report" >"$1/losses"
}

# light FOLDER: trains on the GPU what the folder has, and compares the loss of each minibatch with the
# processor's.  In bf16 the processor's own differ from those of f32 by 0.0002.
light() {
	[ -s "$1/losses" ] || numbers "$1" || return 1
	short_run cuda "$1/plan" >"$logs/first-light.report" || return 1
	losses <"$logs/first-light.report" | awk '
		NR == FNR { expected[n = FNR] = $1; next }
		{
			off = $1 - expected[FNR]
			off = off < 0 ? -off : off
			if (!(off <= 0.003) || $1 !~ /^[0-9]/)
				print "minibatch " FNR ": loss " $1 ", on the processor " expected[bad = FNR]
			worst = off > worst ? off : worst
		}
		END {
			print FNR " losses, off by " worst " at most"
			exit bad || n == 0 || FNR != n
		}' "$1/losses" -
}

# gpt VOCABULARY SECONDS: profiles GPT-2 in bf16, which times every algorithm, plans it and trains it.
gpt() {
	step "gpt-$1" "$2" sh -ec '
		pd-model gpt2 --vocabulary="$2" --dropout=0 >"$1.model"
		pd-profile --device=cuda --dtype=bf16 --no-link --iterations=10 --batch-size=8 \
			"$1.model" >"$1.json"
		grep "\"step_ns\"" "$1.json"
		pd-plan --gpus=1 "$1.json" >"$1.plan"
		pd-run --device=cuda --synthetic --no-evaluate --minibatches=30 "$1.plan" >"$1.report"
		tail -n 1 "$1.report"
		grep -q "\"memory\": \"as predicted\"" "$1.report"' sh "$logs/gpt-$1" "$1"
}

# two WAY SECONDS: trains on two ranks that share the GPU, pipelined.  WAY is a transport, or careful: NCCL
# without whatever a GPU that is shared may not allow, which says what it does.  Weights must have the same
# bits, whatever the way.
two() {
	step "two-$1" "$2" sh -ec '
		cd "$1"
		[ -s two.json ] || pd-profile --device=cuda --no-link --iterations=3 --batch-size=64 \
			"$3/fashion-cnn.json" >two.json
		pd-plan --topology=2@10GB/s --straight two.json >two.plan
		transport=$2
		if [ "$2" = careful ]; then
			transport=nccl
			export CUDA_MODULE_LOADING=EAGER PD_CUDA_GRAPHS=no NCCL_CUMEM_ENABLE=0 \
				NCCL_CUMEM_HOST_ENABLE=0 NCCL_DEBUG=INFO
		fi
		rm -rf "two-$2"
		pd-run --device=cuda --transport="$transport" --synthetic --no-evaluate \
			--minibatches=100 --checkpoint="two-$2" two.plan >"two-$2.report"
		tail -n 1 "two-$2.report"
		for other in two-*/step-000000000100; do
			"$PD_BUILD/test/conform/same-tensors" "$other" "two-$2/step-000000000100"
		done' sh "$logs" "$1" "$models"
}

# fashion SECONDS: trains on Fashion-MNIST to 90 %, pipelined over two ranks that share the GPU.
fashion() {
	if [ $pass != plan ] && [ ! -d "$data" ]; then
		[ $pass = failed ] || tried fashion || say fashion "not run: no data in $data (DATA)"
		return 0
	fi
	step fashion "$1" sh -ec '
		pd-profile --device=cuda --no-link --iterations=3 --batch-size=64 \
			"$1/fashion-cnn.json" >"$3.json"
		pd-plan --topology=2@10GB/s --straight "$3.json" >"$3"
		pd-run --device=cuda --data="$2" --epochs=4 "$3" >"$3.report"
		tail -n 1 "$3.report"
		grep "\"accuracy\"" "$3.report" | tail -n 1 | sed "s/.*\"accuracy\": \([0-9.]*\).*/\1/" |
			awk "{ print \"accuracy\", \$1; exit !(\$1 > 0.9) }"' \
		sh "$models" "$data" "$logs/fashion.plan"
}

# call: the steps that follow belong to the next call.
call() {
	[ $pass != plan ] || echo call
}

# all: names the steps, in order.  It fails where the machine has no GPU.
all() {
	call
	step machine 5 sh -c 'nvidia-smi; nvidia-smi topo -m; nproc; free -m
		ldd "$PD_BUILD/bin/pd-worker"; true'
	# The libraries are loaded for the first time, with cold caches.
	step first-light 20 sh "$self" --light "$PD_BUILD/first-light" "$logs"
	step there 40 pd-profile --device=cuda --no-link --iterations=1 --batch-size=4 \
		"$models/lenet5.json"
	[ ! -e "$work/there.now" ] || ! grep -q "no GPU can be used" "$logs/there.log" || return 1
	check arith 3 "$PD_BUILD/test/unit/cuda-arith"
	conform kernels 25
	conform iteration 25
	conform stream 30
	conform nonfinite 20
	conform layers 80

	call
	torch gpt 8 bf16 140 eager
	two nccl 45
	[ ! -e "$logs/two-nccl.bad" ] || two careful 45
	two staged 45

	call
	torch resnet50 64 bf16 70 eager
	conform partition 50
	gpt 50304 25
	gpt 50257 25
	fashion 40

	call
	step own-device 300 env DTYPE=bf16 ROUNDS=1 NETWORKS="resnet50:64 gpt2:8" SHEET=h100-sxm \
		KEEP="$logs/own-device" sh "$PD_SOURCE/test/bench/own-device.sh" cuda
	check nccl 400 env PD_TEST_WAYS=nccl sh "$PD_SOURCE/test/t9004-nccl.sh"
	check staged 400 env PD_TEST_WAYS=staged sh "$PD_SOURCE/test/t9004-nccl.sh"
	script sanitizer 500 t9003-sanitizer.sh
	check no-graphs 120 env PD_TEST_DEVICE=cuda PD_CUDA_GRAPHS=no "$PD_BUILD/test/conform/stream"
	check transfers 120 "$PD_BUILD/test/conform/transfers"
	conform widened 120
	conform chunks 60
	script gpu 500 t9002-gpu.sh
	conform devices 300
	check auto 400 env PD_TEST_WAYS=auto sh "$PD_SOURCE/test/t9004-nccl.sh"
	script order 300 t4014-order.sh
	script pairs 300 t4003-pairs.sh
	script split 300 t4004-split.sh
	script recompute 300 t4008-recompute.sh
	script mixed 300 t4009-mixed.sh
	script updates 300 t4006-updates.sh
	script tied 300 t4007-tied.sh
	script pipemare 300 t4015-pipemare.sh
	script files 300 t4010-schedule-files.sh
	for type in bf16 tf32; do
		torch gpt 32 $type 400 "eager compiled pure"
		torch resnet50 128 $type 400 "eager compiled pure"
		torch vgg16 128 $type 400 "eager compiled pure"
	done
}

# plan: prints the steps of each call, and the sum of the calls that fit the quarter of an hour.
plan() {
	pass=plan
	all | awk -v calls="$CALLS" -v later=$LATER -v start=$START -v around=$AROUND '
		BEGIN { n = split(calls, seconds, " "); sum = start }
		$1 == "call" {
			number++
			print "call " number ", " (number <= n ? seconds[number] : later) " s" (number > n ? ", and further such calls" : "")
			if (number <= n) { printf "  %-16s %5d\n", "around", around; sum += seconds[number] }
			next
		}
		{ printf "  %-16s %5d\n", $1, $2 }
		END { print sum " s for " n " calls, " start " s until the machine has started among them" }'
}

# tell: counts the steps by their marks, of this call and of those before.
tell() {
	pass=plan
	good=0 bad=0 open=0
	for name in $(all | awk '$1 != "call" && $1 != "two-careful" { print $1 }'); do
		if [ -e "$logs/$name.good" ]; then
			good=$((good + 1))
		elif [ -e "$logs/$name.bad" ]; then
			bad=$((bad + 1))
		else
			open=$((open + 1))
		fi
	done
	echo "$good good, $bad failed, $open not run; $out/gpu-first.tar.gz"
	[ $bad -eq 0 ] || finish 1
	[ $open -eq 0 ] || finish 4
	finish 0
}

case ${1-} in
--plan)
	plan
	exit 0
	;;
--numbers)
	numbers "$2"
	exit
	;;
--light)
	logs=$3
	light "$2"
	exit
	;;
esac
[ -x "$PD_BUILD/bin/pd-worker" ] || { echo "$PD_BUILD: no build tree (PD_BUILD names it)" >&2; exit 2; }
unpack
trap 'finish 143' TERM
trap 'finish 130' INT HUP
build=$(cksum <"$PD_BUILD/bin/pd-worker")
[ "$wanted" != "  " ] || echo call >>"$logs/calls"
number=$(cat "$logs/calls" 2>/dev/null | wc -l)
budget=
[ "$wanted" != "  " ] || budget=$(echo $CALLS | cut -d ' ' -f "$number")
end=$((since + ${BUDGET:-${budget:-$LATER}} - AROUND))
say "$(date +%H:%M:%S)" "call $number on $(nvidia-smi -L 2>/dev/null | head -n 1)"
passes="new failed"
[ "$number" -lt 3 ] || passes="failed new"
kind=step
for pass in $passes; do
	all || { cat "$logs/there.log"; break; }
done
cat "$logs"/torch-*.log 2>/dev/null | grep '[0-9]%$' >"$logs/figures"
say "$(date +%H:%M:%S)" "$(($(date +%s) - since)) s in this call"
pack
tell
