#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes two data sets for pd-run --data out of Debian's packages:
#
#     sh contrib/text-data.sh [FOLDER [prose] [pairs]]
#
# FOLDER is text-data by default.  Without a name both data sets are made.  One that is there is kept.
#
#     FOLDER/prose    train.txt, val.txt: English prose for language models, 3.5 MB: the Jargon
#                     File, Debian's reference, developers' reference and policy, and Git's manuals
#     FOLDER/pairs    train/, test/: sentences in English and German for translators such as GNMT, out
#                     of the catalogues of messages of LibreOffice, GCC, util-linux, GnuCash, Gnumeric
#                     and the C library; contrib/text-pairs.sh says how they become numbers, and needs
#                     msgunfmt of the package gettext
#
# Nothing is installed: apt-get downloads the packages, and the script unpacks them into a folder that it
# removes.  A sentence has room for LENGTH (30) tokens, and VOCABULARY (8000) words are known.  The exit
# status is 77 if there is no network or no msgunfmt.
set -eu
export LC_ALL=C

source=$(cd "$(dirname "$0")" && pwd)
folder=${1:-text-data}
[ $# -eq 0 ] || shift
wanted=" ${*:-prose pairs} "
for set in $wanted; do
	case $set in
	prose | pairs) ;;
	*) echo "text-data.sh: expected prose or pairs, found $set" >&2; exit 2 ;;
	esac
done
prose="jargon-text debian-reference-en developers-reference debian-policy git-doc"
pairs="libreoffice-l10n-de gcc-12-locales util-linux-locales gnucash-common gnumeric-common libc-l10n"

work=$(mktemp -d "${TMPDIR:-/tmp}/text-data.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# missing SET: succeeds if the set is wanted and not there.
missing() {
	case $wanted in *" $1 "*) ! [ -d "$folder/$1" ] ;; *) false ;; esac
}

# unpack PACKAGE...: downloads each package and unpacks it into a folder of its name.
unpack() {
	for package in "$@"; do
		mkdir "$work/$package"
		(cd "$work/$package" && apt-get download -qq "$package" >/dev/null 2>"$work/why") || {
			echo "text-data.sh: $package cannot be downloaded, so there are no data: $(
				tail -n 1 "$work/why")" >&2
			exit 77
		}
		dpkg-deb -x "$work/$package/"*.deb "$work/$package"
	done
}

# paragraphs FILE...: prints the paragraphs of these texts that are prose, one a line.  A paragraph is prose
# if it is long enough and nearly all letters, spaces, commas and full stops, which neither tables nor
# programs are.
paragraphs() {
	for file; do
		case $file in
		*.gz) gzip -dc "$file" ;;
		*) cat "$file" ;;
		esac
		echo
	done | awk 'BEGIN { RS = "" }
		{
			gsub(/[ \t\n]+/, " ")
			sub(/^ /, "")
			other = $0
			words = gsub(/[A-Za-z ,.]/, "", other)
		}
		length($0) >= 120 && words >= 0.93 * length($0) { print }'
}

# texts PACKAGE...: prints the names of the plain texts in these packages, without notes on releases.
texts() {
	for package in "$@"; do
		find "$work/$package/usr/share" \( -name "*.txt" -o -name "*.txt.gz" \) ! -name "*.rst.txt" \
			! -path "*/RelNotes/*" | sort
	done
}

mkdir -p "$folder"
if missing prose; then
	# shellcheck disable=SC2086
	unpack $prose
	mkdir "$work/prose"
	for package in $prose; do
		# shellcheck disable=SC2046
		paragraphs $(texts "$package") >"$work/text"
		# The last tenth of each package is for the evaluation.
		lines=$(($(wc -l <"$work/text") * 9 / 10))
		head -n "$lines" "$work/text" >>"$work/prose/train.txt"
		tail -n "+$((lines + 1))" "$work/text" >>"$work/prose/val.txt"
	done
	mv "$work/prose" "$folder/prose"
fi
if missing pairs; then
	# shellcheck disable=SC2086
	unpack $pairs
	mkdir "$work/pairs"
	# shellcheck disable=SC2046
	sh "$source/text-pairs.sh" "${LENGTH:-30}" "${VOCABULARY:-8000}" "$work/pairs" \
		$(find "$work" -path "*/de/LC_MESSAGES/*.mo" | sort)
	mv "$work/pairs" "$folder/pairs"
fi
[ ! -d "$folder/prose" ] || echo "$folder/prose: $(wc -c <"$folder/prose/train.txt") bytes to train on, $(
	wc -c <"$folder/prose/val.txt") to evaluate on"
[ ! -d "$folder/pairs" ] || echo "$folder/pairs: $(wc -l <"$folder/pairs/train.en") sentences to train on, $(
	wc -l <"$folder/pairs/test.en") to evaluate on"
