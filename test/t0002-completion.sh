#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bash completes every option of every program, and the values of those that have a list of them.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v bash >/dev/null || test_skip_all "bash is not installed"

# complete WORD...: prints what bash would offer for the last word; the first is the program.
complete() {
	bash -c '. "$PD_BUILD/share/completions/$1" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) &&
		_${1/-/_} && printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}

for program in pd-export pd-model pd-profile pd-plan pd-schedule pd-run pd-replay pd-topo; do
	test_ok "$program: the options that --help has, no more" '
		$program --help | sed -n "s/^  [ -][ a-z][ ,] \(--[a-z0-9-]*=\?\).*/\1/p" | sort >expected
		complete $program -- | sort >found
		[ "$(wc -l <found)" -gt 3 ]
		diff expected found'
	test_ok "$program: what is installed is what the program says" '
		$program --completion | cmp - "$PD_BUILD/share/completions/$program"'
done
touch "a file" plan.json
mkdir folder
test_ok "values, with and without =, and of a letter" '
	[ "$(complete pd-plan --cost = sos)" = sosp19 ]
	[ "$(complete pd-plan --cost =| tr "\n" " ")" = "simulated sosp19 released released-no-traffic " ]
	[ "$(complete pd-replay -f ch)" = chrome ]
	[ "$(complete pd-run --optimizer adamw)" = adamw ]'
test_ok "files and folders, spaces in them too" '
	[ "$(complete pd-run a)" = "a file" ]
	[ "$(complete pd-run --checkpoint = "")" = folder ]
	[ "$(complete pd-plan --topology pl)" = plan.json ]'
test_ok "nothing where a number is wanted" '
	[ -z "$(complete pd-plan --gpus "")" ]'
test_ok "bash takes the whole of it: --cost=sos" '
	bash -n "$PD_BUILD/share/completions/pd-plan"'

test_done
