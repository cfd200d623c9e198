#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs say before the work what can be known then: outputs that cannot be written, data that do not fit,
# options that would do nothing.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

pd-profile --device=cpu --no-link --threads=1 --batch-size=8 --iterations=1 "$MODELS/mlp.json" >profile
pd-plan -t 1@1GB/s profile >plan

# refused STATUS WORDS COMMAND...: checks that the command refuses at once, in one line with the WORDS, and
# writes nothing.
refused() {
	expected=$1 words=$2
	shift 2
	ls -A >before
	status "$expected" "$@" >out 2>err
	cat err
	one_line err && grep -q -e "$words" err && [ ! -s out ]
	ls -A | diff before -
}
touch before out err

long=$(printf '%0250d' 0)
test_ok "a trace whose name is too long" '
	refused 2 "^pd-run: --trace: 0*: cannot create: File name too long" \
		pd-run --synthetic --trace="$long$long" plan'
test_ok "a trace in a folder that is not there, or is none" '
	refused 2 "^pd-run: --trace: no/trace: cannot create: No such file" \
		pd-run --synthetic --trace=no/trace plan
	refused 2 "^pd-run: --trace: plan/trace: cannot create: Not a directory" \
		pd-run --synthetic --trace=plan/trace plan
	refused 2 "^pd-run: --trace: expected the name" pd-run --synthetic --trace= plan'
test_ok "a trace whose name is just short enough, and once more over it" '
	for again in 1 2; do
		pd-run --device=cpu --threads=1 --synthetic --minibatches=2 --trace="$long" plan >out
		pd-replay "$long" >report
	done
	[ "$(ls -A | grep -c 000)" -eq 1 ]'

test_ok "more threads than processors" '
	refused 2 "^pd-run: --threads=4096: this machine lets us use [0-9]* processor" \
		pd-run --synthetic --threads=4096 plan
	refused 2 "^pd-profile: --threads=4096: this machine lets us use" \
		pd-profile --threads=4096 "$MODELS/mlp.json"'
test_ok "one of several processes of a launcher without PMIx" '
	refused 2 "^pd-run: MPICH.* started 4 processes.*expected mpirun" \
		env PMI_RANK=1 PMI_SIZE=4 PMI_FD=9 pd-run --synthetic plan
	refused 2 "^pd-run: Intel MPI.* started 4 processes" \
		env PMI_RANK=1 PMI_SIZE=4 I_MPI_MPIRUN=mpirun pd-run --synthetic plan
	refused 2 "^pd-run: torchrun started 2 processes.*expected pd-run alone" \
		env RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x pd-run --synthetic plan
	refused 2 "^pd-topo: srun started 2 processes" env SLURM_STEP_NUM_TASKS=2 pd-topo
	env PMI_RANK=0 PMI_SIZE=1 pd-run --threads=1 --synthetic --minibatches=1 plan >out
	env WORLD_SIZE=2 pd-run --threads=1 --synthetic --minibatches=1 plan >out'

test_ok "a place for the parts of a trace that is not there" '
	refused 2 "^pd-run: no/such/pd-trace: cannot create: No such file" \
		env TMPDIR=no/such pd-run --synthetic --trace=/dev/null plan'

mkfifo pipe
test_ok "a trace that nobody would read, or that would not be taken" '
	refused 2 "^pd-run: --trace: pipe: nobody reads this pipe" pd-run --synthetic --trace=pipe plan
	[ ! -c /dev/full ] || refused 2 "^pd-run: --trace: /dev/full: cannot write: No space left" \
		pd-run --synthetic --trace=/dev/full plan'
test_ok "a trace into a pipe that is read, and into nothing" '
	cat pipe >trace &
	pd-run --device=cpu --threads=1 --synthetic --minibatches=2 --trace=pipe plan >out
	wait
	pd-replay trace >report
	rm trace
	pd-run --device=cpu --threads=1 --synthetic --minibatches=2 --trace=/dev/null plan >out'

# No data set of images has the inputs of this network.
cat >three.json <<'END'
{"format": "pd-model", "version": 1, "name": "three",
 "inputs": [{"name": "a", "dtype": "f32", "shape": [3]}, {"name": "b", "dtype": "f32", "shape": [3]},
	    {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [{"name": "both", "kind": "concat", "inputs": ["a", "b"]},
	    {"name": "fc", "kind": "linear", "inputs": ["both"], "out_features": 10},
	    {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc", "label"]}]}
END
pd-profile --device=cpu --no-link --threads=1 --batch-size=8 --iterations=1 three.json |
	pd-plan -t 1@1GB/s >three
mkdir empty images
: >images/train-images-idx3-ubyte
test_ok "any folder is not a data set" '
	for plan in plan three; do
		refused 2 "^pd-run: empty: no data set found" pd-run --data=empty $plan
		refused 2 "^pd-run: absent: cannot open" pd-run --data=absent $plan
		refused 2 "^pd-run: plan: expected a directory" pd-run --data=plan $plan
	done
	refused 2 "^pd-run: images/train-images-idx3-ubyte: truncated" pd-run --data=images plan
	refused 2 "^pd-run: images: holds images and labels: .*\"three\" has 3 inputs" \
		pd-run --data=images three'

idx_data whole
test_ok "a test set that is missing, unless nobody asks for it" '
	rm whole/t10k-images-idx3-ubyte
	refused 2 "^pd-run: whole/t10k-images-idx3-ubyte: cannot open" pd-run --data=whole plan
	pd-run --device=cpu --threads=1 --data=whole --no-evaluate -m 2 plan'

for with in "momentum=0.5 --optimizer=adam" "momentum=0 --optimizer=adamw" beta1=0.8 beta2=0.8 \
	epsilon=1e-6 "lr-step=3" "lr-step=3 --lr-schedule=cosine" lr-gamma=0.5 \
	"lr-power=2 --lr-schedule=step" keep=3
do
	test_ok "--$with would do nothing" '
		refused 2 "^pd-run: --${with%%=*} needs --" \
			pd-run --synthetic --$with plan'
done
test_ok "where they do something they are taken" '
	pd-run --device=cpu --threads=1 --synthetic -m 2 --momentum=0.5 --lr-schedule=step --lr-step=3 \
		--lr-gamma=0.5 --checkpoint=ck --keep=3 plan
	pd-run --device=cpu --threads=1 --synthetic -m 2 --optimizer=adamw --beta1=0.5 --beta2=0.6 \
		--epsilon=1e-6 --lr-schedule=polynomial --lr-power=3 plan'
test_ok "a way between GPUs where no link is measured" '
	refused 2 "^pd-profile: --transport=staged and --no-link exclude each other" \
		pd-profile --device=cpu --no-link --transport=staged "$MODELS/mlp.json"'

cat >norm.json <<'END'
{"format": "pd-model", "version": 1, "name": "norm",
 "inputs": [{"name": "image", "dtype": "f32", "shape": [4, 2, 2]},
	    {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [{"name": "bn", "kind": "batchnorm2d", "inputs": ["image"]},
	    {"name": "mean", "kind": "adaptive_avgpool2d", "inputs": ["bn"], "output_size": 1},
	    {"name": "bn1", "kind": "batchnorm2d", "inputs": ["mean"]},
	    {"name": "flat", "kind": "flatten", "inputs": ["bn1"]},
	    {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["flat", "label"]}]}
END
test_ok "a channel that has one value in a batch is not normalised over it" '
	one="layer \"bn1\": a channel has one value in a batch of one sample"
	refused 2 "^pd-profile: norm.json: $one" pd-profile --device=cpu --no-link --batch-size=1 norm.json
	profile norm.json 2 | jq ".batch_size = 1" | pd-plan -t 1@1GB/s >norm
	refused 2 "^pd-run: norm: $one" pd-run --synthetic norm
	jq ".profile.batch_size = 2" norm >two
	pd-run --device=cpu --threads=1 --synthetic -m 2 two'
# No plan fits, so after the search the status would be 1.
test_ok "too many devices to be drawn" '
	refused 2 "^pd-plan: --format: svg: expected at most 4096 devices, found 5000" \
		pd-plan --format=svg --topology=5000@1GB/s --memory=1 profile'
test_ok "an output that takes nothing, before what is read" '
	: >hollow
	for command in pd-profile pd-plan pd-schedule pd-replay; do
		status 3 $command hollow >&- 2>err
		one_line err
		grep -q "^$command: standard output: cannot write" err
	done'

test_done
