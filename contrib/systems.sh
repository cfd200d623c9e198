#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Has the parsers of other systems read what pd-plan writes for them, and compares what they find with
# test/data/systems.jsonl, which test/t2023-systems.sh holds the answers to:
#
#     sh contrib/systems.sh [--write]
#
# --write makes that file anew.  SYSTEMS_VENV is a virtual environment with the systems (/tmp/pd-systems); where there
# is none, PYTHON (python3), which must have PyTorch 2.15, makes it, with the versions below.  PD_BUILD is the build
# tree.  The script says ok or not ok, as a test does.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/systems-lib.sh"
venv=${SYSTEMS_VENV:-/tmp/pd-systems}
if [ ! -x "$venv/bin/python" ]; then
	"${PYTHON:-python3}" -m venv --system-site-packages "$venv" &&
		"$venv/bin/pip" install -q torchtitan==0.3.0 megatron-core==0.16.1 deepspeed==0.19.8 >pip.out 2>&1 ||
		test_skip_all "torchtitan, megatron-core and deepspeed cannot be installed in $venv"
fi
: >judged
# judge PATTERN: has what was written be judged, into the file judged.
judge() {
	for answer in $1; do
		case $answer in
		*.plan.json) ;;
		*) "$venv/bin/python" "$PD_SOURCE/contrib/systems.py" "$answer" 2>err >found || { tail -n 3 err; return 1; }
			jq -c --arg sum "$(cksum <"$answer")" ". + {sum: \$sum}" found >>judged ;;
		esac
	done
}
test_ok "torchtitan builds a Llama of every answer: each parameter in one stage, the schedule as planned" '
	torchtitan_answers
	pd-schedule --format=torch titan_split.py.plan.json >schedule.csv
	judge "titan_*.py"'
test_ok "Megatron builds the network of every answer: each layer in one stage, with its own checks of arguments" '
	megatron_answers
	judge "megatron_*.sh"'
test_ok "DeepSpeed takes every configuration, and has as many modules in each stage" '
	deepspeed_answers
	judge "deepspeed_*.py"'
if [ "${1-}" = --write ] && [ "$(wc -l <judged)" -ge 15 ]; then
	cp judged "$PD_SOURCE/test/data/systems.jsonl"
fi
test_ok "what they find is what test/t2023-systems.sh expects" '
	cmp judged "$PD_SOURCE/test/data/systems.jsonl"'
test_done
