#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-topo measures hosts whose links are shaped (contrib/hosts.sh), and must find these links.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/hosts-lib.sh"
need_mpirun
command -v jq >/dev/null || test_skip_all "jq is not installed"

test_ok "two ranks of this host, which pd-plan takes as they are" '
	pd-topo >host.json 2>err
	jq -e "[.levels[].count] == [2] and .processors > 0 and .levels[0].shared_memory" host.json
	one_line err
	chain 4 | pd-plan --topology=host.json >plan
'
test_ok "a device that is none is bad input, said once" '
	status 2 timeout 600 pd-topo --device=none 2>err >out
	said "--device: expected one of auto"
	[ ! -s out ]
'
test_ok "mpirun on this host says how many ranks there are" '
	timeout 600 mpirun -np 3 pd-topo -q 2>err >three.json
	jq -e "[.levels[].count] == [3]" three.json
	status 2 timeout 600 mpirun -np 3 pd-topo --ranks=4 2>err
	said "--ranks: mpirun or srun says how many ranks there are"
'

if ! sh "$PD_SOURCE/contrib/hosts.sh" 2 true 2>why; then
	test_skip "shaped hosts" "$(sed -n "s/^hosts.sh: //p" why)"
	test_done
fi

# topo OPTIONS-OF-HOSTS HOSTS RANKS: measures four hosts.
topo() {
	sh "$PD_SOURCE/contrib/hosts.sh" --limit=600 $1 4 mpirun --host "$2" -np "$3" \
		pd-topo 2>err
}

# racks: checks that the links of out.json are as they were shaped, within a tenth.
racks() {
	jq -e '[.levels[].count] == [2, 2, 2] and [.levels[].shared_memory] == [true, null, null] and
		([.levels[1:][].bandwidth_bytes_per_s * 8 / 1e6] | [.[0] / 200, .[1] / 50] |
			all(. > 0.9 and . < 1.1))' out.json || { cat out.json; return 1; }
}

test_ok "hosts of two ranks in two racks: three levels, each link as it is shaped" '
	for try in 1 2 3; do    # Other programs may have had the processors meanwhile.
		{ topo "--rate=200mbit --racks=2 --uplink=50mbit" h1:2,h2:2,h3:2,h4:2 8 >out.json &&
			racks && break; } || :
	done
	racks
	[ "$(grep -cE "^level [12]: .* [0-9.]+ MB/s for one rank alone; " err)" -eq 2 ]
	grep "^hosts: ranks 0-1 h1, 2-3 h2, 4-5 h3, 6-7 h4\$" err
'
test_ok "hosts that are not alike are refused, with status 1" '
	status 1 topo --rate=100mbit h1:2,h2:1 3
	said "hosts or groups of hosts are not alike: between rank 1 on h1 and rank 2 on h2"
'
test_done
