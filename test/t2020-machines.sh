#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-plan takes a model and a machine by name, and makes the profiles itself; machines are what names, nvidia-smi, NCCL
# and pd-topo say.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
command -v jq >/dev/null || test_skip_all "jq is not installed"
PD_DEVICES=$PD_SOURCE/share/devices PD_MACHINES=$PD_SOURCE/share/machines
export PD_DEVICES PD_MACHINES

pd-model gpt --layers=2 --hidden=64 --heads=4 --vocabulary=100 --sequence=32 --name=small >small.json
pd-model mlp --name=plain >plain.json
small="--batch=8 --schedule=1f1b --straight --tensor=1 --effort=0 plain.json"
# refused WORDS ARGUMENT...: checks that pd-plan refuses these in one sentence with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-plan -q "$@" 2>err >out
	cat err
	one_line err && grep -q -e "$words" err && [ ! -s out ]
}
# levels ARGUMENT...: prints counts and GB/s of the topology of a plan.
levels() {
	# shellcheck disable=SC2086
	pd-plan -q "$@" $small | jq -c "[.topology.levels[] | [.count, .bandwidth_bytes_per_s / 1e9]]"
}
test_ok "every machine that is known by name says where each figure is from, has its name, and makes a plan" '
	for file in "$PD_MACHINES"/*.json; do
		name=$(basename "$file" .json)
		jq -e --arg name "$name" ".name == \$name and .sources as \$from |
			(keys - [\"format\", \"version\", \"name\", \"sources\"]) == (\$from | keys)" "$file"
		device=$(jq -r .device "$file")
		pd-plan -q --on="2x$name" $small >plan.json
		jq -e --slurpfile machine "$file" --slurpfile sheet "$PD_DEVICES/$device.json" "\$machine[0] as \$m |
			.topology.device.memory_bytes == \$sheet[0].memory_bytes and
			[.topology.levels[] | [.count, .bandwidth_bytes_per_s]] ==
				[[\$m.devices, \$sheet[0].link.bandwidth_bytes_per_s],
				[2, \$m.network.adapters * \$m.network.bandwidth_bytes_per_s]]" plan.json
	done'
test_ok "published totals: what a server sends" '
	total() { levels "--on=2x$1" | jq ".[1][1] * 8"; }
	[ "$(total dgx-a100) $(total dgx-h100) $(total dgx-b200) $(total p4d) $(total p5)" = "1600 3200 3200 400 3200" ]
	[ "$(total a3-high) $(total a3-mega) $(total nd-v4) $(total nd-v5)" = "800 1600 1600 3200" ]
	[ "$(total hgx-h100-1nic) $(total hgx-h100-4nic) $(total hgx-h100-8nic)" = "400 1600 3200" ]'
test_ok "the answer says what devices share, and the profile is that of pd-profile" '
	pd-plan --on=2xp4d --dtype=bf16 $small 2>err >plan.json
	cat err
	grep "^machine .* of 16 devices, a100-40; 8 devices share 50 GB/s; times of a100-40 by its spec" err
	size=$(jq .profile.batch_size plan.json)
	pd-profile -d a100-40 --dtype=bf16 --batch-size="$size" plain.json | jq ".layers | map(.forward_ns)" >by-hand
	jq ".profile.layers | map(.forward_ns)" plan.json | cmp - by-hand'
test_ok "a model leaves open what nobody says: sizes of microbatches, tensor degrees, schedules; and no more" '
	pd-plan --on=dgx-a100 --batch=4 --effort=0 --explain small.json 2>err >plan.json
	cat err
	grep "^pd-plan: small: computed in bf16 (--dtype)$" err
	awk "/^tensor/ { on = 1; next } on && /^\$/ { exit } on { print \$1 }" err | sort -u >degrees
	printf "%s\n" 1 2 4 | cmp - degrees
	awk "/^microbatch / { on = 1; next } on && /^\$/ { exit } on { print \$1 }" err | sort -nu >sizes
	printf "%s\n" 1 2 4 | cmp - sizes
	sed -n "/^schedule .*period/,/^\$/p" err | grep -c . >kinds
	[ "$(cat kinds)" -gt 5 ]
	jq -e ".weights == \"flush\" and .profile.memory.sharded" plan.json
	pd-plan -q --on=dgx-a100 --batch=4 --effort=0 --schedule=gpipe --tensor=2 small.json >plan.json
	jq -e ".schedule == \"gpipe\" and .profile.group.tensor == 2 and (.profile.memory.sharded | not)" plan.json'
test_ok "--device names devices of another topology, and --sequence and --dtype change the model" '
	pd-plan -q -t 2@40GB/s -d a100-80 --dtype=f16 --sequence=16 --batch=2 --schedule=1f1b --tensor=1 --effort=0 gpt \
		>plan.json
	jq -e ".profile.dtype == \"f16\" and .profile.model.inputs[0].shape == [16] and .topology.devices == null" plan.json
	pd-plan -q --gpus=1 -d a100-80 --batch=2 --schedule=1f1b plain.json | jq -e ".topology.levels[0].count == 1"'
test_ok "a profile goes with a machine, but not one of other devices" '
	pd-profile -d a100-40 --dtype=bf16 --batch-size=1 plain.json >p.json
	pd-plan -q --on=2xp4d p.json | jq -e ".topology.levels[1].bandwidth_bytes_per_s == 50e9"
	refused "p.json: its times are of \"a100-40\", and --on=p5 has \"h100-sxm\"" --on=p5 p.json'

# table GPUS CELL [FROM]: prints what nvidia-smi topo -m does of so many GPUs, all joined alike, or islands of FROM.
table() {
	awk -v n="$1" -v cell="$2" -v island="${3:-$1}" "BEGIN {
		printf \"\t\033[4mGPU0\"
		for (i = 1; i < n; i++) printf \"\tGPU%d\", i
		print \"\tNIC0\tCPU Affinity\tNUMA Affinity\033[0m\"
		for (i = 0; i < n; i++) {
			printf \"GPU%d\", i
			for (j = 0; j < n; j++)
				printf \"\t%s\", i == j ? \" X \" : int(i / island) == int(j / island) ? cell : \"SYS\"
			print \"\tPIX\t0-51\t0\"
		}
		print \"NIC0\tPIX\tPIX\n\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\" }"
}
test_ok "nvidia-smi topo -m: switches, direct links, bridges and none" '
	table 8 NV18 >h100.txt
	[ "$(levels --on=h100.txt --device=h100-sxm)" = "[[8,450]]" ]
	[ "$(levels --on=h100.txt --device=b200)" = "[[8,900]]" ]
	table 8 NV12 >a100.txt
	[ "$(levels --on=a100.txt --device=a100-80)" = "[[8,300]]" ]
	table 4 NV4 >four.txt
	[ "$(levels --on=four.txt --device=a100-80)" = "[[4,300]]" ]
	table 4 NV12 2 >bridges.txt
	[ "$(levels --on=bridges.txt --device=a100-80)" = "[[2,300],[2,32]]" ]
	table 2 PHB >pci.txt
	[ "$(levels --on=pci.txt --device=rtx-4090)" = "[[2,32]]" ]
	pd-plan --on=pci.txt -d rtx-4090 $small 2>err >plan.json
	grep "^pd-plan: pci.txt: devices without NVLink between them .*PCIe 4.0, at 32 GB/s" err
	table 1 NV1 >one.txt
	[ "$(levels --on=one.txt --device=a100-80 | jq ".[0][0]")" = 1 ]'
test_ok "what is not said, or not so, is refused" '
	refused "^pd-plan: --on: h100.txt does not say which devices it has: give --device=NAME" --on=h100.txt $small
	refused "h100.txt does not say how servers are joined" --on=2xh100.txt -d h100-sxm $small
	sed "s/^GPU3.*//" h100.txt >no.txt
	refused "no.txt: expected a table .* a row for each of its 8 GPUs, found 3" --on=no.txt -d h100-sxm $small
	sed "s/^GPU3\tNV18/GPU3\tXY/" h100.txt >no.txt
	refused "no.txt: GPU3 and GPU0: expected a way such as NV18 or SYS, found .XY." --on=no.txt -d h100-sxm $small
	sed "s/^GPU3\tNV18/GPU3\tSYS/; s/NV18/SYS/" h100.txt >no.txt
	table 6 NV12 4 >no.txt
	refused "no.txt: NVLink joins devices in groups that are not alike" --on=no.txt -d a100-80 $small
	echo nothing >no.txt
	refused "no.txt: expected a document of .*, a table of nvidia-smi .*, found none" --on=no.txt -d a100-80 $small
	: >empty
	refused "empty: expected a document of .*, found none of these" --on=empty -d a100-80 $small
	refused "expected a machine .pd-machine.5.., .*, found .8xdgx-h10.; did you mean .dgx-h100.?" --on=8xdgx-h10 $small
	refused "^pd-plan: --on: ./none.json: no such file$" --on=2x./none.json $small
	refused "device=h100-sxm: .*p4d.json has devices .a100-40." --on=p4d -d h100-sxm $small
	refused "found .tpu-v5." --on=h100.txt -d tpu-v5 $small
	refused "dtype needs --on" --dtype=bf16 p.json'
# xml GPUS COUNT SPEED [CLASS]: prints what NCCL writes of so many GPUs, with COUNT links to each of two switches, or
# to the next GPU.
xml() {
	awk -v n="$1" -v count="$2" -v speed="$3" -v class="${4:-0x068000}" "BEGIN {
		print \"<system version=\\\"1\\\">\n<!-- <gpu dev=\\\"9\\\"/> -->\n<cpu numaid=\\\"0\\\" arch=\\\"x86_64\\\">\"
		for (i = 0; i < n; i++) {
			printf \"<pci busid=\\\"0000:%02x:00.0\\\" class=\\\"0x030200\\\" link_width=\\\"16\\\">\n\", 10 + i
			printf \"<gpu dev=\\\"%d\\\" sm=\\\"80\\\" rank=\\\"%d\\\" gdr=\\\"1\\\">\n\", i, i
			for (k = 0; k < 2; k++)
				printf \"<nvlink target=\\\"0000:%02X:00.0\\\" count=\\\"%d\\\" tclass=\\\"%s\\\"/>\n\",
					class == \"0x068000\" ? 200 + k : 10 + (i + (k ? n - 1 : 1)) % n, count, class
			print \"</gpu>\n</pci>\"
			if (speed)
				printf \"<nic><net name=\\\"mlx5_%d\\\" dev=\\\"%d\\\" speed=\\\"%s\\\" port=\\\"1\\\"/></nic>\n\", i, i, speed
		}
		print \"</cpu>\n</system>\" }"
}
test_ok "NCCL says links to switches or to each other, and what adapters carry" '
	xml 8 6 200000 >nccl.xml
	[ "$(levels --on=4xnccl.xml --device=a100-80)" = "[[8,300],[4,200]]" ]
	xml 4 6 "" 0x030200 >nccl.xml
	[ "$(levels --on=nccl.xml --device=a100-80)" = "[[4,300]]" ]
	refused "nccl.xml does not say how servers are joined" --on=2xnccl.xml -d a100-80 $small
	xml 8 6 -1 >nccl.xml
	refused "nccl.xml: expected a speed above 0" --on=nccl.xml -d a100-80 $small
	sed "s/ tclass=.*/\/>/" nccl.xml >no.xml
	refused "no.xml: expected <nvlink>s inside a <gpu>" --on=no.xml -d a100-80 $small
	echo "<html>" >no.xml
	refused "no.xml: expected NCCL.s topology" --on=no.xml -d a100-80 $small
	echo "<gpu" >no.xml
	refused "no.xml: expected a whole document" --on=no.xml -d a100-80 $small'
test_ok "a document of one.s own, and a whole topology" '
	echo "{\"format\": \"pd-machine\", \"version\": 1, \"name\": \"ours\", \"device\": \"h100-pcie\", \"devices\": 4,
		\"link\": {\"bandwidth_bytes_per_s\": 64e9}, \"memory_bytes\": 40e9,
		\"network\": {\"adapters\": 2, \"bandwidth_bytes_per_s\": 25e9}}" >ours.json
	[ "$(levels --on=3xours.json)" = "[[4,64],[3,50]]" ]
	pd-plan -q --on=ours.json $small | jq -e ".topology.device.memory_bytes == 40e9"
	jq "del(.link)" ours.json >no.json
	refused "no.json: link: expected one, since the data sheet of .h100-pcie. has none" --on=no.json $small
	jq ".network.speed = 1" ours.json >no.json
	refused "no.json: network: unknown key .speed." --on=no.json $small
	pd-plan -q -t 4@64GB/s,2@25GB/s -d h100-pcie $small | jq .topology >whole.json
	[ "$(levels --on=whole.json --device=h100-pcie)" = "[[4,64],[2,25]]" ]
	refused "whole.json: it says all that there is" --on=2xwhole.json -d h100-pcie $small'
test_ok "a model where no machine is named is told of --on; an operand that is not there is no such file" '
	refused "^pd-plan: llama-3.1-8b is a model, not a profile: give a machine, such as --on=8xdgx-h100" llama-3.1-8b
	mkdir folder
	echo "{\"model_type\": \"llama\"}" >folder/config.json
	refused "folder is a model" folder
	refused "org/name is a model" org/name
	refused "some/p.json: cannot open: No such file" some/p.json
	refused "unexpected operand .p.json. behind .plain.json., a model" --on=p5 plain.json p.json
	refused "expected a family of networks, .*found .lama." --on=p5 lama'
test_done
