#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts what `make check-gpu` runs, and the libraries that it needs, into one folder and an archive of it.
# The archive runs on a machine with a GPU that has no packages installed and no network.
#
#     sh contrib/gpu-bundle.sh BUILD OUT      makes OUT and OUT.tar.xz anew; BUILD is configured with CUDA,
#                                             and for the GPU's kind alone: --with-cuda-arch=90
#
# On the machine with the GPU, which may lack xz but has Python, as PyTorch's have:
#
#     python3 -m tarfile -e OUT.tar.xz && cd OUT
#     sh run-here.sh                          runs what `make check-gpu` runs
#     sh run-here.sh -- sh gpu-first.sh       runs that and more, what says most first
#
# CUDA's libraries (cuBLASLt, cuDNN, NCCL) are left out: they are large, and a machine with a GPU has them, in
# /usr/local/cuda or among Python's packages.  PD_BUNDLE_NCCL=yes puts NCCL into the archive, some 200 MiB,
# for a machine that lacks it.  Without it, an archive of 32 MB or more is an error.
set -eu

[ $# -eq 2 ] || { echo "usage: sh contrib/gpu-bundle.sh BUILD OUT" >&2; exit 2; }
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
out=$2

programs="bin/pd-model bin/pd-profile bin/pd-plan bin/pd-run bin/pd-worker bin/pd-schedule bin/pd-replay"
tests="test/conform/chunks test/conform/devices test/conform/iteration test/conform/kernels test/conform/layers
	test/conform/partition test/conform/stream
	test/conform/nonfinite test/conform/transfers test/conform/widened test/conform/serial test/conform/same-tensors
	test/unit/cuda-arith test/unit/read-document test/bench/speed"
scripts="test/bench/cpu-vs-torch.py test/bench/sequences-vs-torch.py test/test-lib.sh
	test/train-lib.sh test/t4001-weights.sh test/t4003-pairs.sh test/t4004-split.sh test/t4005-memory.sh test/t4014-order.sh
	test/t4006-updates.sh test/t4015-pipemare.sh test/t4007-tied.sh test/t4008-recompute.sh
	test/t4009-mixed.sh test/t4010-schedule-files.sh
	test/t9002-gpu.sh test/t9003-sanitizer.sh test/t9004-nccl.sh
	test/bench/gpu-vs-torch.sh test/bench/gpu-vs-torch.py test/bench/bench-lib.sh
	test/bench/own-device.sh"

grep -q '^CUDA_LIBS = .*cudnn' "$build/Makefile" ||
	{ echo "$1: not configured with CUDA" >&2; exit 2; }
(cd "$build" && make all $tests >/dev/null)

rm -rf "$out"
mkdir -p "$out/lib/ucx" "$out/share"
out=$(cd "$out" && pwd)
for file in $programs $tests; do
	mkdir -p "$out/$(dirname "$file")"
	cp "$build/$file" "$out/$file"
	strip "$out/$file"
done
for file in $scripts; do
	mkdir -p "$out/$(dirname "$file")"
	cp "$source/$file" "$out/$file"
done
cp -R "$source/share/models" "$source/share/devices" "$out/share/"
cp "$source/contrib/run-here.sh" "$source/contrib/gpu-first.sh" "$out/"
PD_SOURCE=$source PD_BUILD=$build sh "$source/contrib/gpu-first.sh" --numbers "$out/first-light"
if command -v jq >/dev/null; then
	cp "$(command -v jq)" "$out/bin/"
fi

# Libraries that every Linux has, and those of CUDA, are left out.
for file in "$out"/bin/* $(for t in $tests; do echo "$out/$t"; done); do
	ldd "$file" | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
	grep -vE '/lib(cu|nv)[A-Za-z]*\.so' | while read -r library; do
	case $library,${PD_BUNDLE_NCCL-no} in
	*/libnccl.so*,no) continue ;;
	esac
	cp -L "$library" "$out/lib/"
done
# UCX loads these modules by name, so ldd does not list them.
for module in "$(dirname "$(ldd "$build/bin/pd-worker" | sed -n 's/^.*libucp[^ ]* => \([^ ]*\) .*/\1/p')")"/ucx/*.so.0; do
	[ -e "$module" ] && cp -L "$module" "$out/lib/ucx/"
done
strip --strip-unneeded "$out"/lib/*.so* 2>/dev/null || true
# All programs have the same kernels, which a dictionary of 128 MiB finds again.
tar -C "$(dirname "$out")" -cf - "$(basename "$out")" | xz --lzma2=preset=1,dict=128MiB >"$out.tar.xz.new"
bytes=$(wc -c <"$out.tar.xz.new")
echo "$out.tar.xz: $((bytes / 1000000)) MB, $(($(du -sk "$out" | cut -f 1) / 1024)) MiB unpacked"
[ "${PD_BUNDLE_NCCL-no}" != no ] || [ "$bytes" -lt 32000000 ] ||
	{ rm "$out.tar.xz.new"; echo "$out.tar.xz: 32 MB or more" >&2; exit 1; }
mv "$out.tar.xz.new" "$out.tar.xz"
