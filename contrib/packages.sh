#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs packages of these kinds on Debian 12:
#
#     sh contrib/packages.sh [build] [data] [test] [emulated] [fuzz] [bench] [onednn3=DIR]
#
# onednn3=DIR has pip download oneDNN 3 with GNU OpenMP, and unpacks it into that folder.
set -eu

packages= onednn3=
for what in "$@"; do
	case $what in
	build) packages="$packages gcc make autoconf automake libc6-dev libjansson-dev libdnnl-dev
		libucx-dev zlib1g-dev libxxhash-dev libpmix-dev protobuf-c-compiler libprotobuf-c-dev
		libonnx-dev" ;;
	data) packages="$packages dataset-fashion-mnist" ;;
	test) packages="$packages dataset-fashion-mnist jq gojq bash mandoc libxml2-utils procps bsdutils
		xz-utils git ccache openmpi-bin iproute2 slurm-wlm munge gettext" ;;
	emulated) packages="$packages g++ python3" ;;
	fuzz) packages="$packages clang libclang-rt-14-dev" ;;
	bench) packages="$packages python3-torch" ;;
	onednn3=?*) onednn3=${what#*=} packages="$packages python3 python3-pip" ;;
	*) echo "packages.sh: expected build, data, test, emulated, fuzz, bench or onednn3=DIR, found $what" >&2
	   exit 2 ;;
	esac
done
missing=
for package in $packages; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
		missing="$missing $package"
done
# onednn3: unpacks oneDNN 3 rather than have pip install it, since only the system may be allowed to change
# its Python.
onednn3() {
	[ -n "$onednn3" ] && [ ! -r "$onednn3/include/oneapi/dnnl/dnnl.h" ] || return 0
	new=$onednn3.new
	rm -rf "$new" && mkdir -p "$new/unpacked"
	timeout 300 python3 -m pip download -q --no-deps -d "$new" \
		onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0
	for wheel in "$new"/*.whl; do
		python3 -m zipfile -e "$wheel" "$new/unpacked"
	done
	for data in "$new"/unpacked/*.data/data; do
		cp -R "$data/." "$new"
	done
	rm -rf "$new/unpacked" "$new"/*.whl "$onednn3"
	mv "$new" "$onednn3"
}

if [ -n "$onednn3" ] && python3 -m pip --version >/dev/null 2>&1; then
	missing=$(echo "$missing" | sed 's/ python3-pip//; s/ python3$//')
fi
if [ -z "$missing" ]; then
	onednn3
	exit 0
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
onednn3
