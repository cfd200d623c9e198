# SPDX-License-Identifier: Apache-2.0
# The manual says what is so.  Pages are well formed, what the .def tables and the readers know is in them,
# options are those of --help, documents in them are read, and commands run.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
PD_DEVICES=$PD_SOURCE/share/devices
PD_MACHINES=$PD_SOURCE/share/machines
export PD_DEVICES PD_MACHINES

man=$PD_SOURCE/man
reader=$PD_BUILD/test/unit/read-document

# same A B: checks that two lists in files are the same.
same() {
	[ -s "$1" ] && diff "$1" "$2"
}

# def_names FILE: prints the names in a .def table, with entries NAME(name, ... or NAME(symbol, "name", ...
def_names() {
	sed -n 's/^[A-Z_]*_KIND([A-Z0-9_]*, *"\([^"]*\)".*/\1/p; s/^[A-Z_]*_KIND(\([a-z0-9_]*\),.*/\1/p' "$1"
}

# page_items PAGE HEADING: prints the commands that are items under a heading, but not in inner lists.
page_items() {
	awk -v heading="$2" '
		/^\.S[sh] / { inside = $0 ~ "^.S[sh] " heading "$"; depth = 0; next }
		!inside { next }
		/^\.Bl/ { depth++ }
		/^\.El/ { depth-- }
		/^\.It Cm / && depth == 1 { for (i = 3; i <= NF; i++) if ($i != ",") print $i }' "$1"
}

# EXAMPLES stand early, for those who look for a command; mandoc wants them late.
if command -v mandoc >/dev/null; then
	for page in "$man"/*.[1-8]; do
		test_ok "${page##*/} is well formed, and fits into 80 columns" \
			'mandoc -Tlint -W warning "$page" >lint || :
			! grep -v "sections out of conventional order" lint || false
			[ "$(sed -n 2p "$page" | cut -c 1-4)" = ".Dd " ]
			mandoc -Tascii -O width=78 "$page" | sed "s/.\x08//g" >text
			[ -s text ] && ! grep -E "^.{80}" text'
	done
else
	test_skip "pages are well formed" "mandoc is not installed"
fi
for page in "$man"/*.[15]; do
	test_ok "${page##*/} has its examples behind its description" '
		grep -A 1 "^\.Sh DESCRIPTION\$" "$page" >/dev/null
		[ "$(sed -n "s/^\.Sh //p" "$page" | grep -A 1 "^DESCRIPTION\$" | tail -n 1)" = EXAMPLES ]'
done
for page in "$man"/*.[1-8]; do
	test_ok "${page##*/}: sections that it refers to are in it" '
		sed -n "s/^\.[SP][hsq] *//p" "$page" | grep -v "^Sx" | sort -u >sections
		sed -n "s/^\.\(Pq \)*Sx //p" "$page" | sed "s/ [.,:;]\$//; s/^\"\(.*\)\"\$/\1/" | sort -u >named
		missing=$(comm -13 sections named)
		[ -z "$missing" ] || { echo "no such section: $missing"; false; }'
done
test_ok "every file of share/pipedream that a page names is installed" '
	cat "$man"/*.[1-8] | sed -n "s,^\.Pa share/pipedream/\([a-z-]*/[A-Za-z_-]*\.[a-z]*\).*,share/\1,p" |
		grep -v /NAME | sort -u >files
	[ -s files ]
	while read -r file; do
		[ -e "$PD_SOURCE/$file" ] && grep -q "$file" "$PD_SOURCE/share/local.mk" ||
			{ echo "not installed: $file"; false; }
	done <files
'
test_ok "every page is installed, in README, and in SEE ALSO of pd(7)" '
	for page in "$man"/*.[1-8]; do
		name=${page##*/}
		grep -qE "man/$name( |\$)" "$man/local.mk" || { echo "not installed: $name"; false; }
		[ "$name" = pd.7 ] || grep -q "^\.Xr ${name%.*} ${name##*.}" "$man/pd.7" ||
			{ echo "not in pd(7): $name"; false; }
		grep -q "${name%.*}(${name##*.})" "$PD_SOURCE/README" || { echo "not in README: $name"; false; }
	done'
test_ok "pages have the environment variables of our own that the code reads, and no others" '
	find "$PD_SOURCE/lib" "$PD_SOURCE/bin" -name "*.[ch]*" -exec grep -ho "getenv(\"PD_[A-Z0-9_]*" {} + |
		sed "s/.*\"//" | sort -u >expected
	sed -n "/^\.Sh ENVIRONMENT/,/^\.Sh FILES/s/^\.It Ev \(PD_[A-Z0-9_]*\)\$/\1/p" "$man/pd.7" | sort >found
	same expected found
	[ -z "$(cat "$man"/*.[1-8] | grep -o "PD_[A-Z0-9_]*" | sort -u | comm -23 - expected)" ]'

# Pages have what is in the tables.  Layer kinds come with their attributes: "relu:", "linear: out_features
# bias".
test_ok "pd-model(5) has every layer kind and its attributes, and no others" '
	{ tr "\n\t" "  " <"$PD_SOURCE/lib/model/layer_kind.def"; echo; } | sed "s/LAYER_KIND/\\n&/g" |
		sed -n "s/^LAYER_KIND(\([a-z0-9_]*\), *[a-z0-9_]*, *\"[fia?+]*\", *\"\([^\"]*\)\",.*/\1: \2/p" |
		tr -d "!" | sed "s/=[^ ]*//g; s/ *\$//" >expected
	awk "/^\.Ss/ { inside = /Kinds\$/; depth = 0 }
		!inside { next }
		/^\.Bl/ { depth++ }
		/^\.El/ { depth-- }
		/^\.It Cm/ && depth == 1 { if (line) print line; line = \$3 \":\" }
		/^\.It Cm/ && depth == 2 { line = line \" \" \$3 }
		END { print line }" "$man/pd-model.5" >found
	same expected found'
test_ok "pd-plan(5) has every schedule" '
	def_names "$PD_SOURCE/lib/plan/schedule_kind.def" >expected
	page_items "$man/pd-plan.5" Schedules >found
	same expected found'
test_ok "pd-plan(5) has every start-up" '
	def_names "$PD_SOURCE/lib/plan/startup_kind.def" >expected
	page_items "$man/pd-plan.5" Start-ups >found
	same expected found'
test_ok "pd-plan(5) says where every period can come from" '
	def_names "$PD_SOURCE/lib/plan/period_kind.def" >expected
	sed -n "/^.It Cm period_from\$/,/^.El/s/^.It Cm \([a-z]*\)\$/\1/p" "$man/pd-plan.5" >found
	same expected found'
test_ok "pd-plan(5) has every kind of weights" '
	def_names "$PD_SOURCE/lib/plan/weight_kind.def" >expected
	page_items "$man/pd-plan.5" Weights >found
	same expected found'
test_ok "pd-run(1), pd-training(7) and pd-checkpoint(5) have every optimizer" '
	sed -n "s/^OPTIMIZER([A-Z0-9_]*, \([a-z0-9]*\),.*/\1/p" "$PD_SOURCE/lib/engine/device/optimizer.def" >names
	[ -s names ]
	while read -r name; do
		for page in pd-run.1 pd-training.7 pd-checkpoint.5; do
			grep -qE "^[.](Cm|Qq|It|Fl) .*\b$name\b|^[.](Cm|Qq) $name" "$man/$page" ||
				{ echo "$page: no $name"; false; }
		done
	done <names'
test_ok "pd-trace(5) has every kind of operation, with its letter" '
	sed -n "s/^OP_KIND(\([a-z_]*\), \"\(.\)\".*/\1 \2/p" "$PD_SOURCE/lib/schedule/op_kind.def" >expected
	sed -n "/^\.It Cm/{N;s/^\.It Cm \([a-z_]*\)\n\([A-Za-z]\): .*/\1 \2/p}" "$man/pd-trace.5" >found
	same expected found'

test_ok "pd-device(5) has every device that is known by name" '
	ls "$PD_DEVICES" | sed "s/\.json\$//" | sort >expected
	sed -n "/^\.Sh FILES/,\$s/^\.It Cm //p" "$man/pd-device.5" | sed "s/ , /\n/g" | sort >found
	same expected found'

test_ok "pd-machine(5) has every machine that is known by name" '
	ls "$PD_MACHINES" | sed "s/\.json\$//" | sort >expected
	sed -n "/^\.Sh FILES/,\$s/^\.It Cm //p" "$man/pd-machine.5" | sed "s/ , /\n/g" | sort >found
	same expected found'

# page_keys KIND SECTION=PREFIX...: compares pd-KIND(5) with the rows of its reader and writer (page-keys.awk).
page_keys() {
	page_kind=$1
	shift
	"$PD_BUILD/test/unit/document-keys" "$page_kind" >rows
	[ "$(wc -l <rows)" -ge 4 ] || return 1
	awk -v prefixes="$*" -v required="${required-}" -f "$PD_SOURCE/test/page-keys.awk" rows \
		"$man/pd-${page_kind%-*}.5" >differs
	[ -s differs ] || return 0
	cat differs
	return 1
}
test_ok "pd-device(5) has the keys of its rows, and no others, and says which are required" "page_keys device FORMAT="
test_ok "so has pd-machine(5)" "page_keys machine Keys="
test_ok "so has pd-profile(5)" "page_keys profile Keys= Layers=layers."
test_ok "so has pd-topology(5)" "page_keys topology Keys="
test_ok "so has pd-plan(5)" "page_keys plan Keys= Sparse_sums=sparse. Stages=stages. Predictions=predicted. \
	Alternatives=predicted.alternatives."
test_ok "pd-checkpoint(5) has the keys of its rows" "required=no page_keys checkpoint The_document=,stages."
test_ok "so has pd-trace(5)" "page_keys trace Header= && page_keys trace-record Operations="
test_ok "so has pd-schedule(5)" "page_keys schedule Header= && page_keys schedule-operation Operations="
test_ok "whose repeated operations have the same keys, but for their rank" '
	status 1 page_keys schedule-block Operations=operations. What_is_repeated= >alone
	[ "$(cat alone)" = "in the page alone: operations.rank" ]'
# A reader lists the keys that it expects when it meets another one.
for kind in model profile topology plan schedule trace; do
	test_ok "pd-$kind(5) has every key" '
		rm -rf bad
		mkdir bad
		"$PD_BUILD/test/unit/malform" "$PD_SOURCE"/test/data/small-$kind.json* bad 1 unknown-key
		status 2 "$reader" $kind bad/* 2>err
		sed -n "s/.*expected one of //p" err | tr -d " " | tr "," "\n" | sort -u >keys
		[ "$(wc -l <keys)" -ge 5 ]
		case $kind in
		plan | schedule | trace) pages=$(echo "$man"/pd-*.5) ;;
		profile) pages="$man/pd-profile.5 $man/pd-model.5" ;;
		*) pages=$man/pd-$kind.5 ;;
		esac
		cat $pages | sed -n "s/^\.It Cm //p" | tr -d "\"" | tr " ," "\n\n" | sort -u >items
		missing=$(comm -23 keys items)
		[ -z "$missing" ] || { echo "not in the page: $missing"; false; }'
	test_ok "the example in pd-$kind(5) is one" '
		awk "/^\.Sh/ { inside = /EXAMPLES/ }
			/^\.Ed/ { if (copy) exit }
			copy { printf \"%s%s\", /^ / || NR == first ? \"\" : \"\\n\", \$0 }
			inside && /^\.Bd/ { copy = 1; first = NR + 1 }
			END { print \"\" }" "$man/pd-$kind.5" >example    # a line goes on behind a space
		[ -s example ]
		"$reader" $kind example >out'
done
test_ok "the example in pd-checkpoint(5) is JSON" '
	awk "/^\.Bd/ { inside = 1; next } /^\.Ed/ { inside = 0 } inside && /^[{} ]/" "$man/pd-checkpoint.5" |
		sed -n "/^{/,/^}/p" | jq -e ".format == \"pd-checkpoint\" and (.stages | length == 2)"'
test_ok "the string in pd-topology(5) is the document above it" '
	"$reader" topology "$(sed -n "s/^\.Dl //p" "$man/pd-topology.5")" | grep -o "\"levels.*" >one
	awk "/^\.Bd/ { copy = 1; next } /^\.Ed/ { exit } copy" "$man/pd-topology.5" >doc
	"$reader" topology doc | grep -o "\"levels.*" >two
	same one two'
test_ok "the machine of several kinds in pd-topology(5) is one" '
	awk "/^\.Bd/ { n++; next } /^\.Ed/ { inside = 0 } n == 2 && /^{/ { inside = 1 } inside" \
		"$man/pd-topology.5" >doc
	"$reader" topology doc | grep "v100-16"'

# examples WHAT: runs commands from standard input, one after the other in one directory.
examples() {
	mkdir -p examples examples/Qwen3
	[ -e examples/Qwen3/config.json ] ||
		cp "$PD_SOURCE/test/data/small-config.json" examples/Qwen3/config.json
	cp "$PD_SOURCE/test/data/tutorial/net.onnx" examples
	unmade=         # It has what skipped commands would have written.
	ln -s "$PD_SOURCE/share" examples/share
	python=
	python3 -c "import torch, onnxscript, safetensors" 2>python.err && python=yes
	while read -r line; do
		data=$(echo "$line" | grep -o '/usr/share/[^ ]*' | head -n 1)
		missing=
		for word in $(echo "$line" | tr '|' '\n' | awk '{ print $1 }'); do
			case $word in
			pd-*) [ -x "$PD_BUILD/bin/$word" ] || missing=$word ;;
			esac
		done
		for word in $unmade; do
			case " $line " in
			*" $word "*) data=$word ;;
			esac
		done
		case $line in
		"python3 "*) [ "$python" ] || missing=$line ;;
		esac
		if [ -n "$missing" ] && [ "$missing" = "$line" ]; then
			test_skip "$1: $line" "python3 has no torch with onnxscript and safetensors"
		elif [ -n "$missing" ]; then
			test_skip "$1: $line" "$missing is not built"
		elif [ -n "$data" ] && ! [ -e "$data" ]; then
			test_skip "$1: $line" "there is no $data"
			unmade="$unmade $(echo "$line" | sed -n 's/.*--trace=\([^ ]*\).*/\1/p')"
		else
			test_ok "$1: $line" 'cd examples && eval "$line"'
		fi
	done
	rm -rf examples
}

# An option becomes a line such as "f format", from --help and from the page.
for page in "$man"/*.1; do
	program=$(basename "$page" .1)
	if ! [ -x "$PD_BUILD/bin/$program" ]; then
		test_skip "$program" "it is not built"
		continue
	fi
	test_ok "$program: the options in --help are those in the page, in one order" '
		"$program" --help | sed -n "s/^  \(-\([a-zA-Z]\),\|   \) --\([a-z0-9-]*\).*/\2 \3/p" >expected
		sed "s/\\\\-/-/g" "$page" | awk "/^\.It Fl/ {
			letter = \"\"
			for (i = 2; i <= NF; i++)
				if (\$i == \"Fl\" && \$(i + 1) !~ /^-/)
					letter = \$(i + 1)
				else if (\$i == \"Fl\") {
					print letter \" \" substr(\$(i + 1), 2)
					letter = \"\"
				}
		}" >found
		same expected found'
	test_ok "$program: what an option needs, and what does not go with it, is in its item" '
		"$program" --help | awk "/^[^ ]/ { option = \"\" }
			/^  (-.,|   ) --/ { option = substr(\$0, 9); sub(/[^a-z0-9-].*/, \"\", option) }
			option { text[option] = text[option] \" \" substr(\$0, 35) }
			END { for (o in text)
				if (match(text[o], /; ([a-z ]+: )?(needs|not with|only with) --.*/)) {
					n = split(substr(text[o], RSTART), word, /[ ,;=]+/)
					for (w = 1; w <= n; w++)
						if (word[w] ~ /^--/)
							print o, substr(word[w], 3)
				} }" | sort -u >expected
		sed "s/\\\\-/-/g" "$page" | awk "/^\.S[hs]/ { count = 0 }
			/^\.It .*Fl -/ { count = split(\$0, head, /[ ,=]+/); next }
			/(^\.| )Fl / { for (h = 1; h <= count; h++)
				if (head[h] ~ /^-./)
					for (w = 2; w <= NF; w++)
						if (\$w ~ /^-./)
							print substr(head[h], 2), substr(\$w, 2) }" | sort -u >found
		missing=$(comm -23 expected found)
		[ -z "$missing" ] || { echo "not in its item: $missing"; false; }'
	test_ok "$program: so are the groups of options" '
		"$program" --help | sed -n "s/^\([A-Z].*\):\$/\1/p" >expected
		sed -n "/^\.Sh OPTIONS/,/^\.Sh/s/^\.Ss //p" "$page" >found
		[ -s expected ] || ! [ -s found ] && diff expected found'
done

# item PAGE HEAD: prints the items whose head begins with HEAD, with numbers as programs print them.
item() {
	sed 's/\\-/-/g' "$1" | awk -v head=".It $2" '
		/^\.It / { inside = index($0 " ", head " ") == 1 || index($0, head "=") || index($0, head " Ns") }
		/^\.(El|S[hs])/ { inside = 0 }
		inside' | sed 's/2^63 - 1/9223372036854775807/g; s/2^30/1073741824/g; s/2^20/1048576/g
		s/1,048,576/1048576/g; s/1e12/1e+12/g' | tr '\n' ' '
}
while read -r program option page key; do
	test_ok "$program --$option and $key in $page: the same limit, in both pages" '
		status 2 $program --$option=none 2>err
		limits=$(sed -n "s/.*number from \(.* to [^,]*\), found.*/\1/p" err)
		[ -n "$limits" ]
		letter=$($program --help | sed -n "s/^  -\(.\), --$option.*/Fl \1 , /p")
		item "$man/$program.1" "${letter}Fl -$option" >one
		item "$man/$page" "Cm $key" >two
		cat one two
		echo "[$limits]"
		grep -qF "$limits" one
		grep -qF -e " to ${limits#* to }" -e "at most ${limits#* to }" two'
done <<END
pd-model lanes pd-model.5 lanes
pd-model rope-base pd-model.5 base
pd-model dropout pd-model.5 p
pd-profile batch-size pd-profile.5 batch_size
pd-profile threads pd-profile.5 threads
pd-profile workers pd-profile.5 workers
pd-plan processors pd-topology.5 processors
pd-plan microbatches pd-plan.5 microbatches
pd-plan sparsity pd-plan.5 sparsity
pd-plan chunk pd-plan.5 chunk
pd-plan sparsity-warmup pd-plan.5 warmup
pd-plan chunks pd-plan.5 ranks
pd-schedule minibatches pd-schedule.5 minibatches
pd-replay minibatches pd-schedule.5 minibatches
pd-replay microbatches pd-plan.5 microbatches
pd-replay sparsity pd-plan.5 sparsity
pd-replay chunk pd-plan.5 chunk
pd-replay processors pd-topology.5 processors
pd-run seed pd-checkpoint.5 seed
END

# examples_of PAGE: runs the commands of the page's examples, or with `all` set those of the whole page.  A
# command goes on behind a backslash or a bar at the end of a line.
examples_of() {
	awk -v all="$all" '/^\.Sh/ { inside = all || /EXAMPLES/ }
		inside && /^\.Bd/ { literal = 1 }
		/^\.Ed/ { literal = 0; more = 0 }
		literal && (/^\$ / || more) {
			sub(/^\$ /, ""); gsub(/\\e/, "\\"); gsub(/\\-/, "-")
			more = sub(/\\$/, "") || /\|$/; printf "%s%s", $0, more ? " " : "\n"
		}' "$1" >commands
	test_ok "${1##*/}: examples set the variables that they use" '! grep "[$][A-Za-z_{]" commands'
	examples "${1##*/}" <commands
}

# The tutorial has files, behind a line .\" file: NAME.  What its Python would write comes from test/data,
# which contrib/make-tutorial-data.py makes; and the folder of Hugging Face has weights.
mkdir -p examples/Qwen3
cp "$PD_SOURCE/test/data/import/qwen3/config.json" "$PD_SOURCE/test/data/import/qwen3/model.safetensors" examples/Qwen3
cp -r "$PD_SOURCE"/test/data/tutorial/* examples
awk '/^\.\\" file: / { name = $3 }
	/^\.Ed/ { name = ""; copy = 0 }
	copy { print >"examples/" name }
	/^\.Bd/ && name { copy = 1 }' "$man/pd-tutorial.7"
all=yes examples_of "$man/pd-tutorial.7"
all=yes examples_of "$man/pd-reproduce.7"

for page in "$man"/*.[1-8]; do
	case ${page##*/} in pd-tutorial.7 | pd-reproduce.7) ;; *) all= examples_of "$page" ;; esac
done

# README's commands run with seconds in place of minutes.  A command goes on behind a bar.
awk '/^    pd-[a-z]* [^ ]/ || more {
	sub(/^ */, ""); more = /\|$/; printf "%s%s", $0, more ? " " : "\n" }' "$PD_SOURCE/README" >commands
test_ok "README has commands" '[ "$(wc -l <commands)" -ge 4 ] && grep -q "^pd-run .*--epochs=4 " commands'
sed 's/--epochs=4/--minibatches=20/; s/^pd-profile /&--iterations=3 /' commands >shorter
examples README <shorter
test_done
