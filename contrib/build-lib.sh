# SPDX-License-Identifier: Apache-2.0
# first-run.sh and text-run.sh source this file.  It sets $source and $build, the source and build trees,
# and has the function that builds.
source=$(cd "$(dirname "$0")/.." && pwd)
build=${PD_BUILD:-$source/build}
PATH=$build/bin:$PATH

# build_here KIND: installs the packages that building takes and those of this kind (contrib/packages.sh),
# then builds.
build_here() {
	sh "$source/contrib/packages.sh" build "$1" >/dev/null
	[ -x "$source/configure" ] || (cd "$source" && autoreconf -fi >/dev/null 2>&1)
	mkdir -p "$build"
	cd "$build"
	[ -f Makefile ] || "$source/configure" --with-cuda=no >configure.out
	make -j"$(nproc)" >make.out
}

say() { printf '\n\033[1m$ %s\033[0m\n' "$*" >&2; }
