#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Judges estimated profiles by measured ones, on this machine.  A device is fitted to the layers of ResNet-50
# alone (pd-profile --fit), from nothing but what that profile says of it, or from the data sheet SHEET, such as
# h100-sxm.  Then ResNet-50, VGG-16, a GPT and a language model of LSTMs are estimated by it, and compared with
# what was measured, layer by layer.
#     sh test/bench/own-device.sh [cpu | cuda]
# Each of ROUNDS (3) rounds measures all networks; times are the medians of the rounds.  DTYPE is f32 unless it
# is set; THREADS (1) are those of a processor.  KEEP names a folder where profiles and the device stay; with ROUNDS=0 those that
# are there are judged again.
#
# The table has, of each network, the time of its layers forward and backward, measured and estimated; the mean
# error of its parts (a layer's forward, the gradient of its inputs, and of its parameters), each counting as
# much as it takes; and of those parts that take a hundredth of all or more, the one that is most wrong.
set -e
. "$(dirname "$0")/bench-lib.sh"
PD_DEVICES=$source/share/devices
export PD_DEVICES
device=${1:-cpu}
dtype=${DTYPE:-f32}
rounds=${ROUNDS:-3}
folder=${KEEP:-$work}
mkdir -p "$folder"

pd-model gpt-bytes >"$work/gpt-bytes.json"
pd-model gpt2 >"$work/gpt2.json"
pd-model awd-lm --lanes=20 --vocabulary=10000 >"$work/awd-lm.json"
pd-model resnet50 >"$work/resnet50.json"
pd-model vgg16 >"$work/vgg16.json"
case $device in
cuda) networks="resnet50:64 vgg16:32 gpt2:8 awd-lm:20" options= ;;
*) networks="resnet50:4 vgg16:4 gpt-bytes:8 awd-lm:20" options=--threads=${THREADS:-1} ;;
esac
[ -z "$NETWORKS" ] || networks=$NETWORKS

for round in $(seq 1 "$rounds"); do
	for network in $networks; do
		echo "round $round: $network" >&2
		# shellcheck disable=SC2086
		pd-profile --device="$device" $options --dtype="$dtype" --no-link --iterations="${ITERATIONS:-7}" \
			--batch-size="${network#*:}" "$work/${network%:*}.json" >"$folder/${network%:*}.$round"
	done
done

# merged NAME: prints the profile of which each time is the median of the rounds.
merged() {
	jq -s '. as $all | def middle: sort | .[(length - 1) / 2 | floor];
		.[0] | .layers |= [range(length) as $l | .[$l]
			| reduce ("forward_ns", "backward_ns", "backward_input_ns", "backward_weight_ns") as $key (.;
				.[$key] = ([$all[].layers[$l][$key]] | middle))]' "$folder/$1".[0-9]*
}
for network in $networks; do
	merged "${network%:*}" >"$folder/${network%:*}.measured"
done
pd-profile ${SHEET:+--device="$SHEET"} --fit "$folder/resnet50.measured" >"$folder/device.json"
jq -c '{products_per_s, bandwidth_bytes_per_s, kernel_ns, efficiency, spread}' "$folder/device.json"

printf '%-10s %6s %10s %10s %7s %7s  %s\n' network batch measured estimated whole parts "most wrong"
for network in $networks; do
	name=${network%:*}
	pd-profile --device="$folder/device.json" --dtype="$dtype" --batch-size="${network#*:}" \
		"$work/$name.json" >"$folder/$name.estimated"
	jq -s -r --arg name "$name" '
		def parts: [.layers[] | .name as $layer | to_entries[]
			| select(.key | IN("forward_ns", "backward_input_ns", "backward_weight_ns"))
			| {name: "\($layer), \(.key | rtrimstr("_ns"))", ns: .value}];
		def percent: "\(100 * . | round)%";
		(map(parts) | transpose | map({name: .[0].name, is: .[0].ns, says: .[1].ns})) as $parts
		| ([$parts[].is] | add) as $is | ([$parts[].says] | add) as $says
		| ([$parts[] | .is - .says | fabs] | add / $is) as $mean
		| ([$parts[] | select(.is >= $is / 100)] | max_by(.is / .says | log | fabs)) as $worst
		| [$name, .[0].batch_size, ($is / 1e6), ($says / 1e6), ($says / $is - 1 | percent), ($mean | percent),
		   "\($worst.says / $worst.is - 1 | percent)  \($worst.name)"] | @tsv' \
		"$folder/$name.measured" "$folder/$name.estimated" |
		awk -F '\t' '{ printf "%-10s %6d %7.1f ms %7.1f ms %7s %7s  %s\n", $1, $2, $3, $4, $5, $6, $7 }'
done
