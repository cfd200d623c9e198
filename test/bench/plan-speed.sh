#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how long pd-plan takes as a whole process, from the profile on disk to the plan, in medians of
# RUNS runs (5), and whether 1 GiB of address space is enough.
#     sh test/bench/plan-speed.sh
# First come networks of a known size: VGG-16's 40 states on 16 devices (goal 10 ms), a residual network of
# the size of ResNet-101 on two servers of eight (goal 1 s), and a chain of 1,000 layers on 1,024 devices in
# three levels (goal 10 s and 1 GiB).  The first is the published profile if ../shared has it, else a chain
# of 40 layers.  It is also planned where links are shared or memory is tight, and no bound says soon that
# nothing is faster.
#
# Then come requests that people have, each once, in seconds of processor time: large language models on many
# H100s with several degrees of tensor parallelism, single schedules of a long GPT, and the published profiles, if
# ../shared has them.
#
# Then come chains of other lengths on other machines, as a table, and as plan-speed.csv and plan-speed.svg
# in the folder OUT (.).  LAYERS and DEVICES are lists.  PD_BUILD names the build tree.
set -e
. "$(dirname "$0")/bench-lib.sh"
out=$(cd "$out" && pwd)
cd "$work"
runs=${RUNS:-5}

# profile LAYERS BRANCHES >FILE: writes a profile with random times, activations and parameters.  With
# BRANCHES every tenth layer also takes what entered the nine before it, and in every eighth of these blocks
# there is a layer on that way.
profile() {
	awk -v n="$1" -v branches="$2" 'BEGIN {
		srand(1)
		printf "{\"format\": \"pd-profile\", \"version\": 1, \"name\": \"made up\", \"batch_size\": 8,"
		printf " \"dtype\": \"f32\", \"device\": {\"kind\": \"cpu\", \"name\": \"none\"}, \"layers\": ["
		block = ""
		for (l = 0; l < n; l++) {
			last = "\"l" l - 1 "\""
			inputs = l ? last : ""
			if (branches && l > 10 && l % 10 == 0) {
				inputs = last ", " block
				block = "\"l" l "\""
			} else if (branches && l % 80 == 5 && l > 10) {
				inputs = block          # It is beside the block, from its beginning.
				side = last
			} else if (branches && l % 80 == 6 && l > 10) {
				block = last
				inputs = side
			}
			if (l % 10 == 0)
				block = "\"l" l "\""
			printf "%s{\"name\": \"l%d\", \"inputs\": [%s], \"forward_ns\": %d," \
				" \"backward_ns\": %d, \"activation_bytes\": %d," \
				" \"parameter_bytes\": %d}", l ? ", " : "", l, inputs,
				500000 + int(rand() * 1000000), 1000000 + int(rand() * 2000000),
				int(rand() * 1000000), 4 * int(rand() * 1000000)
		}
		print "]}"
	}'
}

# each COUNT COMMAND...: runs the command so often, and prints the milliseconds of one run.
each() {
	count=$1
	shift
	begin=$(date +%s%N)
	for run in $(seq "$count"); do
		"$@" >plan.json
	done
	end=$(date +%s%N)
	echo "$begin $end $count" | awk '{ printf "%.2f\n", ($2 - $1) / 1e6 / $3 }'
}

# took ARGUMENT...: prints the median of milliseconds, or 60,000 if one run takes a minute or more.  Ten
# runs are timed together if they are short, since asking the clock starts a process, which takes a
# millisecond.
took() {
	: >times
	timeout 60 pd-plan "$@" >plan.json || { echo 60000; return; }
	count=$(each 1 pd-plan "$@" | awk '{ print $1 < 100 ? 10 : 1 }')
	for sample in $(seq "$runs"); do
		each "$count" pd-plan "$@" >>times
	done
	median <times
}

# line WHAT GOAL-MS ARGUMENT...: prints the time, whether the goal is met, and what the plan is.
line() {
	what=$1 goal=$2
	shift 2
	ms=$(took "$@")
	memory=$( (ulimit -v 1048576; pd-plan "$@" >small.json 2>err) && echo "in 1 GiB" ||
		echo "1 GiB is not enough")
	awk -v what="$what" -v ms="$ms" -v goal="$goal" -v memory="$memory" 'BEGIN {
		printf "%-48s %9.1f ms (goal %d ms: %s), %s\n", what, ms, goal,
			ms <= goal ? "met" : "not met", memory }'
	jq -r '"    \(.stages | length) stages on \([.stages[].replicas] | add) devices, period " +
		"\(.predicted.period_ns / 1e6) ms, " +
		(if .predicted.gap then "gap \(100 * .predicted.gap | round) %" else "an estimate" end)' plan.json
}

printf 'a process that does nothing takes %.1f ms\n\n' "$(each 100 pd-plan --version)"

profile 40 "" >vgg.json
name="a chain of 40 layers"
if [ -e "$source/../shared/profiles/vgg16.json" ]; then
	cp "$source/../shared/profiles/vgg16.json" vgg.json
	name="VGG-16, 40 states"
fi
line "$name, 16@1.25GB/s" 10 -m 1TB -t 16@1.25GB/s vgg.json
line "$name, 16@12GB/s" 10 -m 1TB -t 16@12GB/s vgg.json
line "$name, 4@12GB/s,4@1.25GB/s" 10 -m 1TB -t 4@12GB/s,4@1.25GB/s vgg.json
line "$name, 16@1.25GB/s, 16 GB" 10 -m 16GB -t 16@1.25GB/s vgg.json
line "$name, 16@12GB/s, 16 GB" 10 -m 16GB -t 16@12GB/s vgg.json
profile 344 1 >resnet.json
line "a residual network of 344 layers, 8x2" 1000 -t 8@30GB/s,2@3.125GB/s resnet.json
profile 1000 "" >long.json
line "a chain of 1000 layers, 16x8x8 devices" 10000 -t 16@30GB/s,8@10GB/s,8@1GB/s long.json

# seconds WHAT GOAL-S ARGUMENT...: prints the processor seconds of one run, and what the plan is.
seconds() {
	what=$1 goal=$2
	shift 2
	( pd-plan -q "$@" >plan.json; times >times.out )
	sed -n '2s/[ms]/ /gp' times.out | awk -v what="$what" -v goal="$goal" '{ s = $1 * 60 + $2
		printf "%-48s %9.1f s of processor time (goal %d s: %s)\n", what, s, goal, s <= goal ? "met" : "not met" }'
	jq -r '"    \(.schedule), \(.stages | length) stages, \(.predicted.samples_per_s | round) samples/s"' plan.json
}
# sheet ARGUMENT...: prints the profile of a network of pd-model by a data sheet.
sheet() {
	pd-model "$@" | PD_DEVICES=${PD_DEVICES:-$source/share/devices} pd-profile --device=h100-sxm -b 1 --dtype=bf16
}
export PD_DEVICES=${PD_DEVICES:-$source/share/devices}
sheet llama-3-8b --sequence=1024 >llama.json
sheet gpt2 --layers=96 --hidden=2048 --heads=16 >gpt96.json
sheet llama-3.1-8b >llama31.json
large="llama-3-8b --sequence=1024 --kv-heads=8"         # with the numbers of its larger sisters
sheet $large --layers=80 --hidden=8192 --heads=64 --feed-forward=28672 >llama70.json
sheet $large --layers=126 --hidden=16384 --heads=128 --feed-forward=53248 >llama405.json
machine=8@450GB/s,8@400Gbit/s
seconds "README: Llama 8B, 16 devices, four degrees, any" 3 -t 8@450GB/s,2@400Gbit/s -b 128 --tensor=1,2,4,8 \
	--schedule=auto llama31.json
seconds "Llama 8B, 64 devices, four degrees, any schedule" 3 -t $machine -b 1024 --tensor=1,2,4,8 --schedule=auto llama.json
seconds "Llama 70B, 128 devices, four degrees, any" 3 -t 8@450GB/s,16@400Gbit/s -b 1024 --tensor=1,2,4,8 \
	--schedule=auto llama70.json
seconds "Llama 405B, 16384 devices, four degrees, any" 5 -t 8@450GB/s,2048@400Gbit/s -b 2048 --tensor=1,2,4,8 \
	--schedule=auto llama405.json
for schedule in 1f1b interleaved zb-h1 zb-v; do
	seconds "GPT of 96 layers, 64 devices, $schedule" 3 -t $machine --weights=flush --microbatches=64 \
		--schedule=$schedule gpt96.json
done
for name in gnmt vgg16 resnet50; do
	profile=$source/../shared/profiles/$name.json
	[ ! -e "$profile" ] || seconds "$name, any schedule" 5 -t 4@12GB/s,4@1.25GB/s --schedule=auto "$profile"
done
profile=$source/../shared/profiles/resnet50.json
[ ! -e "$profile" ] || seconds "resnet50, 8 devices, zb-v" 3 -t 8@12GB/s --schedule=zb-v --weights=flush \
	--microbatches=32 --min-gain=0 "$profile"
seconds "a chain of 40 layers, 48 devices, buckets" 5 -t 48@12GB/s --bucket=auto vgg.json

echo
echo "milliseconds, by layers (down) and devices (across, servers of 8 but for the first)"
devices=${DEVICES:-4 16 64 256 1024}
printf '%8s' layers
printf '%10s' $devices
echo
echo "layers,devices,ms" >plan-speed.csv
runs=${RUNS:-3}
for n in ${LAYERS:-10 30 100 300 1000}; do
	profile "$n" "" >chain.json
	printf '%8d' "$n"
	for d in $devices; do
		case $d in
		4) topology=4@10GB/s ;;
		*) topology=8@30GB/s,$((d / 8))@3GB/s ;;
		esac
		ms=$(took -t "$topology" chain.json)
		printf '%10.1f' "$ms"
		echo "$n,$d,$ms" >>plan-speed.csv
	done
	echo
done
cp plan-speed.csv "$out"

# The drawing has logarithms on both axes, and a line for each number of devices.
awk -F , '
	function x(n) { return 70 + 420 * (log(n) - lx) / (hx - lx) }
	function y(t) { return 320 - 290 * (log(t) - ly) / (hy - ly) }
	BEGIN { lx = ly = 1e9; hx = hy = -1e9
		split("#3b6fa8 #ee841c #4d9445 #a66f97 #c8554b #7a6a5a #5fa8a3", colour, " ") }
	NR > 1 {
		if (!($2 in at)) { at[$2] = ++lines; names[lines] = $2 }
		points[$2] = points[$2] " " $1 ":" $3
		if (log($1) < lx) lx = log($1)
		if (log($1) > hx) hx = log($1)
		if (log($3) < ly) ly = log($3)
		if (log($3) > hy) hy = log($3)
	}
	END {
		ly = log(10) * int(ly / log(10) - (ly < 0)); hy = log(10) * int(hy / log(10) + 1)
		print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"620\" height=\"370\" " \
			"viewBox=\"0 0 620 370\" font-family=\"Helvetica, Arial, sans-serif\" " \
			"font-size=\"11\"><style>.g{stroke:#000;stroke-opacity:.12}</style>" \
			"<rect width=\"620\" height=\"370\" fill=\"#fff\"/>"
		for (t = exp(ly); t <= exp(hy) * 1.01; t *= 10) {
			printf "<line class=\"g\" x1=\"70\" x2=\"490\" y1=\"%.1f\" y2=\"%.1f\"/>", y(t), y(t)
			printf "<text x=\"62\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", y(t) + 4,
				(t >= 1000 ? t / 1000 " s" : t " ms")
		}
		for (d = 1; d <= lines; d++) {
			n = split(substr(points[names[d]], 2), list, " ")
			path = ""
			for (i = 1; i <= n; i++) {
				split(list[i], p, ":")
				path = path sprintf("%s%.1f %.1f", i > 1 ? "L" : "M", x(p[1]), y(p[2]))
				printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>", x(p[1]),
					y(p[2]), colour[d]
				if (d == 1) {
					printf "<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"30\" y2=\"320\"/>",
						x(p[1]), x(p[1])
					printf "<text x=\"%.1f\" y=\"335\" text-anchor=\"middle\">%s</text>\n",
						x(p[1]), p[1]
				}
				last = y(p[2])
			}
			printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>", path,
				colour[d]
			printf "<line x1=\"505\" x2=\"525\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" " \
				"stroke-width=\"1.5\"/><text x=\"531\" y=\"%d\">%s devices</text>\n",
				40 + 18 * d, 40 + 18 * d, colour[d], 44 + 18 * d, names[d]
		}
		print "<text x=\"280\" y=\"355\" text-anchor=\"middle\">layers of a chain</text>" \
			"<text x=\"70\" y=\"18\" font-size=\"13\">pd-plan: time of a whole process</text></svg>"
	}' plan-speed.csv >"$out/plan-speed.svg"
