# SPDX-License-Identifier: Apache-2.0
# Sourced by first-run.sh and text-run.sh: where the trees are ($source, $build), and how to build.
source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build}
PATH=$build/bin:$PATH

# build_here KIND: with the packages that building takes and those of a kind of contrib/packages.sh
build_here() {
	sh "$source/contrib/packages.sh" build "$1" >/dev/null
	[ -x "$source/configure" ] || (cd "$source" && autoreconf -fi >/dev/null 2>&1)
	mkdir -p "$build"
	cd "$build"
	[ -f Makefile ] || "$source/configure" --with-cuda=no >configure.out
	make -j"$(nproc)" >make.out
}

say() { printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; }
