#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-run trains on texts, as tokens or as bytes, as the manual says, whatever the partition.  What cannot be
# trained on is refused in one sentence.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# text BYTES SEED: prints words of a few letters.
text() {
	awk -v n="$1" -v seed="$2" 'BEGIN {
		srand(seed)
		split("the a old new ship sea came went to from and .", word, " ")
		while (bytes < n) {
			w = word[1 + int(rand() * 12)] " "
			bytes += length(w)
			printf "%s", w
		}
	}'
}
# u16: prints the bytes on standard input as numbers of 16 bits.
u16() {
	od -An -v -tu1 | awk '{ for (i = 1; i <= NF; i++) printf "\\%03o\\000", $i; print "" }' |
		while read -r line; do printf "$line"; done
}
mkdir letters tokens
text 2000 1 >letters/train.txt
text 300 2 >letters/val.txt
u16 <letters/train.txt >tokens/train.bin
u16 <letters/val.txt >tokens/val.bin
cat letters/train.txt letters/val.txt | head -c 2000 >book.txt

gpt="--layers=2 --hidden=16 --heads=2 --sequence=12 --vocabulary=256 --dropout=0.1"
pd-model gpt $gpt --untied >gpt.json
profile gpt.json 4 >gpt
adam="--optimizer=adam --lr=0.003"
for replicas in "1" "1 1" "2 1" "1 1 1"; do
	test_row gpt "text, stages of $replicas: 30 minibatches of the published rule" '
		plan gpt $replicas >plan.json
		rm -rf ck
		train ck plan.json $adam --minibatches=30 --data=letters >out
		"$serial" $adam --minibatches=30 --data=letters --output=serial plan.json
		"$same" serial "$(at ck 30)"'
done
plan gpt 1 1 >plan.json
# losses DATA: trains, and prints the reports of losses, without times.
losses() {
	rm -rf ck
	train ck plan.json $adam --minibatches=50 --report-every=10 --data="$1" |
		ordered_jq -S -c "select(.event == \"progress\" or .event == \"evaluation\") | del(.samples_per_s)"
}
test_ok "tokens that are those bytes: the same losses, which fall" '
	losses letters >one
	losses tokens >two
	[ "$(grep -c evaluation one)" -eq 2 ]
	cmp one two
	jq -s -e "map(select(.event == \"progress\").loss) | .[0] > .[-1] + 0.5" one
	jq -s -e "map(select(.event == \"evaluation\").samples) == [24, 24]" one'
test_ok "one text: its first nine tenths are trained on, the rest is evaluated" '
	head -c 1800 book.txt >first
	tail -c 200 book.txt >rest
	mkdir parts
	mv first parts/train.txt
	mv rest parts/val.txt
	losses book.txt >one
	losses parts >two
	cmp one two'
test_ok "the header of llm.c is passed over" '
	mkdir header
	cp tokens/val.bin header
	{ printf "\\210\\330\\064\\001\\001\\000\\000\\000"
	  bytes=$(wc -c <tokens/train.bin)
	  count=$((bytes / 2))
	  printf "$(printf "\\\\%03o\\\\%03o\\\\000\\\\000" $((count % 256)) $((count / 256)))"
	  head -c 1012 /dev/zero
	  cat tokens/train.bin; } >header/train.bin
	losses header >three
	losses tokens >two
	[ "$(grep -c evaluation three)" -eq 2 ]
	cmp two three'
test_ok "stopped and resumed: the same bits" '
	resumed plan.json 40 9 23 -- $adam --data=letters'

# refused WORDS DATA: checks that pd-run refuses the data at once, in one sentence with the WORDS.
refused() {
	status 2 pd-run --data="$2" plan.json 2>err >out
	cat err
	one_line err && grep -q -e "^pd-run: $1" err && [ ! -s out ]
}
test_ok "a token outside of the vocabulary, and where it is" '
	pd-model gpt $gpt --untied --vocabulary=100 >few.json
	profile few.json 4 >few
	plan few 1 1 >plan.json
	refused "letters/train.txt: token 1[0-9][0-9] at place [0-9]*: expected one from 0 to 99, the model.s vocabulary" \
		letters'
test_ok "tokens of another width than the vocabulary asks for, a text, CIFAR-100" '
	mkdir wide narrow plain hundred
	u16 <tokens/train.bin >wide/train.bin
	refused "wide/train.bin: every other token is 0: these have 32 bits" wide
	head -c 4000 tokens/train.bin >narrow/train.bin
	pd-model gpt ${gpt%--vocab*} --vocabulary=70000 --untied >many.json
	profile many.json 4 >many
	plan many 1 1 >plan.json
	refused "narrow/train.bin: token [0-9]* at place 0: .* taken to have 32 bits" narrow
	pd-model gpt ${gpt%--vocab*} --vocabulary=50257 --untied >many.json
	profile many.json 4 >many
	plan many 1 1 >plan.json
	cp letters/train.txt plain/train.bin
	refused "plain/train.bin: expected the numbers of a tokenizer, found a text" plain
	plan gpt 1 1 >plan.json
	cp tokens/train.bin hundred
	echo apple >hundred/fine_label_names.txt
	refused "hundred: found CIFAR-100" hundred'
test_ok "a model of images, too little text, nothing to evaluate on" '
	residual_model >residual.json
	profile residual.json 4 >residual
	plan residual 1 1 >plan.json
	refused "letters: holds text: expected a model whose inputs are i32" letters
	plan gpt 1 1 >plan.json
	head -c 12 letters/train.txt >short.txt
	refused "short.txt: expected a text of at least 13 tokens in its first nine tenths" short.txt
	mkdir lonely
	cp letters/train.txt lonely
	refused "lonely: expected val.txt for the evaluation, found none" lonely
	train ck-lonely plan.json --minibatches=2 --no-evaluate --data=lonely'

test_ok "the example of README, small" '
	RUN=$PWD SIZE="--layers=2 --hidden=16 --heads=2 --sequence=12" MINIBATCHES=40 LR=0.002 \
		sh "$PD_SOURCE/contrib/text-run.sh" book.txt >said
	cat said
	awk "/^what it has not seen: / && \$7 == \"bits\" && \$6 < 7.5 { found = 1 } END { exit !found }" said
	[ "$(grep -c "^minibatch " said)" -ge 5 ]
	grep -q "<svg" pipeline.svg'

# numbers LANGUAGE BEGIN END: prints the numbers of the sentences to train on, 7 in a row.
numbers() {
	awk -v begin="$2" -v end="$3" 'FILENAME == ARGV[1] { number[$0] = FNR + 3; next }
		{
			line = begin
			for (i = 1; i <= NF; i++)
				line = line ($i in number ? number[$i] : 1) " "
			n = split(line end, word, " ")
			for (i = 1; i <= 7; i++)
				printf "%d%s", i <= n ? word[i] : 0, i < 7 ? " " : "\n"
		}' "pairs/vocabulary.$1" "pairs/train.$1"
}
# array NAME: prints what the file has, 7 numbers in a row.
array() {
	tail -c +129 "pairs/train/$1.npy" | od -An -v -tu2 -w14 | tr -s ' ' | sed 's/^ //'
}
if command -v msgunfmt >/dev/null; then
	{
		cat <<-'PO'
			msgid ""
			msgstr "Content-Type: text/plain; charset=UTF-8\n"

			msgctxt "a"
			msgid "One\n"
			"\"old\" line"
			msgid_plural "%d old lines"
			msgstr[0] "Eine \"alte\" Zeile"
			msgstr[1] "%d alte Zeilen"
		PO
		seq 300 | sed 's|.*|\nmsgid "The \&file %s & is old"\nmsgstr "<b>Ältere</b> Datei „%s“ &"|'
	} >de.po
	test_ok "sentences out of a catalogue, for GNMT" '
		mkdir pairs
		msgfmt -o de.mo de.po
		sh "$PD_SOURCE/contrib/text-pairs.sh" 7 40 pairs de.mo
		cat pairs/train.en pairs/test.en >en
		cat pairs/train.de pairs/test.de >de
		[ "$(wc -l <en)" -eq 301 ] && [ "$(wc -l <de)" -eq 301 ] && [ -s pairs/test.en ]
		[ "$(grep -c "^the file x [0-9]* is old$" en)" -eq 300 ]
		[ "$(grep -c "^ältere datei „ x “ [0-9]*$" de)" -eq 300 ]
		grep -qx "one \" old \" line" en && grep -qx "eine \" alte \" zeile" de'
	test_ok "they are numbers as they say: words, one for unknown ones, an end, zeros" '
		numbers de "" 3 >expected
		array labels | cmp expected -
		numbers de "2 " "" >expected
		array target | cmp expected -
		numbers en "" 3 >expected
		array source | cmp expected -
		awk "{ print NF + 1 }" pairs/train.en >expected
		tail -c +129 pairs/train/source_length.npy | od -An -v -tu2 -w2 | tr -d " " |
			cmp expected -'
	test_ok "GNMT is trained on them" '
		pd-model gnmt --layers=2 --hidden=8 --vocabulary=40 --sequence=7 >gnmt.json
		profile gnmt.json 4 >gnmt
		plan gnmt 1 1 >plan.json
		rm -rf ck
		train ck plan.json $adam --minibatches=20 --data=pairs | tail -n 1 |
			jq -e ".memory == \"as predicted\""'
else
	test_skip "sentences out of a catalogue" "there is no msgunfmt"
fi
test_done
