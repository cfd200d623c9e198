# SPDX-License-Identifier: Apache-2.0
# Tests that train source this file after test-lib.sh.  It has models, data and plans that take little time.
# PD_TEST_DEVICE is the device that trains and that serial computes on (cpu), PD_TEST_TRANSPORT is pd-run's
# --transport (auto), PD_TEST_DTYPE is the type that it computes in (f32).

plan_with=
trainer=pd-run
sgd="--lr=0.002 --momentum=0.9 --weight-decay=0.001"
serial=$PD_BUILD/test/conform/serial
same=$PD_BUILD/test/conform/same-tensors
[ -x "$serial" ] && [ -x "$same" ] ||
	test_skip_all "test/conform/serial is not built (make check builds it)"
command -v jq >/dev/null || test_skip_all "jq is not installed"

# residual_model: writes a model with normalisation, dropout, branches, and a tensor (relu1) that skips
# stages.
residual_model() {
	cat <<-'END'
	{"format": "pd-model", "version": 1, "name": "residual",
	 "inputs": [{"name": "image", "dtype": "f32", "shape": [1, 28, 28]},
	            {"name": "label", "dtype": "i32", "shape": []}],
	 "layers": [
	  {"name": "conv1", "kind": "conv2d", "inputs": ["image"], "out_channels": 4, "kernel": 3,
	   "stride": 2, "padding": 1, "bias": false},
	  {"name": "bn1", "kind": "batchnorm2d", "inputs": ["conv1"]},
	  {"name": "relu1", "kind": "relu", "inputs": ["bn1"]},
	  {"name": "conv2", "kind": "conv2d", "inputs": ["relu1"], "out_channels": 4, "kernel": 3,
	   "padding": 1},
	  {"name": "bn2", "kind": "batchnorm2d", "inputs": ["conv2"]},
	  {"name": "sum1", "kind": "add", "inputs": ["bn2", "relu1"]},
	  {"name": "relu2", "kind": "relu", "inputs": ["sum1"]},
	  {"name": "pool1", "kind": "maxpool2d", "inputs": ["relu2"], "kernel": 2},
	  {"name": "conv3", "kind": "conv2d", "inputs": ["pool1"], "out_channels": 4, "kernel": 3,
	   "padding": 1},
	  {"name": "cat", "kind": "concat", "inputs": ["conv3", "pool1"]},
	  {"name": "drop1", "kind": "dropout", "inputs": ["cat"], "p": 0.3},
	  {"name": "mean", "kind": "adaptive_avgpool2d", "inputs": ["drop1"], "output_size": 2},
	  {"name": "flat", "kind": "flatten", "inputs": ["mean"]},
	  {"name": "fc1", "kind": "linear", "inputs": ["flat"], "out_features": 16},
	  {"name": "skip", "kind": "flatten", "inputs": ["relu1"]},
	  {"name": "fc2", "kind": "linear", "inputs": ["skip"], "out_features": 16},
	  {"name": "sum2", "kind": "add", "inputs": ["fc1", "fc2"]},
	  {"name": "drop2", "kind": "dropout", "inputs": ["sum2"]},
	  {"name": "fc3", "kind": "linear", "inputs": ["drop2"], "out_features": 10},
	  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc3", "label"]}
	 ]}
	END
}

# profile MODEL.json BATCH: profiles the model with one iteration, since its costs do not matter here.
profile() {
	pd-profile --device="${PD_TEST_DEVICE:-cpu}" --dtype="${PD_TEST_DTYPE:-f32}" --iterations=1 \
		--no-link --threads=1 --batch-size="$2" "$1"
}

# plan PROFILE REPLICAS...: plans a stage for each number of replicas, all with about as many layers.
# plan_with has further options.
plan() {
	plan_profile=$1
	shift
	pd-plan $(grep -o '"forward_ns"' "$plan_profile" | awk -v replicas="$*" 'END {
		n = split(replicas, r, " ")
		for (i = 1; i <= n; i++) {
			ranks += r[i]
			layers = int(NR * i / n) - int(NR * (i - 1) / n)
			stages = stages (i > 1 ? "," : "") layers "x" r[i]
		}
		print "--topology=" ranks "@10Gbit/s --stages=" stages
	}') $plan_with "$plan_profile"
}

# residual_plans BATCH PREFIX REPLICAS...: writes residual_model's file, its profile, and plans; that for "2
# 1" is PREFIX2-1.
residual_plans() {
	residual_model >residual.json
	profile residual.json "$1" >residual
	plans_prefix=$2
	shift 2
	for replicas in "$@"; do
		plan residual $replicas >"$plans_prefix$(echo "$replicas" | tr ' ' -)"
	done
}

# pair PLAN SCHEDULE WEIGHTS MICROBATCHES: prints the plan with these, and without the predictions for its
# stages.  It relies on a line for each key, since starting jq takes a fifth of the time of a small
# training.
pair() {
	awk -v schedule="\"$2\"" -v weights="\"$3\"" -v microbatches="$4" '
		inside { inside = !/^      }/; next }
		/^      "predicted": {/ { sub(/,\n$/, "\n", lines); inside = !/}$/; next }
		/^  "schedule":/ { sub(/: [^,]*/, ": " schedule); changed++ }
		/^  "weights":/ { sub(/: [^,]*/, ": " weights); changed++ }
		/^  "microbatches":/ { sub(/: [^,]*/, ": " microbatches); changed++ }
		{ lines = lines $0 "\n" }
		END { if (changed != 3) exit 1; printf "%s", lines }' "$1"
}

# same_memory FILE: succeeds if its line says that all ranks had the bytes that were predicted, and how
# many.
same_memory() {
	cat "$1"
	grep -q '"memory": *"as predicted"' "$1" &&
		grep -q '"memory_bytes": *\(\[[1-9][0-9]*\(, *[1-9][0-9]*\)*\]\).*"predicted_memory_bytes": *\1' "$1"
}

# idx_bytes COUNT FIRST LAST: prints COUNT random bytes from FIRST, which is 1 or more, to LAST.
idx_bytes() {
	awk -v n="$1" -v first="$2" -v last="$3" 'BEGIN {
		srand(n)
		for (i = 0; i < n; i++)
			printf "%c", first + int(rand() * (last - first + 1))
	}'
}

# idx_data DIRECTORY: writes 110 images of 28 x 28 to train on, and 10 to test.
idx_data() {
	mkdir "$1"
	{ printf '\0\0\010\003\0\0\0\156\0\0\0\034\0\0\0\034'; idx_bytes 86240 1 127; } \
		>"$1/train-images-idx3-ubyte"
	{ printf '\0\0\010\001\0\0\0\156'; idx_bytes 110 1 9; } >"$1/train-labels-idx1-ubyte"
	{ printf '\0\0\010\003\0\0\0\012\0\0\0\034\0\0\0\034'; idx_bytes 7840 1 127; } \
		>"$1/t10k-images-idx3-ubyte"
	{ printf '\0\0\010\001\0\0\0\012'; idx_bytes 10 1 9; } >"$1/t10k-labels-idx1-ubyte"
}

# npy TYPE SHAPE [ORDER]: prints the header that numpy.save writes; the elements go behind it.
npy() {
	header="{'descr': '$1', 'fortran_order': ${3:-False}, 'shape': $2, }"
	length=$(((${#header} + 11 + 63) / 64 * 64 - 10))
	printf '\223NUMPY\001\000'
	printf "$(printf '\\%03o\\%03o' $((length % 256)) $((length / 256)))"
	printf "%-$((length - 1))s\n" "$header"
}

# floats: prints the numbers on standard input as f32.
floats() {
	printf "$(awk '{
		sign = $1 < 0 ? 128 : 0
		x = $1 < 0 ? -$1 : $1 + 0
		e = x ? 127 : 0
		while (x && x < 1) { x *= 2; e-- }
		while (x >= 2) { x /= 2; e++ }
		m = x ? (x - 1) * 8388608 : 0
		printf "\\%03o\\%03o\\%03o\\%03o", m % 256, int(m / 256) % 256,
			int(m / 65536) + e % 2 * 128, int(e / 2) + sign
	}')"
}

# numbers COUNT SEED: prints random numbers from -1 to 1, in steps of 1/64.
numbers() {
	awk -v n="$1" -v seed="$2" 'BEGIN {
		srand(seed)
		for (i = 0; i < n; i++)
			print (int(rand() * 129) - 64) / 64
	}'
}

# train CHECKPOINT PLAN OPTION...: trains with one thread a rank, whatever else this machine has.  The program
# is $trainer.
train() {
	train_into=$1 train_plan=$2
	shift 2
	"$trainer" --device="${PD_TEST_DEVICE:-cpu}" --transport="${PD_TEST_TRANSPORT:-auto}" \
		--threads=1 --checkpoint="$train_into" "$@" "$train_plan"
}

# together: makes `train` hand works over together, as to a GPU (lib/engine/worker/batch.c).
together() {
	mkdir -p together
	cp "$PD_BUILD/bin/pd-run" together
	cp "$PD_BUILD/test/unit/joining-worker" together/pd-worker
	trainer=together/pd-run
}

# trained N PLAN OPTION...: trains N minibatches, of --data or synthetic ones.  It checks that the weights
# have the bits of the serial program, and that the memory is as predicted.  The last line of pd-run is in
# `last`.
trained() {
	trained_n=$1 trained_plan=$2 trained_on="--synthetic --no-evaluate"
	shift 2
	rm -rf ck
	case " $*" in *" --data="*) trained_on= ;; esac
	train ck "$trained_plan" "$@" $trained_on --minibatches="$trained_n" >out
	tail -n 1 out >last
	same_memory last
	"$serial" "$@" --minibatches="$trained_n" --output=serial "$trained_plan"
	"$same" serial "$(at ck "$trained_n")"
}

# as_predicted OPTION...: runs plan.json, and checks that the memory is as predicted.  The last line is in
# `last`.
as_predicted() {
	rm -f last
	pd-run --threads=1 --synthetic "$@" plan.json >out
	tail -n 1 out >last
	same_memory last
}

# as_planned: checks that the memory in `last` is what plan.json predicts for each of its stages.
as_planned() {
	jq -e --slurpfile plan plan.json '.memory_bytes as $m | $plan[0].stages |
		all(.predicted.memory_bytes == $m[.ranks[]])' last >/dev/null
}

# again PROFILE REPLICAS...: plans and runs with recomputation, and checks that the memory is as planned.
again() {
	plan_with=--recompute
	plan "$@" >plan.json
	plan_with=
	as_predicted --minibatches=1 --no-evaluate
	as_planned
	jq -e ".stages[0].recompute" plan.json
}

# resumed PLAN N STOP... -- OPTION...: trains N minibatches, stopped and resumed at each STOP, and checks
# that the last checkpoint is that of a run that was not stopped.  The whole folder is compared, with the
# older versions.
resumed() {
	resumed_plan=$1 resumed_n=$2 resumed_stops=
	shift 2
	while [ "$1" != -- ]; do
		resumed_stops="$resumed_stops $1"
		shift
	done
	shift
	rm -rf ck ck-whole
	train ck-whole "$resumed_plan" --minibatches="$resumed_n" --no-evaluate "$@" >out
	again=
	for k in $resumed_stops $resumed_n; do
		train ck "$resumed_plan" --minibatches="$k" --no-evaluate $again "$@" >out
		again=--resume
	done
	diff -r "$(at ck-whole "$resumed_n")" "$(at ck "$resumed_n")"
}

# at CHECKPOINT STEP: prints the folder of that step.
at() {
	printf '%s/step-%012d' "$1" "$2"
}
