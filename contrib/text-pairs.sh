#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes arrays for pd-model gnmt out of the English and German sentences in gettext catalogues:
#
#     sh contrib/text-pairs.sh LENGTH VOCABULARY OUT CATALOGUE.mo...
#
# OUT/train and OUT/test get source.npy, source_length.npy, target.npy and labels.npy.  A token is a word or
# a sign.  The most frequent tokens of each language are numbered from 4, in OUT/vocabulary.en and
# OUT/vocabulary.de.  0 fills up a row, 1 is any other word, 2 begins a target and 3 ends a sentence.  Pairs
# that do not fit into LENGTH are left out, so nothing is cut.  Every twentieth pair, by a checksum of its
# words, is for the test.  OUT/train.en and so on have the sentences themselves.  msgunfmt of Debian's
# package gettext reads the catalogues.
set -eu
export LC_ALL=C

[ $# -ge 4 ] || { echo "usage: sh contrib/text-pairs.sh LENGTH VOCABULARY OUT CATALOGUE.mo..." >&2; exit 2; }
length=$1 vocabulary=$2 out=$3
shift 3
if [ "$length" -lt 4 ] || [ "$vocabulary" -lt 5 ] || [ "$vocabulary" -gt 65536 ]; then
	echo "text-pairs.sh: expected a length of 4 or more and a vocabulary of 5 to 65536 words," \
		"found $length and $vocabulary" >&2
	exit 2
fi
command -v msgunfmt >/dev/null || {
	echo "text-pairs.sh: msgunfmt, which reads catalogues, is not installed:" \
		"Debian has it in the package gettext" >&2
	exit 77
}
work=$(mktemp -d "${TMPDIR:-/tmp}/text-pairs.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# sentences: prints pairs of at most LENGTH - 1 tokens out of the text of catalogues: a checksum, English
# and German, with tabs between them.  Bytes from 128 on are letters, except those of signs (UTF-8).
sentences() {
	awk -v length_limit="$length" '
	BEGIN {
		for (i = 1; i < 256; i++)
			byte[sprintf("%c", i)] = i
		# These are the accented capitals of Latin 1 in UTF-8, except the multiplication sign.
		for (i = 128; i <= 158; i++)
			if (i != 151)
				small[sprintf("\303%c", i)] = sprintf("\303%c", i + 32)
	}
	function checksum(text,  i, sum) {
		for (i = 1; i <= length(text); i++)
			sum = (sum * 31 + byte[substr(text, i, 1)]) % 2147483647
		return sum
	}
	# sentence TEXT: returns the tokens of a message, without marks of keys and markup; a placeholder is
	# an x.
	function sentence(text,  letter, tokens) {
		gsub(/%[-+ #0]*[0-9.*$]*<[A-Za-z0-9]*>/, " X ", text)
		gsub(/<[^>]*>|\([&_~][A-Za-z0-9_\200-\377]\)/, "", text)
		gsub(/[&_~]+ /, " & ", text)
		gsub(/[&_~]+[A-Za-z0-9_\200-\377]/, "\001&", text)
		gsub(/\001[&_~]+/, "", text)
		gsub(/%[-+ #0]*[0-9.*$]*[hlqjzt]*[a-zA-Z]|\$[A-Za-z0-9_]+|\$\{[A-Za-z0-9_]+\}/, " X ", text)
		gsub(/%[A-Za-z0-9_]+%/, " X ", text)
		text = tolower(text)
		for (letter in small)
			gsub(letter, small[letter], text)
		gsub(/\302\240/, " ", text)
		gsub(/\342\200\231/, "\047", text)
		gsub(/\302[\200-\277]|\342[\200-\277][\200-\277]/, " & ", text)
		count = 0
		while (match(text, /[a-z0-9_\200-\377]+([\047-][a-z0-9_\200-\377]+)*|[^ \t\r]/)) {
			tokens = tokens (count++ ? " " : "") substr(text, RSTART, RLENGTH)
			text = substr(text, RSTART + RLENGTH)
		}
		return tokens
	}
	# quoted LINE: returns the text between the first quotation mark of a line and the last one.
	function quoted(line) {
		sub(/^[^"]*"/, "", line)
		sub(/"$/, "", line)
		gsub(/\\\\/, "\001", line)
		gsub(/\\[a-z]/, " ", line)
		gsub(/\\"/, "\"", line)
		gsub(/\001/, "\\", line)
		return line
	}
	function end(  source, target) {
		if (english != "" && german != "") {
			source = sentence(english)
			if (count >= 3 && count < length_limit && !(source in seen)) {
				target = sentence(german)
				# Single words teach no grammar.
				if (count >= 3 && count < length_limit) {
					seen[source]
					print checksum(source) "\t" source "\t" target
				}
			}
		}
		english = german = ""
	}
	/^msgid / { end(); part = 1 }
	/^msgid_plural / { part = 0 }
	/^msgstr(\[0\])? / { part = 2 }
	/^msgctxt |^msgstr\[[1-9]/ { part = 0 }
	part == 1 && /"$/ { english = english quoted($0) }
	part == 2 && /"$/ { german = german quoted($0) }
	END { end() }'
}

# words COLUMN: prints the most frequent words of a column, of the pairs to train on.
words() {
	awk -F '\t' -v column="$1" '$1 % 20 {
		n = split($column, word, " ")
		for (i = 1; i <= n; i++)
			count[word[i]]++
	}
	END { for (w in count) print count[w], w }' "$work/pairs" |
		sort -k 1,1nr -k 2 | head -n $((vocabulary - 4)) | cut -d ' ' -f 2-
}

for catalogue; do
	msgunfmt --no-wrap "$catalogue" 2>"$work/why" || {
		cat "$work/why" >&2
		exit 1
	}
done >"$work/messages"
sentences <"$work/messages" | sort -n >"$work/pairs"
words 2 >"$out/vocabulary.en"
words 3 >"$out/vocabulary.de"
mkdir "$out/train" "$out/test"
awk -F '\t' -v width="$length" -v out="$out" '
# begin NAME SHAPE: writes the header of an array of u16, as numpy.save does.
function begin(name, shape,  text) {
	text = "{\047descr\047: \047<u2\047, \047fortran_order\047: False, \047shape\047: (" shape "), }"
	while ((length(text) + 11) % 64)
		text = text " "
	printf "\223NUMPY\001%c%c%c%s\n", 0, (length(text) + 1) % 256, (length(text) + 1) / 256, text >name
}
function put(name, number) {
	printf "%c%c", number % 256, int(number / 256) >name
}
# row: writes a row of numbers: `first` unless it is 0, those of the words, `last` unless it is 0, zeros.
function row(name, text, known, language, first, last,  word, n, i) {
	n = split(text, word, " ")
	if (first)
		put(name, first)
	for (i = 1; i <= n; i++)
		put(name, (language, word[i]) in known ? known[language, word[i]] : 1)
	if (last)
		put(name, last)
	for (i = n + 1; i < width; i++)
		put(name, 0)
	return n + 1
}
FILENAME != ARGV[3] {
	language = FILENAME == ARGV[1] ? "en" : "de"
	known[language, $0] = FNR + 3
	next
}
{ pair[++pairs] = $0; set[pairs] = $1 % 20 ? "train" : "test"; size[set[pairs]]++ }
END {
	for (s in size) {
		at = out "/" s
		begin(at "/source_length.npy", size[s] ",")
		begin(at "/source.npy", size[s] ", " width)
		begin(at "/target.npy", size[s] ", " width)
		begin(at "/labels.npy", size[s] ", " width)
		for (i = 1; i <= pairs; i++)
			if (set[i] == s) {
				split(pair[i], part, "\t")
				print part[2] >(at ".en")
				print part[3] >(at ".de")
				n = row(at "/source.npy", part[2], known, "en", 0, 3)
				put(at "/source_length.npy", n)
				row(at "/target.npy", part[3], known, "de", 2, 0)
				row(at "/labels.npy", part[3], known, "de", 0, 3)
			}
	}
}' "$out/vocabulary.en" "$out/vocabulary.de" "$work/pairs"
