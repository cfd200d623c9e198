#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every layer of images conforms with channels last, too, where a device has the choice.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"

[ "${PD_TEST_DEVICE:-cpu}" = cuda ] || test_skip_all "layouts are chosen on a GPU"
PD_CUDA_LAYOUT=last "$PD_BUILD/test/conform/layers" images
