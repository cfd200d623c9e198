# SPDX-License-Identifier: Apache-2.0
# The test asks cuDNN about the convolutions of all models.  It needs the library, but no GPU.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

program=$PD_BUILD/test/unit/cudnn
[ -x "$program" ] || test_skip_all "built without CUDA"

data=$PD_SOURCE/test/data
"$program" -g "$data/gpu-h100.json" -t bf16 -g "$data/gpu-a100.json" "$MODELS"/*.json \
	"$data/odd-convolutions.json" "$data/grouped-convolutions.json" \
	"$data/transposed-convolutions.json" 2>error
result=$?
[ $result -ne 127 ] || test_skip_all "$(head -n 1 error)"
cat error >&2
exit $result
