#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is needed on Debian 12: sh contrib/packages.sh [build] [data] [test] [bench]
set -eu

packages=
for what in "$@"; do
	case $what in
	build) packages="$packages gcc make autoconf automake libc6-dev libjansson-dev libdnnl-dev
		libucx-dev zlib1g-dev" ;;
	data) packages="$packages dataset-fashion-mnist" ;;
	test) packages="$packages dataset-fashion-mnist jq mandoc libxml2-utils procps xz-utils
		git" ;;
	bench) packages="$packages python3-torch" ;;
	*) echo "packages.sh: expected build, data, test or bench, found $what" >&2; exit 2 ;;
	esac
done
missing=
for package in $packages; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
