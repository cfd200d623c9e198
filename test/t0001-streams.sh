#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every program refuses options and files that do not exist, and reports an output that cannot be written.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

programs="pd-profile pd-plan pd-schedule pd-run pd-replay"
chain 6 >chain.json
pd-plan -t 2@1GB/s --stages=3,3 chain.json >plan.json
pd-schedule -m 6 plan.json >schedule.jsonl
pd-replay -f trace -m 6 plan.json >trace.jsonl
: >empty
mkdir folder
head -c 200 plan.json >half.json

# refused PROGRAM WORDS ARGUMENT...: checks that it refuses the arguments in one line, which begins with its
# name and has the WORDS.
refused() {
	program=$1 words=$2
	shift 2
	[ "$program" != pd-run ] || set -- --synthetic "$@"
	status 2 timeout 200 "$program" "$@" 2>err >out </dev/null
	cat err
	one_line err && grep -q "^$program: .*$words" err && [ ! -s out ]
}

for program in $programs; do
	test_ok "$program: an option that is none, operands that are too many" '
		refused $program "unknown option --nonsense" --nonsense plan.json
		refused $program "unexpected operand" $(yes plan.json | head -n 5000)'
	test_ok "$program: nothing, an empty file, a folder, half a document, none" '
		refused $program "standard input: empty"
		refused $program "empty: empty: expected a JSON object" empty
		refused $program "folder: is a folder, expected a document" folder
		refused $program "half.json:[0-9]*:[0-9]*: not JSON" half.json
		refused $program "absent: cannot open: No such file" absent'
done

test_ok "a value that is no value, an option that could be several" '
	refused pd-run "unexpected operand \"plan.json\" behind \"20\"" --synthetic 20 plan.json
	refused pd-run "ambiguous option --lr-s=step: expected one of --lr-schedule, --lr-step " --lr-s=step plan.json
	refused pd-run "unknown option --gpus=2" --gpus=2 plan.json
	refused pd-plan "topology \"4\": no such file; expected one, or COUNT@BANDWIDTH" -t 4 chain.json'
test_ok "an option, a value or a name that is like another one" '
	refused pd-plan "unknown option --gps=2; did you mean --gpus? (try --help)" --gps=2 chain.json
	refused pd-run "unknown option --learning-rate=1; did you mean --lr?" --learning-rate=1 plan.json
	refused pd-run "unknown option --dtype=bf16: it is one of pd-profile" --dtype=bf16 plan.json
	refused pd-plan "unknown option --batch-size=8: it is one of pd-profile" --batch-size=8 chain.json
	refused pd-model "unknown option --vocab-size=9; did you mean --vocabulary?" --vocab-size=9
	refused pd-plan "unknown option -gpus=2; did you mean --gpus=2?" -gpus=2 chain.json
	refused pd-plan "unknown option -straight; did you mean --straight?" -straight chain.json
	refused pd-plan "found \"1f1c\"; did you mean \"1f1b\"?" --schedule=1f1c -g 1 chain.json
	refused pd-replay "^*--weights: expected one of .*, found \"flsh\"; did you mean \"flush\"?" \
		--weights=flsh plan.json
	refused pd-replay "--gradient-dtype: .*did you mean \"bf16\"?" --gradient-dtype=bfloat16 plan.json
	refused pd-replay "--faster: .*found \"l22:2\"" --faster=l22:2:2 plan.json
	refused pd-replay "--faster: .*found \"ll2\"; did you mean \"l2\"?" --faster=ll2:2 plan.json
	refused pd-profile "--device: .*found \"GPU\"; did you mean \"cuda\"?" --no-link --device=GPU \
		"$PD_SOURCE/test/data/small-model.json"
	sed "s/\"schedule\"/\"shedule\"/" plan.json >bad.json
	refused pd-replay "unknown key \"shedule\"; expected one of .*; did you mean \"schedule\"?" bad.json
	sed "s/\"1f1b\"/\"1F1B\"/" plan.json >bad.json
	refused pd-replay "schedule: expected one of .*, found \"1F1B\"; did you mean \"1f1b\"?" bad.json'
# What is met in place of a document, of parameters or of a data set.
printf "PK\3\4......................\20\0\0\0archive/data.pkl" >x.pt
gzip -c plan.json >plan.gz
printf "\357\273\277" | cat - plan.json >bom.json
printf "\377\376{\0\42\0" >utf16.json
printf "\10\7\22\7pytorch" >net.onnx
printf "\222NUMPY" | tr "\222" "\223" >x.npy
printf "\20\0\0\0\0\0\0\0{\42a\42:" >x.safetensors
test_ok "files of other kinds are named, with what to do" '
	for program in $programs; do
		refused $program "x.pt: expected a JSON document, found a PyTorch archive (.pt); safetensors.torch" x.pt
	done
	refused pd-run "plan.gz: expected a JSON document, found a gzip file; gunzip unpacks it" plan.gz
	refused pd-run "bom.json: expected .* found text with a byte order mark (BOM); .*tail -c +4" bom.json
	tail -c +4 bom.json | cmp - plan.json
	refused pd-replay "utf16.json: expected a JSON document, found text in UTF-16; iconv" utf16.json
	refused pd-profile "net.onnx: expected a JSON document, found an ONNX model; pd-model makes" net.onnx
	refused pd-schedule "x.npy: expected a JSON document, found a NumPy array" x.npy
	refused pd-plan "x.safetensors: expected a JSON document, found a safetensors file" -g 1 x.safetensors
	refused pd-plan "plan.gz: expected a JSON document, found a gzip file" -t plan.gz chain.json'
test_ok "so are those in the place of parameters and data" '
	pd-model mlp --hidden=8 --layers=2 | pd-profile --no-link --iterations=1 --batch-size=4 |
		pd-plan -t 1@1GB/s >real.json
	refused pd-run "x.pt: expected a safetensors file, found a PyTorch archive" --init=x.pt real.json
	refused pd-run "plan.json: expected a safetensors file, found a JSON document" --init=plan.json real.json
	# in place of --synthetic
	data() {
		status 2 timeout 200 pd-run "--data=$1" "$2" 2>err >out
		cat err
		one_line err && grep -q "^pd-run: .*$3" err
	}
	data x.pt real.json "x.pt: expected a directory with a data set, .*, found a PyTorch archive"
	pd-model gpt --layers=1 --hidden=8 --sequence=4 --vocabulary=256 |
		pd-profile --no-link --iterations=1 --batch-size=4 | pd-plan -t 1@1GB/s >text.json
	cp plan.gz book.txt
	data book.txt text.json "book.txt: expected a text, found a gzip file; gunzip"
	mkdir tokens
	cp x.pt tokens/train.bin
	cp x.pt tokens/val.bin
	data tokens text.json "train.bin: expected tokens, found a PyTorch archive"
	mkdir images
	cp x.pt images/train-images-idx3-ubyte
	cp x.pt images/train-labels-idx1-ubyte
	data images real.json "train-images-idx3-ubyte: expected an IDX file, found a zip archive"'
test_ok "-o: results go to standard output" '
	for program in pd-model $programs; do
		refused $program "unknown option -o: the result goes to standard output" -o plan.json
		refused $program "unknown option --output=x: the result goes to standard output" --output=x
	done'
test_ok "-h is --help" '
	for program in pd-export pd-model pd-topo $programs; do
		$program -h >short
		$program --help | cmp - short
		grep -q "^  -h, --help " short
		! grep -E "^.{81}" short || false
	done
	pd-worker --help | grep "pd-run starts"'
test_ok "a file that is missing is noticed before options that are" '
	for program in $programs; do
		status 2 timeout 200 "$program" absent 2>err >out
		cat err
		one_line err
		grep -q "^$program: absent: cannot open: No such file" err
	done'
test_ok "what is wrong with a plan is said with the name of its file" '
	sed "s/\"warmup\": 0/\"warmup\": 5/" plan.json >deep.json
	refused pd-schedule "^*deep.json: stages.1..warmup: 5 x 1 replicas is more than" deep.json
	refused pd-replay "^*deep.json: stages.1..warmup: 5 x 1 replicas is more than" deep.json
	refused pd-replay "^*deep.json: stages.1..warmup: " --compare=deep.json plan.json
	refused pd-replay "^*plan.json with schedule gpipe: schedule \"gpipe\" does not go with weights \"stash\"" \
		--schedule=gpipe plan.json
	refused pd-plan "the plan: microbatches: expected a multiple of the 2 replicas of stages.0.," \
		-t 3@1GB/s --stages=3x2,3 --microbatches=3 chain.json'
test_ok "a document that is for another program" '
	refused pd-plan "pd-profile\", found \"pd-plan\", which is for pd-run, pd-replay or" plan.json
	refused pd-profile "expected \"pd-model\", found \"pd-profile\", which is for pd-plan" chain.json
	refused pd-run "expected .*, found \"pd-profile\", which is for pd-plan" chain.json
	refused pd-run "expected .*, found \"pd-trace\", which is for pd-replay" trace.jsonl
	refused pd-replay "expected .*, found \"pd-profile\", which is for pd-plan" chain.json'

# lost WORDS COMMAND...: checks that the command reports, with these WORDS, an output that cannot be
# written.
lost() {
	words=$1
	shift
	status 3 "$@" 2>err
	cat err >&2
	one_line err && grep -q "^$1: .*$words" err
}
while read -r command; do
	set -- $command
	test_ok "$command: a full disk, and an output that is closed" '
		[ ! -c /dev/full ] || lost "No space left on device" $command >/dev/full
		lost "Bad file descriptor" $command >&-'
done <<END
pd-profile --help
pd-plan --help
pd-schedule --help
pd-run --version
pd-replay --version
pd-plan -t 2@1GB/s --stages=3,3 chain.json
pd-plan -f svg -t 2@1GB/s --stages=3,3 chain.json
pd-schedule -m 6 plan.json
pd-schedule --compact schedule.jsonl
pd-replay plan.json
pd-replay -f text schedule.jsonl
pd-replay -f svg trace.jsonl
pd-replay -f chrome trace.jsonl
pd-replay -f trace trace.jsonl
END
test_ok "what writes nothing does not mind; an input that is closed is told" '
	pd-schedule --check schedule.jsonl >&- 2>err
	one_line err && grep -q ": correct" err
	for program in $programs; do
		[ $program = pd-run ] && with=--synthetic || with=
		status 2 $program $with <&- 2>err >out
		one_line err
	done'

test_done
