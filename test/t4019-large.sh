#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Large networks are profiled, planned and trained once, also with recomputation, in the memory predicted.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# VGG-16 has stages of one replica, since four copies of all its parameters would be gigabytes.
while read -r model samples options; do
	test_ok "$model: profiled, planned, trained" '
		profile "$MODELS/$model.json" $samples >large
		pd-plan $options large >plan.json
		as_predicted --minibatches=2 --report-every=1 --no-evaluate
		as_planned
		cat out
		jq -s -e "map(select(.event == \"progress\")) | map(.step) == [1, 2] and
			all(.[]; .loss | isnormal)" out
		jq -e ".outcome == \"done\" and .step == 2" last'
done <<END
vgg16 1 --topology=4@10Gbit/s --straight
resnet50 2 --topology=2@10Gbit/s
END
test_ok "resnet50, three stages that recompute" 'again large 1 1 1'
profile "$MODELS/resnet18.json" 2 >resnet18
test_ok "resnet18, two replicas before one" '
	plan resnet18 2 1 >plan.json
	as_predicted --minibatches=1
	as_planned'

test_done
