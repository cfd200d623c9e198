#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/gpu-first.sh has stand-ins for what it runs here.  One call comes after the other, in a folder that
# stays or on a machine that has nothing but the archive that the call before left.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

first=$PD_SOURCE/contrib/gpu-first.sh

# stand_in FILE: makes a program that says that it ran, does what a file of its name in ./do says, and prints
# a line of TAP unless that has set another.
stand_in() {
	mkdir -p "$(dirname "tree/$1")"
	cat >"tree/$1" <<-EOF
		#!/bin/sh
		echo "$1 \$*" >>"$PWD/ran"
		line="ok 1 - $1"
		[ ! -e "$PWD/do/$(basename "$1")" ] || . "$PWD/do/$(basename "$1")"
		[ -z "\$line" ] || echo "\$line"
	EOF
	chmod +x "tree/$1"
}

mkdir do
for file in bin/pd-worker bin/pd-profile bin/pd-plan bin/pd-model bin/pd-run test/unit/cuda-arith \
	test/conform/kernels test/conform/stream test/conform/layers test/conform/iteration \
	test/conform/partition test/conform/devices test/conform/widened test/conform/chunks test/conform/nonfinite test/conform/transfers \
	test/conform/same-tensors test/bench/gpu-vs-torch.sh test/bench/own-device.sh \
	$(cd "$PD_SOURCE" && ls test/t9*.sh test/t4*.sh); do
	stand_in "$file"
done
cat >do/pd-run <<-'EOF'
	for a in "$@"; do
		case $a in
		--checkpoint=*) mkdir -p "${a#*=}/step-000000000100" ;;
		esac
	done
	line='{"event": "progress", "step": 1, "loss": 6.2704, "accuracy": 0.1}
	{"memory": "as predicted", "accuracy": 0.91}'
EOF
echo 'line="\"step_ns\": 5"' >do/pd-profile
mkdir -p tree/share/models tree/first-light data
echo 6.2719 >tree/first-light/losses
tree=$PWD/tree
unset FROM OUT BUDGET PERCENT PD_GPU
PATH=$tree/bin:$PATH
DATA=$PWD/data
export DATA

# call ARGUMENTS: calls the script.  What the archive holds is then in ./gpu-first, what ran in ./ran.
call() {
	: >ran
	ended=0
	PD_SOURCE=$tree PD_BUILD=$tree sh "$first" "$@" >said 2>&1 || ended=$?
	cat said
	rm -rf gpu-first
	tar xzf tree/gpu-first.tar.gz
}

# anew: forgets all calls.
anew() {
	rm -rf tree/gpu-first.tar.gz gpu-first
}

test_ok "three calls fit a quarter of an hour with a minute to spare, and each has time for its steps" '
	PD_SOURCE=$tree PD_BUILD=$tree sh "$first" --plan >plan
	cat plan
	awk "/^call/ { n++; has[n] = \$3 } /^  / { sum[n] += \$2; if (\$2 > 540) bad = 1 }
		/^[0-9]+ s for 3 calls/ { all = \$1 }
		END { for (i = 1; i <= 3; i++) {
				if (sum[i] > has[i]) bad = 1
				calls += has[i]
			}
			exit bad || n < 4 || calls + 60 > all || all > 840 }" plan
	order=$(awk "/^  / { print \$1 }" plan | tr "\n" " ")
	case $order in
	*"machine first-light "*"kernels iteration stream nonfinite layers "*"torch-gpt-8-bf16 two-nccl two-staged "*"torch-resnet50-64-bf16 "*) ;;
	*) false ;;
	esac
	! [ -e ran ] || false
'

# The call has 57 seconds for steps, and one takes all that the steps before leave.
test_ok "some steps fail, one does not end with the call: all are told" '
	echo "exit 1" >do/layers
	echo "exit 5" >do/pd-model
	echo "exec sleep 1000" >do/t9004-nccl.sh
	BUDGET=75 PERCENT=20 call
	[ $ended -eq 1 ]
	grep -q "^layers .*BAD, status 1" said
	grep -q "^gpt-50257 .*BAD, status 5" said
	grep -q "^partition .*good" said
	grep -q "^nccl .*cut by the end of this call" said
	grep -q "^staged .*not run: no time left" said
	[ -e gpu-first/partition.good ] && [ -s gpu-first/layers.bad ]
	! [ -e gpu-first/nccl.good ] && ! [ -e gpu-first/nccl.bad ]
	grep -q "test/conform/layers" gpu-first/layers.log || grep -q "test/conform/layers" ran
'

test_ok "the next call takes up what was not run, and looks alone at what failed" '
	rm do/t9004-nccl.sh do/pd-model
	echo "[ \"\${PD_CUDA_GRAPHS-}\" = no ] || exit 1" >do/layers
	call
	[ $ended -eq 1 ]
	! grep -q "conform/kernels\|conform/partition" ran || false
	grep -q "t9004-nccl" ran && grep -q "t9002" ran
	grep -q "^layers-plain .*good" said && grep -q "^gpt-50257-plain .*good" said
	grep -q step_ns gpu-first/gpt-50257.json
	[ -s gpu-first/layers.bad ] && [ -e gpu-first/layers-plain.good ]
	tail -n 1 said | grep -q " good, 3 failed, 0 not run"
'

test_ok "what failed is run again once there is another build, and looked at alone once for each" '
	call
	! grep -q "conform/layers\|pd-model" ran || false
	echo "# repaired" >>tree/bin/pd-worker
	rm do/layers
	call
	[ $ended -eq 0 ]
	[ "$(grep -c "conform/" ran)" -eq 1 ] && grep -q "conform/layers" ran
	[ "$(grep -c "pd-model" ran)" -eq 2 ]
	[ -e gpu-first/layers.good ] && ! [ -e gpu-first/layers.bad ]
	tail -n 1 said | grep -q " good, 0 failed, 0 not run"
'

test_ok "all is done: only the machine is looked at, on another one too" '
	mv tree/gpu-first.tar.gz carried
	FROM=carried call
	[ $ended -eq 0 ]
	! grep -q "conform/\|t4\|t9\|pd-run" ran || false
	grep -q pd-profile ran
	mkdir out
	OUT=out call
	cmp out/gpu-first.tar.gz tree/gpu-first.tar.gz || false
'

test_ok "steps that are named are run again, and no others" '
	call nccl layers
	[ $ended -eq 0 ]
	[ "$(wc -l <ran)" -eq 2 ]
	grep -q "conform/layers" ran && grep -q "t9004" ran
'

test_ok "a test that skips something, or looks at nothing, has failed" '
	echo "line=\"ok 1 - kernels # SKIP no GPU\"" >do/kernels
	echo "line=" >do/stream
	echo "line=\"1..0 # SKIP no GPU\"" >do/t9003-sanitizer.sh
	call kernels stream sanitizer
	[ $ended -eq 1 ]
	grep -q "^kernels .*BAD, 1 skipped" said
	grep -q "^stream .*BAD, it tested nothing" said
	grep -q "^sanitizer .*BAD, 1 skipped" said
	rm do/kernels do/stream do/t9003-sanitizer.sh
'

# lights LOSS: succeeds if first-light is good where the processor has lost so much.
lights() {
	anew
	echo "$1" >tree/first-light/losses
	call first-light
	[ -e gpu-first/first-light.good ]
}

test_ok "first light: what the GPU loses is held against the processor, minibatch by minibatch" '
	lights 6.2730
	lights 6.2680
	! lights 6.2740 || false
	grep "minibatch 1: loss 6.2704, on the processor 6.2740" gpu-first/first-light.log
	[ -s gpu-first/first-light.bad ]
	! lights "6.2704
6.2704" || false
	cp do/pd-run good
	sed "s/6.2704/NaN/" good >do/pd-run
	! lights 6.2704 || false
	echo "exit 3" >do/pd-run
	! lights 6.2704 || false
	cp good do/pd-run
	echo 6.2719 >tree/first-light/losses
'

test_ok "a build tree that has no numbers of the processor makes them" '
	anew
	rm -r tree/first-light
	call first-light
	[ -e gpu-first/first-light.good ]
	[ "$(cat tree/first-light/losses)" = 6.2704 ]
	[ "$(grep -c "^bin/pd-run --device=cpu" ran)" = 1 ] && [ "$(grep -c "^bin/pd-run --device=cuda" ran)" = 1 ]
'

test_ok "where NCCL fails it is tried with more care; the bits of both ways are compared" '
	anew
	cp do/pd-run good
	cat >do/pd-run <<-"EOF"
		case "$*" in
		*=nccl*) [ "${NCCL_CUMEM_ENABLE-}${NCCL_CUMEM_HOST_ENABLE-}" = 00 ] || exit 3 ;;
		esac
	EOF
	cat good >>do/pd-run
	call two-nccl two-careful two-staged
	[ $ended -eq 1 ]
	[ -s gpu-first/two-nccl.bad ]
	[ -e gpu-first/two-careful.good ] && [ -e gpu-first/two-staged.good ]
	grep -q "same-tensors two-careful/step-000000000100 two-staged/step-000000000100" ran
	cp good do/pd-run
'

test_ok "a library that does not load keeps nothing else from being run; that there is no GPU does" '
	anew
	cp do/pd-profile good
	echo "exit 3" >do/pd-profile
	call
	grep -q "^there .*BAD, status 3" said
	grep -q "^kernels .*good" said && grep -q "^stream .*good" said
	anew
	echo "echo \"no GPU can be used: none\"; exit 3" >do/pd-profile
	call
	[ $ended -eq 1 ]
	grep -q "^no GPU can be used" said
	! grep -q "conform/" ran || false
	cp good do/pd-profile
'

test_ok "without data, training to an accuracy is said not to have run" '
	anew
	DATA=$PWD/none call fashion
	[ $ended -eq 4 ]
	grep -q "^fashion .*not run: no data in .*/none" said
	! [ -s ran ] || false
'

test_ok "a call that is told to end leaves its archive" '
	anew
	echo "exec sleep 1000" >do/layers
	PD_SOURCE=$tree PD_BUILD=$tree sh "$first" >said 2>&1 &
	run=$!
	for try in $(seq 600); do
		! grep -q "^nonfinite .*good" said || break
		sleep 0.1
	done
	sleep 0.5
	kill -TERM $run
	ended=0
	wait $run || ended=$?
	cat said
	[ $ended -eq 143 ]
	tar xzf tree/gpu-first.tar.gz
	[ -e gpu-first/stream.good ] && ! [ -e gpu-first/layers.good ]
	grep -q "layers .*told to end" gpu-first/summary
'

test_ok "an archive that is none is said to be" '
	echo nonsense >tree/gpu-first.tar.gz
	PD_SOURCE=$tree PD_BUILD=$tree status 2 sh "$first" 2>err
	grep -q "gpu-first.tar.gz: cannot be read" err
	rm tree/gpu-first.tar.gz
	FROM=missing PD_SOURCE=$tree PD_BUILD=$tree status 2 sh "$first" 2>err
	grep -q "missing: cannot be read" err
'

test_done
