#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Networks of hundreds of megabytes, once: profiled, planned, trained, in the memory that was
# predicted; and with recomputation.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

for model in alexnet vgg16 resnet50; do
	test_ok "$model: profiled, planned for 4, trained" '
		pd-profile "$MODELS/$model.json" --batch-size=2 --iterations=1 >large
		pd-plan --gpus=4 large >plan.json
		[ "$(jq "[.stages[].replicas] | add" plan.json)" -le 4 ]
		as_predicted --minibatches=3 --report-every=1
		as_planned
		cat out
		jq -s -e "map(select(.event == \"progress\") | .step) == [1, 2, 3] and
			all(.[] | select(.event == \"progress\"); .loss | isnormal)" out
		jq -e ".outcome == \"done\" and .step == 3" last'
	test_ok "$model, three stages that recompute" 'again large 1 1 1'
	rm -f large
done

test_done
