#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a folder that configure takes for a CUDA toolkit.  In it the processor does what a GPU would
# (test/emulated/emulated.h).  So a machine without a GPU can test what lib/run/device/cuda computes from what,
# where it puts it, its layouts, graphs and choices.  It cannot test CUDA's libraries, or the speed and the
# bits of a GPU.  The script needs the headers of a real toolkit (CUDA_HOME, /usr/local/cuda) with those of
# cuDNN, g++, Python and an x86-64 processor.
#
#     sh contrib/emulate-cuda.sh OUT          makes the folder OUT anew
#     configure --with-cuda=OUT LIBS=-lstdc++; make
#     PD_TEST_DEVICE=cuda make check TESTS='test/conform/layers test/conform/stream'
#
# These variables change the emulated GPU while a program runs:
#
#     PD_EMULATED_NO_CAPTURE=1         no work can be captured in graphs
#     PD_EMULATED_NO_CAPTURE=begin     capturing cannot even begin
#     PD_EMULATED_NO_UPDATE=1          no graph can be updated
#     PD_EMULATED_NO_FUSION=1          the libraries have no bias or relu behind a product
#     PD_EMULATED_SLOW_CALLS=1         cuDNN's older calls take longer than its graph API
#     PD_EMULATED_NO_ALGORITHMS=1      cuDNN's older calls offer nothing
#     PD_EMULATED_NO_TENSOR_CORES=1    kernels are compiled for a GPU without tensor cores
#
# PD_TEST_ENGINES names engines of the graph API that test/conform/layers takes in 16 bits, as a profile
# does: "forward 1 14=-1; data 2; weights 1 14=-1".
set -eu

[ $# -eq 1 ] || { echo "usage: sh contrib/emulate-cuda.sh OUT" >&2; exit 2; }
source=$(cd "$(dirname "$0")/.." && pwd)
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -e "$cuda/include/cuda_runtime_api.h" ] || { echo "$cuda: no headers of CUDA" >&2; exit 3; }

rm -rf "$1"
mkdir -p "$1/bin" "$1/lib64"
out=$(cd "$1" && pwd)
ln -s "$cuda/include" "$out/include"
cp -R "$source/test/emulated" "$out/emulated"
cp "$source/test/emulated/nvcc" "$out/bin/nvcc"
chmod +x "$out/bin/nvcc"
for part in runtime:cudart_static grid:cudart_static memory:cudart_static cudnn:cudnn cublaslt:cublasLt; do
	${CXX:-g++} -std=c++17 -O2 -g1 -Wall -isystem "$out/include" -I"$source/lib" \
		-c "$out/emulated/${part%:*}.cc" -o "$out/lib64/${part%:*}.o"
	ar rcs "$out/lib64/lib${part#*:}.a" "$out/lib64/${part%:*}.o"
done
echo "$out"
