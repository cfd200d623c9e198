# SPDX-License-Identifier: Apache-2.0
# pd-profile --from: traces of torch.profiler become a profile and a trace.  Two are real ones, made by
# contrib/make-kineto-data.py.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

# event NAME START LENGTH [CATEGORY]: prints an event, in microseconds.
event() {
	printf '%s\n{"ph": "X", "cat": "%s", "name": "%s", "pid": 1, "tid": 2, "ts": %s, "dur": %s, "args": {"Ev Idx": 7}}' \
		"$comma" "${4-user_annotation}" "$1" "$2" "$3"
	comma=,
}
# document RANK BASE EVENTS...: prints the trace of a rank; EVENTS is a command that prints events.
document() {
	printf '{"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "gloo", "rank": %s},\n' "$1"
	printf '"trace_id": "a \\"quoted\\" one", "traceEvents": ['
	base=$2 comma=
	shift 2
	"$@"
	printf '\n], "displayTimeUnit": "ms", "baseTimeNanoseconds": %s, "traceName": "x"}\n' "$base"
}
# A step of two stages and one microbatch.  Both ranks post their receives before these can end.
first() {
	event PP:0UNSHARD "$1" 0.1
	event PP:0F0 "$1" 100
	event aten::mm "$1" 90 cpu_op
	event PP:0SEND_F0 $(($1 + 100)) 1
	event gloo:send "$1"100.5 49 cpu_op
	event gloo:send $(($1 + 100)).5 49.5
	event PP:0RECV_B0 $(($1 + 101)) 1
	event gloo:recv $(($1 + 101)).5 398.5
	event PP:0B0 $(($1 + 102)) 598
	event PP:0REDUCE_GRAD $(($1 + 700)) 0.5
	event Optimizer.step#SGD.step $(($1 + 701)) 9
}
second() {
	event PP:1RECV_F0 $(($1 + 10)) 1
	event gloo:recv $(($1 + 10)).5 139.5
	event PP:1F0 $(($1 + 11)) 239
	event PP:1B0 $(($1 + 250)) 200
	event PP:1SEND_B0 $(($1 + 450)) 1
	event gloo:send $(($1 + 450)).5 49.5
	event Optimizer.step#SGD.step $(($1 + 460)) 5
	event Optimizer.step#SGD.step $(($1 + 466)) 4
}
steps() {
	"$1" 1000
	"$1" 2000
	"$1" 3000
}
document 4 5000000 steps first >0.json
document 6 5000000 steps second >1.json

# refused WORDS FILE...: checks that these files are refused in one line with the WORDS.
refused() {
	words=$1
	shift
	status 2 pd-profile --from="$@" >out 2>err
	grep "$words" err && one_line err && [ ! -s out ]
}

test_ok "layers are stages; the time that a rank waits for a message is no computation" '
	pd-profile --from=1.json 0.json >profile.json
	[ "$(jq -c ".layers[] | [.name, .inputs, .forward_ns, .backward_ns, .update_ns]" profile.json | tr "\n" " ")" = \
		"[\"stage0\",[],100000,200000,9000] [\"stage1\",[\"stage0\"],100000,200000,10000] " ]
	pd-plan -t 2@1GB/s profile.json'
test_ok "--trace: operations on one clock, which are reported and drawn" '
	pd-profile --from=0.json 1.json --trace=trace.jsonl >profile.json
	jq -c "select(.op == \"recv_activation\") | [.rank, .peer, .microbatch, .start_ns, .end_ns]" trace.jsonl >out
	printf "[1,0,%s]\n" 0,10000,150000 1,1010000,1150000 2,2010000,2150000 | cmp - out
	jq -c "select(.op == \"forward\" and .rank == 1) | [.weight_version, .start_ns, .end_ns]" trace.jsonl >out
	printf "[%s]\n" 0,150000,250000 1,1150000,1250000 2,2150000,2250000 | cmp - out
	pd-replay trace.jsonl | grep "2 stages on 2 ranks, 1f1b, flush; 3 minibatches"
	pd-replay --format=svg trace.jsonl | grep -q "</svg>"'
test_ok "events of a GPU are taken where there are any" '
	sed "s/\"PP:\(.\)F0\", \"pid\": 1, \"tid\": 2, \"ts\": \([0-9]*\), \"dur\": [0-9]*/&, \"args\": {}},{\"ph\": \"X\", \"cat\": \
\"gpu_user_annotation\", \"name\": \"PP:\1F0\", \"ts\": \2.5, \"dur\": 42/; s/^{\(.*\"PP:.[BSR]\)/{\1/" 0.json |
		sed "s/\"cat\": \"user_annotation\", \"name\": \"PP:0B/\"cat\": \"gpu_user_annotation\", \"name\": \"PP:0B/" >gpu.json
	sed "s/\"cat\": \"user_annotation\"/\"cat\": \"gpu_user_annotation\"/" 1.json >gpu1.json
	pd-profile --from=gpu.json gpu1.json | jq -e ".device.kind == \"cuda\" and .layers[0].forward_ns == 42000 and
		.layers[0].backward_ns == 598000 and .layers[1].forward_ns == 239000"'
test_ok "two halves of a backward, two stages a rank, several microbatches" '
	halves() {
		for m in 0 1; do
			for s in $1; do
				event "PP:${s}F$m" $((s * 10 + m * 100)) 4
				event "PP:${s}I$m" $((s * 10 + m * 100 + 1000)) 5
				event "PP:${s}W$m" $((s * 10 + m * 100 + 2000)) 3
			done
		done
		event Optimizer.step#AdamW.step 3000 8
	}
	document 0 0 halves "0 2" >a.json
	document 1 0 halves "1 3" >b.json
	pd-profile --from=a.json b.json --trace=trace.jsonl >profile.json
	jq -e "[.layers[] | [.forward_ns, .backward_input_ns, .backward_weight_ns, .backward_ns, .update_ns]] |
		all(. == [4000, 5000, 3000, 8000, 4000])" profile.json
	pd-replay trace.jsonl | grep "4 stages on 2 ranks, interleaved"'
test_ok "what is no whole pipeline is named" '
	refused "^pd-profile: 1.json: nobody has stage 0 of 2: expected the traces of all ranks" 1.json
	refused "1.json: it is of rank 6, as 1.json is" 1.json 1.json
	sed "s/\"rank\": 6/\"rank\": 9/" 1.json >again.json
	refused "it has stage 1, as .* has: expected the ranks of one pipeline" 0.json 1.json again.json
	grep -v "PP:1B0.*\"ts\": 2250" 1.json >less.json
	refused "less.json: stage 1, microbatch 0: 3 forwards and 2 backwards, where there are 3 steps" 0.json less.json
	grep -v "PP:" 0.json >none.json
	refused "none.json: expected actions of a pipeline, such as \"PP:0F0\", found none" none.json 1.json
	refused "found neither, nor .*: record it with profile(with_stack=True), .* or with record_function(NAME)" none.json
	sed "s/PP:0/PP:2/; s/PP:1/PP:0/; s/PP:2/PP:1/" 0.json >x.json; sed "s/PP:1/PP:0/" 1.json >y.json
	refused "y.json: stage 0 is on rank 1: expected it on rank 0" x.json y.json
	sed "s/PP:0F0/PP:999999F999999/" 0.json >far.json
	refused "1000000 stages and 1000000 microbatches in" far.json 1.json
	refused "absent.json: cannot open" absent.json'
test_ok "a file that ends early, or is something else, is refused" '
	bytes=$(wc -c <0.json)
	for part in 1 2 3 5 8 13 21 34 55 89; do
		head -c $((bytes * part / 90)) 0.json >cut.json
		refused "cut.json" cut.json 1.json
	done
	echo "[1, 2]" >list.json
	refused "list.json: expected a trace of torch.profiler" list.json
	echo "{}" >list.json
	refused "found no \"traceEvents\" in it" list.json
	sed "s/\"dur\": 598/\"dur\": -1/" 0.json >back.json
	refused "back.json: event \"PP:0B0\": expected \"ts\" and \"dur\"" back.json 1.json'
test_ok "options that would do nothing are refused" '
	refused "dtype does nothing with --from" 0.json --dtype=bf16
	status 2 pd-profile --trace=x 0.json 2>err
	grep -e "--trace needs --from" err
	status 2 pd-profile --blocks=x 0.json 2>err
	grep -e "--blocks needs --from" err
	refused "blocks does nothing with the actions of a pipeline" 0.json 1.json --blocks=x
	status 2 pd-profile 0.json 1.json 2>err
	grep "expected one model, found 2 files" err'
data=$PD_SOURCE/test/data
# median FILTER: prints the median of the durations, in nanoseconds, of the events of a real trace that pass.
median() {
	zcat "$data/kineto-modules.json.gz" | jq -c "[.traceEvents[] | select($1) | .dur * 1000 | round] | sort |
		(.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2 | floor"
}
test_ok "modules become layers: times of their operators, forward and backward; sizes where shapes were recorded" '
	pd-profile --from="$data/kineto-modules.json.gz" --trace=trace.jsonl >profile.json
	jq -c ".layers[] | [.name, .inputs, .activation_bytes, .parameter_bytes]" profile.json >out
	printf "[\"%s\",[%s],%s]\n" Linear_0 "" 2048,33280 ReLU_0 "\"Linear_0\"" 2048,0 Linear_1 "\"ReLU_0\"" 160,5160 \
		cross_entropy_loss "\"Linear_1\"" 4,0 | cmp - out
	[ "$(median ".name == \"aten::relu\"")" = "$(jq ".layers[1].forward_ns" profile.json)" ]
	[ "$(median ".name == \"autograd::engine::evaluate_function: ReluBackward0\"")" = \
		"$(jq ".layers[1].backward_ns" profile.json)" ]
	jq -e "[.layers[] | .backward_input_ns + .backward_weight_ns == .backward_ns] | all" profile.json
	jq -e ".layers[0].backward_weight_ns > 0 and .layers[1].backward_weight_ns == 0 and .layers[0].update_ns > 0 and
		.layers[1].update_ns == null" profile.json
	pd-plan -t 2@1GB/s profile.json'
test_ok "passes become microbatches of steps, and what was lost is reported" '
	jq -r "select(.op) | [.op, .microbatch, .weight_version] | @csv" trace.jsonl | grep -v load >out
	for s in 0 2 4; do
		for m in $s $((s + 1)); do
			printf "\"%s\",$m,$s\n" forward backward
		done
		echo "\"step\",$s,$((s + 2))"
	done | cmp - out
	[ "$(grep -c "\"load\"" trace.jsonl)" -eq 6 ]
	pd-replay trace.jsonl >out
	grep "1 stage on 1 rank, 1f1b, flush; 3 minibatches of 2 x 1 samples" out
	grep "Linear_0 to cross_entropy_loss" out'
test_ok "--blocks: modules of these names are one layer each" '
	pd-profile --from="$data/kineto-modules.json.gz" --blocks="Sequential_.*" | jq -c "[.layers[].name]" >out
	echo "[\"Sequential_0\",\"cross_entropy_loss\"]" | cmp - out
	pd-profile --from="$data/kineto-modules.json.gz" --blocks="Sequential" | jq -e ".layers | length == 4"
	refused "blocks: expected an extended regular expression, found \"(\"" "$data/kineto-modules.json.gz" --blocks="("'
test_ok "labels of record_function() become layers; what is recomputed is theirs, in backward" '
	zcat "$data/kineto-labels.json.gz" >labels.json
	pd-profile --from=labels.json --trace=trace.jsonl >profile.json
	jq -e "[.layers[].name] == [\"block.0\", \"block.1\", \"linear\"]" profile.json
	jq -e ".layers[0].backward_input_ns > .layers[0].forward_ns / 4 and .layers[0].backward_weight_ns > 0" profile.json
	pd-replay trace.jsonl | grep "3 minibatches"'

# piece CATEGORY NAME THREAD START LENGTH [ARGUMENTS]: prints an event.
piece() {
	printf '%s\n{"ph": "X", "cat": "%s", "name": "%s", "pid": 1, "tid": %s, "ts": %s, "dur": %s, "args": {%s}}' \
		"$comma" "$1" "$2" "$3" "$4" "$5" "$6"
	comma=,
}
node() {
	piece cpu_op "autograd::engine::evaluate_function: $1" "$2" "$3" "$4" "$5"
}
# A step on a GPU: two modules, of which backward is in another thread; kernels run behind their launches.
on_gpu() {
	piece python_function "nn.Module: Net_0" 7 "$1" 100
	piece python_function "nn.Module: Conv_0" 7 $(($1 + 1)) 40
	piece cpu_op aten::conv 7 $(($1 + 2)) 30 "\"Sequence number\": $2"
	piece cuda_runtime cudaLaunchKernel 7 $(($1 + 3)) 2 "\"correlation\": 1$2"
	piece cpu_op aten::relu 7 $(($1 + 45)) 9 "\"Sequence number\": 1$2"
	piece cuda_driver cuLaunchKernel 7 $(($1 + 46)) 2 "\"correlation\": 2$2"
	node ReluBackward0 8 $(($1 + 120)) 20 "\"Sequence number\": 1$2"
	piece cuda_runtime cudaLaunchKernel 8 $(($1 + 121)) 2 "\"correlation\": 3$2"
	node ConvolutionBackward0 8 $(($1 + 150)) 50 "\"Sequence number\": $2"
	piece cuda_runtime cudaLaunchKernel 8 $(($1 + 151)) 2 "\"correlation\": 4$2"
	piece cuda_runtime cudaLaunchKernel 8 $(($1 + 161)) 2 "\"correlation\": 5$2"
	node torch::autograd::AccumulateGrad 8 $(($1 + 201)) 9
	piece user_annotation Optimizer.step#SGD.step 7 $(($1 + 250)) 20
	piece cuda_runtime cudaLaunchKernel 7 $(($1 + 251)) 2 "\"correlation\": 6$2"
	piece kernel conv_fprop 0 $(($1 + 100)) 50 "\"correlation\": 1$2"
	piece kernel relu 0 $(($1 + 150)) 5 "\"correlation\": 2$2"
	piece kernel ncclDevKernel_AllReduce 0 $(($1 + 150)) 500 "\"correlation\": 2$2"
	piece kernel relu_back 0 $(($1 + 200)) 7 "\"correlation\": 3$2"
	piece kernel sm90_dgrad_engine 0 $(($1 + 210)) 60 "\"correlation\": 4$2"
	piece kernel sm90_wgrad_engine 0 $(($1 + 270)) 30 "\"correlation\": 5$2"
	piece kernel sgd 0 $(($1 + 310)) 11 "\"correlation\": 6$2"
}
twice() {
	on_gpu 1000 11
	on_gpu 3000 22
}
test_ok "a GPU's times are those of the kernels that a module launched" '
	document 0 0 twice >gpu.json
	pd-profile --from=gpu.json --trace=trace.jsonl >profile.json
	jq -c ".device.kind, (.layers[] | [.name, .forward_ns, .backward_input_ns, .backward_weight_ns, .update_ns])" \
		profile.json >out
	printf "%s\n" "\"cuda\"" "[\"Conv_0\",50000,60000,30000,11000]" "[\"Net_0.relu\",5000,7000,0,null]" | cmp - out
	jq -c "select(.op and .microbatch == 1) | [.op, .start_ns, .end_ns]" trace.jsonl >out
	printf "[\"%s\",%s]\n" forward 2000000,2055000 backward 2100000,2200000 step 2210000,2221000 | cmp - out'
test_ok "passes with other layers than most are left out, and said" '
	evaluated() {
		twice
		piece python_function "nn.Module: Net_0" 7 5000 100
		piece cpu_op aten::conv 7 5010 9 "\"Sequence number\": 50"
		piece user_annotation Optimizer.zero_grad#SGD.zero_grad 7 5200 1
		piece python_function "nn.Module: Net_0" 7 5300 100
		piece cpu_op aten::other 7 5310 9 "\"Sequence number\": 51"
		node OtherBackward0 7 5500 10 "\"Sequence number\": 51"
		node StrangeBackward0 7 5600 100 "\"Sequence number\": 99"
	}
	document 0 0 evaluated | grep -v kernel >odd.json
	pd-profile --from=odd.json >profile.json 2>err
	jq -e "[.layers[].name] == [\"Conv_0\", \"Net_0.relu\"]" profile.json
	grep "warning: odd.json: 1 forwards have other layers than most" err
	grep "warning: odd.json: 37 % of backward belongs to no module" err'
# Two microbatches in flight, as a pipeline's first stage has them: a module and an operator, recomputed in backward.
ahead() {
	for n in 0 1; do
		piece python_function "nn.Module: Net_0" 7 $((n * 100)) 90
		piece python_function "nn.Module: A_0" 7 $((n * 100 + 10)) 30
		piece cpu_op aten::a 7 $((n * 100 + 11)) $((20 + n)) "\"Sequence number\": $((10 + n))"
		piece cpu_op aten::b 7 $((n * 100 + 50)) $((7 + n)) "\"Sequence number\": $((20 + n))"
	done
	for n in 0 1; do
		node B 7 $((n * 100 + 300)) 40 "\"Sequence number\": $((20 + n))"
		piece python_function "nn.Module: A_0" 7 $((n * 100 + 310)) 15
		piece cpu_op aten::a 7 $((n * 100 + 311)) $((3 + n * 4)) "\"Sequence number\": $((30 + n))"
		node ABackward 7 $((n * 100 + 350)) 20 "\"Sequence number\": $((30 + n))"
	done
	piece user_annotation Optimizer.step#SGD.step 7 900 20
}
test_ok "microbatches ahead of their backward are told apart, and so is what each of them recomputes" '
	document 0 0 ahead >ahead.json
	pd-profile --from=ahead.json --trace=trace.jsonl >profile.json
	jq -c ".layers[] | [.name, .forward_ns, .backward_ns]" profile.json >out
	printf "[\"%s\",%s]\n" A_0 20500,25000 Net_0.b 7500,25000 | cmp - out
	jq -c "select(.op) | [.op, .microbatch, .start_ns, .end_ns]" trace.jsonl >out
	printf "[\"%s\",%s]\n" forward 0,0,46000 forward 1,100000,147000 backward 0,289000,359000 backward 1,389000,459000 \
		step 0,889000,909000 | cmp - out'
test_ok "modules without training, and traces that contradict themselves" '
	document 0 0 twice | grep -v evaluate_function >forward.json
	refused "forward.json: it has modules, but no backward that belongs to them" forward.json
	document 0 0 twice | sed "s/\"Sequence number\": 11/\"Sequence number\": \"x\"/" >word.json
	refused "word.json: event \"aten::conv\": expected an integer as \"Sequence number\"" word.json
	document 0 0 twice | sed "s/\"tid\": 8/\"tid\": []/" >word.json
	refused "expected an integer as \"tid\"" word.json
	document 0 0 twice | sed "s/\"dur\": 50,/\"dur\": 1e300,/" >long.json
	refused "event \"autograd.*ConvolutionBackward0\": expected \"ts\" and \"dur\"" long.json
	document 0 0 twice | sed "s/\"ts\": 3310/\"ts\": 1e15/" >far.json
	refused "far.json: from first to last it takes more than a hundred days" far.json
	document 0 0 twice | sed "s/\"dur\": [0-9]*/\"dur\": 2000/" >within.json
	pd-profile --from=within.json >out 2>err || one_line err
	head -c 9000 "$data/kineto-modules.json.gz" >cut.json.gz
	refused "cut.json.gz" cut.json.gz'
test_ok "the line of an error is that of the file, in a trace and in the second of two profiles" '
	sed "12s/\"ph\"/ph/" 0.json >word.json
	refused "^pd-profile: word.json:12:3: not JSON" word.json 1.json
	sed "s/, \"dur\": 598,/, \"dur\": 598, \"dur\": 5,/" 0.json >again.json
	line=$(grep -n "\"dur\": 5," again.json | head -n 1)
	refused "^pd-profile: again.json:${line%%:*}:[0-9]*: not JSON: duplicate object key" again.json 1.json
	sed "9s/,$//" 0.json >comma.json
	refused "^pd-profile: comma.json:10:1: .*no end of \"traceEvents\"" comma.json 1.json
	tr -d "\n" <word.json >one.json
	column=$(($(grep -o "^.*{ph" one.json | wc -c) - 1))
	refused "^pd-profile: one.json:1:$column: not JSON" one.json 1.json
	pd-profile --from=0.json 1.json | jq . >profile.json
	lines=$(wc -l <profile.json)
	sed "3s/:/ /" profile.json | cat profile.json - >two.json
	status 2 pd-plan -t 2@1GB/s two.json >out 2>err
	grep "^pd-plan: two.json:$((lines + 3)):" err'
test_ok "what a device did that is not known is refused or named, and never read as a processor'\''s" '
	document 0 0 twice >gpu.json
	for category in npu_kernel hpu_op privateuse1_kernel; do
		sed "s/\"kernel\"/\"$category\"/" gpu.json >other.json
		refused "^pd-profile: other.json: event \".*\": category \"$category\" is of a device that is not known" other.json
	done
	sed "/\"kernel\"/s/\"args\": .*}}/\"args\": {}}/; s/\"kernel\"/\"hpu_op\"/" gpu.json >other.json
	refused "category \"hpu_op\" is of a device" other.json
	sed "/\"kernel\"/s/\"args\": .*}}/\"args\": {}}/; s/\"kernel\"/\"strange\"/" gpu.json >other.json
	pd-profile --from=other.json 2>err >out
	grep "warning: other.json: events of category \"strange\" are not known" err
	grep "warning: other.json: it tells of a GPU, and times are those of the processor" err
	sed "s/\"cuda_[a-z]*\"/\"xpu_runtime\"/" gpu.json >other.json
	pd-profile --from=gpu.json >profile.json
	pd-profile --from=other.json 2>err | cmp - profile.json
	[ ! -s err ]
	sed "s/\"deviceProperties\": \[\]/\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\"}]/" 0.json >idle.json
	pd-profile --from=idle.json 1.json 2>err >out
	grep "it tells of a GPU, and times are those of the processor" err
	pd-profile --from=0.json 1.json 2>err >out
	[ ! -s err ]'
test_ok "without modules, operators that repeat themselves are blocks, which is said; sizes are theirs" '
	pd-profile --from="$data/kineto-bare.json.gz" --trace=trace.jsonl >profile.json 2>err
	jq -c ".layers[] | [.name, .activation_bytes, .parameter_bytes]" profile.json >out
	printf "[\"%s\",%s]\n" embedding 256,448 block_0 256,1184 block_1 256,1184 block_2 256,1184 layer_norm 4,424 |
		cmp - out
	one_line err
	grep "it names no modules; its 3 blocks are operators that repeat themselves: .*with_stack=True" err
	jq -e "[.layers[] | .forward_ns > 0 and .backward_ns > 0] | all" profile.json
	pd-replay trace.jsonl | grep "3 minibatches"'
# outer NAME SEQUENCE: prints an operator, and puts its node before those that wait for backward.
outer() {
	piece cpu_op "$1" 7 $((at += 10)) 8 "\"Sequence number\": $2"
	nodes="$2 $nodes"
}
# Two microbatches in flight of a network of three residual blocks, whose stem ends as these do.
residual() {
	at=1000 nodes= n=100
	for m in 0 1; do
		for name in conv2d add_ batch_norm relu_ max_pool2d; do
			outer aten::$name $((n += 1))
		done
		for block in 0 1 2; do
			for name in conv2d add_ batch_norm add_ relu_; do
				outer aten::$name $((n += 1))
			done
		done
		outer aten::conv2d $((n += 1))
		outer aten::cross_entropy_loss $((n += 1))
	done
	piece cpu_op aten::ones_like 7 $((at += 10)) 1
	for n in $nodes; do
		node XBackward0 7 $((at += 10)) 9 "\"Sequence number\": $n"
	done
	piece user_annotation Optimizer.step#SGD.step 7 $((at + 10)) 20
}
test_ok "blocks of several microbatches in flight; what repeats nothing is refused with what to switch on" '
	document 0 0 residual >residual.json
	pd-profile --from=residual.json --trace=trace.jsonl >profile.json 2>err
	jq -e ".dtype == \"f32\"" profile.json
	jq -c ".layers[] | [.name, .forward_ns, .backward_ns]" profile.json >out
	printf "[\"%s\",%s]\n" conv2d 40000,45000 block_0 40000,45000 block_1 40000,45000 block_2 40000,45000 \
		conv2d#2 16500,18000 | cmp - out
	jq -r "select(.op == \"forward\" or .op == \"backward\") | \"\(.op)\(.microbatch)\"" trace.jsonl | sort | tr "\n" " " >out
	[ "$(cat out)" = "backward0 backward1 forward0 forward1 " ]
	sed "s/aten::conv2d/aten::copy/" residual.json >none.json
	refused "none.json: .*found neither, nor blocks of .*: record it with profile(with_stack=True), which" none.json
	document 0 0 twice | grep "\"kernel\"" | sed "1s/^/{\"traceEvents\": [/; \$s/,*\$/]}/" >kernels.json
	refused "with_stack=True, activities=.CPU, CUDA.)" kernels.json'
test_ok "a compiled network is one layer, which is said with what to do" '
	pd-profile --from="$data/kineto-compiled.json.gz" 2>err | jq -e ".layers | length == 2"
	one_line err
	grep "warning: .*kineto-compiled.json.gz: it is of a compiled network, .* has 2 layers: .*trace an uncompiled run" err
	zcat "$data/kineto-compiled.json.gz" | jq -c ".traceEvents |= map(select(.cat != \"python_function\"))" >bare.json
	refused "bare.json: .*record an uncompiled run (TORCH_COMPILE_DISABLE=1) with profile(with_stack=True)" bare.json
	pd-profile --from="$data/kineto-modules.json.gz" 2>err >out
	[ ! -s err ]'
test_done
