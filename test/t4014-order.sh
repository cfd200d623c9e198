# SPDX-License-Identifier: Apache-2.0
# Stages need not be runs of the profile's layers.  Where a network with branches is cut, and in which order
# its branches then come, changes no bit.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

residual_model >residual.json
profile residual.json 4 >residual
idx_data data

# cut OPTION... LAYERS...: prints a plan with these stages, each a word of layers with commas between.
cut() {
	options=
	while case $1 in --*) ;; *) false ;; esac; do
		options="$options $1"
		shift
	done
	count=$(jq '.layers | length' residual)
	pd-plan --topology=8@10Gbit/s $options \
		--stages="$((count - $# + 1)),$(yes 1 | head -$(($# - 1)) | paste -s -d, -)" residual |
		jq -c --arg stages "$*" '.stages as $old |
			.stages = [$stages | split(" ") | to_entries[] |
				   $old[.key] + {layers: .value | split(",")}] |
			del(.stages[].predicted, .stages[].warmup, .predicted)'
}

early="conv1,bn1,relu1,conv2,skip,fc2 bn2,sum1,relu2,pool1,conv3,cat drop1,mean,flat,fc1,sum2,drop2,fc3,loss"
late="conv1,bn1,relu1 conv2,bn2,sum1,relu2,skip,fc2 pool1,conv3,cat,drop1,mean,flat,fc1 sum2,drop2,fc3,loss"

pd-plan --topology=1@10Gbit/s --weights=flush --microbatches=4 residual >one.json
train one one.json $sgd --minibatches=10 --data=data >/dev/null
for stages in "$early" "$late"; do
	test_ok "bit for bit what one worker trains: $(echo "$stages" | sed 's/,[^ ]*,/../g')" '
		cut --weights=flush --microbatches=4 $stages >plan.json
		rm -rf many
		train many plan.json $sgd --minibatches=10 --data=data
		"$same" "$(at one 10)" "$(at many 10)"'
done
test_ok "and that of the published rule, with stashing" '
	cut $early >plan.json
	rm -rf many
	train many plan.json $sgd --minibatches=25 --synthetic
	"$serial" $sgd --minibatches=25 --output=serial plan.json
	"$same" serial "$(at many 25)"'
test_ok "a checkpoint goes on under another order" '
	cut --weights=flush --microbatches=4 $early >plan.json
	cut --weights=flush --microbatches=4 $late >other.json
	rm -rf many
	train many plan.json $sgd --minibatches=5 --data=data
	train many other.json $sgd --minibatches=10 --data=data --resume
	"$same" "$(at one 10)" "$(at many 10)"'
test_ok "the plan keeps the profile and the model as they were; it is read, replayed, scheduled" '
	cut $early >plan.json
	"$PD_BUILD/test/unit/read-document" plan plan.json >again
	jq -e --slurpfile plan plan.json ".profile == \$plan[0].profile" again
	jq -e --slurpfile plan plan.json \
		"[.stages[].layers] == [\$plan[0].stages[].layers]" again
	jq -c .profile plan.json >profile.json
	jq -e --slurpfile old residual ".layers == \$old[0].layers" profile.json
	pd-replay plan.json >/dev/null
	pd-schedule plan.json | pd-schedule --check -'

refused() {
	words=$1
	shift
	cut "$@" >plan.json
	status 2 pd-replay plan.json 2>err >out
	cat err
	one_line err
	grep -q "$words" err
}
test_ok "an order that would change a sum of three gradients is refused" '
	refused "\"skip\" is in an earlier stage than one before it that also uses \"relu1\"" \
		conv1,bn1,relu1,skip,fc2 \
		conv2,bn2,sum1,relu2,pool1,conv3,cat,drop1,mean,flat,fc1,sum2,drop2,fc3,loss'
test_ok "so is one in which something is needed before it is there" '
	refused "expected layer \"bn2\", which \"sum1\" needs, before it" \
		conv1,bn1,relu1,conv2,sum1 \
		bn2,relu2,pool1,conv3,cat,drop1,mean,flat,fc1,skip,fc2,sum2,drop2,fc3,loss'
test_done
