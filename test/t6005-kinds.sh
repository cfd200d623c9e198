#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts (contrib/hosts.sh) whose processors have different names are measured, planned for and trained on.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
command -v jq >/dev/null || test_skip_all "jq is not installed"
grep -q "^model name" /proc/cpuinfo || test_skip_all "processors have no names here"

on_hosts --limit=600 --names=fast,slow 2
grep -q "^model name.*: fast$" /proc/cpuinfo || test_skip_all "/proc/cpuinfo cannot be replaced here"

# there ARGUMENT...: runs a program with two ranks on each host.
there() {
	timeout 600 mpirun --host h1:2,h2:2 -np 4 "$@" 2>err
}
pd-profile --iterations=3 --no-link --threads=1 "$MODELS/mlp.json" >measured
for name in fast slow; do
	jq --arg name $name ".device.name = \$name" measured >$name.json
done

test_ok "pd-topo says which ranks have which devices" '
	there pd-topo >machine.json
	jq -e "[.devices[] | [.name, .count]] == [[\"fast\", 2], [\"slow\", 2]] and .device == null" machine.json
	jq -e "all(.devices[]; .memory_bytes > 0)" machine.json
	grep "^devices: ranks 0-1 fast, 2-3 slow" err
	grep "^hosts: ranks 0-1 h1, 2-3 h2\$" err
	pd-plan -q fast.json slow.json -t machine.json >plan
'
test_ok "pd-profile writes a profile of each kind, and pd-plan takes them from a pipe" '
	there pd-profile --iterations=2 --threads=1 "$MODELS/mlp.json" >profiles
	jq -se "[.[].device.name] == [\"fast\", \"slow\"] and all(.[]; .layers[0].forward_ns > 0)" profiles
	grep "^pd-profile: 2 ranks with slow, a step in" err
	pd-plan -q -t machine.json <profiles >piped
	jq -e "(.profiles | keys) == [\"fast\", \"slow\"]" piped
	timeout 600 mpirun --host h2:2 -np 2 pd-profile --iterations=2 --threads=1 "$MODELS/mlp.json" >one 2>err
	jq -se "[.[].device.name] == [\"slow\"]" one
	status 2 there pd-profile --workers=2 "$MODELS/mlp.json"
	grep "^pd-profile: --workers=2: the launcher has started" err
'
test_ok "hosts of one kind have no kinds" '
	timeout 600 mpirun --host h1:2 -np 2 pd-topo -q >one.json
	jq -e ".devices == null and .device.memory_bytes > 0" one.json
'
test_ok "a plan is trained on the devices that it has, and a run says that these differ" '
	pd-plan -q fast.json slow.json -t machine.json --stages=3x2,6x2 >plan
	there pd-run --synthetic --minibatches=8 --threads=1 --trace=trace plan >out
	grep "^pd-run: ranks are on different kinds of devices" err
	jq -se "map(select(.event == \"end\"))[0] | .memory_bytes == .predicted_memory_bytes" out
	pd-replay trace >report
	grep "devices: ranks 0-1 fast, 2-3 slow" report
	grep "^stage 1 .*, on slow" report
'
test_ok "a rank on another device than the plan has for it is refused" '
	jq ".devices |= reverse" machine.json >turned.json
	pd-plan -q fast.json slow.json -t turned.json --stages=3x2,6x2 >plan
	status 2 there pd-run --synthetic --minibatches=8 --threads=1 -q plan >out
	grep "^pd-run: .*rank [0-3] computes on \"[fs][a-z]*\", and the plan has it on \"[fs][a-z]*\": expected ranks 0-1 slow, 2-3 fast" err
	[ "$(grep -c "^pd-run: " err)" -eq 1 ]
'
test_done
