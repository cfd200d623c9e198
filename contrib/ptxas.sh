#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shows what the compiler makes of the CUDA kernels; it needs no GPU.  A line for each kernel has its
# registers, the bytes that it spills, its shared memory, its loads and stores of global memory, and how
# many of these take 16 bytes a thread.
#
#     sh contrib/ptxas.sh [FILE.cu...]        default: all of lib/run/device/cuda
#
# CUDA_HOME names the toolkit (/usr/local/cuda), ARCH the kind of GPU (90), CUOBJDUMP the program that shows
# machine code (cuobjdump, of the toolkit or on the path).  Without that program loads and stores are
# counted in PTX, and marked with a star.  NVCCFLAGS replaces the flags in lib/run/device/cuda/local.mk.
set -eu

source=$(cd "$(dirname "$0")/.." && pwd)
cuda=${CUDA_HOME:-/usr/local/cuda}
arch=${ARCH:-90}
nvcc=$cuda/bin/nvcc
flags=${NVCCFLAGS-$(sed -n 's/^NVCCFLAGS = //p' "$source/lib/run/device/cuda/local.mk")}
dump=${CUOBJDUMP-$(command -v cuobjdump || echo "$cuda/bin/cuobjdump")}
[ -x "$nvcc" ] || { echo "$nvcc: no compiler" >&2; exit 3; }
[ $# -gt 0 ] || set -- "$source"/lib/run/device/cuda/*.cu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# registers LOG: prints "registers spilled shared name" of each kernel.
registers() {
	awk '/Function properties for/ { name = $NF }
	     /bytes stack frame/ { spilled = $5 + $9 }
	     /Used [0-9]+ registers/ {
		shared = 0
		for (i = 1; i < NF; i++)
			if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/)
				shared = $i
		for (i = 1; i < NF; i++)
			if ($(i + 1) ~ /^registers/)
				print $i, spilled, shared, name
	     }' "$1"
}

# accesses OBJECT FILE.cu: prints "name loads wide-loads stores wide-stores" of each kernel.
accesses() {
	if [ -x "$dump" ]; then
		PATH=$(dirname "$dump"):$PATH "$dump" -sass "$1"
	else
		"$nvcc" $flags -I"$source/lib" -arch="sm_$arch" -ptx "$2" -o "$1.ptx"
		cat "$1.ptx"
	fi | awk '
		/Function : / { name = $NF; seen[name] = 1 }
		/^\.visible \.entry|^\.entry/ { sub(/\(.*/, ""); name = $NF; seen[name] = 1 }
		/ LDG?\.E|ld\.global/ { loads[name]++ }
		/ LDG?\.E[^ ]*\.128|ld\.global[^ ]*\.v4\.[buf]32/ { wide_loads[name]++ }
		/ STG?\.E|st\.global/ { stores[name]++ }
		/ STG?\.E[^ ]*\.128|st\.global[^ ]*\.v4\.[buf]32/ { wide_stores[name]++ }
		END {
			for (n in seen)
				print n, loads[n] + 0, wide_loads[n] + 0, stores[n] + 0,
				      wide_stores[n] + 0
		}'
}

readable() {
	if command -v c++filt >/dev/null; then
		echo "$1" | c++filt | sed 's/^void //; s/(.*//'
	else
		echo "$1"
	fi
}

star=
[ -x "$dump" ] || star="*"
printf '%9s %7s %6s  %12s %12s  %s\n' registers spilled shared "loads, 16 B$star" \
	"stores, 16 B$star" kernel
for file in "$@"; do
	"$nvcc" $flags -I"$source/lib" -gencode "arch=compute_$arch,code=sm_$arch" -Xptxas -v \
		-c "$file" -o "$work/kernels.o" >"$work/log" 2>&1 ||
		{ cat "$work/log" >&2; exit 1; }
	registers "$work/log" | sort -k 4 >"$work/registers"
	accesses "$work/kernels.o" "$file" | sort >"$work/accesses"
	join -1 4 -2 1 "$work/registers" "$work/accesses" |
		while read -r name registers spilled shared loads wide stores wide_stores; do
			printf '%9d %7d %6d  %12s %12s  %s\n' "$registers" "$spilled" "$shared" \
				"$loads, $wide" "$stores, $wide_stores" \
				"$(readable "$name")"
		done
done
