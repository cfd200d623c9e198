#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pd-run trains on data of one's own, a .npy file for each input of the model.  Networks of several inputs
# are trained, numbers are what the files say, and what cannot be trained on is refused in one sentence.
. "${PD_SOURCE:-$(dirname "$0")/..}/test/test-lib.sh"
. "$PD_SOURCE/test/train-lib.sh"

# The second image comes in where the second of two stages begins.
cat >pairs.json <<'END'
{"format": "pd-model", "version": 1, "name": "pairs",
 "inputs": [{"name": "left", "dtype": "f32", "shape": [1, 6, 6]},
            {"name": "right eye", "dtype": "f32", "shape": [2, 6, 6]},
            {"name": "label", "dtype": "i32", "shape": []}],
 "layers": [
  {"name": "convl", "kind": "conv2d", "inputs": ["left"], "out_channels": 3, "kernel": 3},
  {"name": "bnl", "kind": "batchnorm2d", "inputs": ["convl"]},
  {"name": "tanhl", "kind": "tanh", "inputs": ["bnl"]},
  {"name": "flatl", "kind": "flatten", "inputs": ["tanhl"]},
  {"name": "convr", "kind": "conv2d", "inputs": ["right eye"], "out_channels": 3, "kernel": 3},
  {"name": "flatr", "kind": "flatten", "inputs": ["convr"]},
  {"name": "both", "kind": "concat", "inputs": ["flatl", "flatr"]},
  {"name": "fc1", "kind": "linear", "inputs": ["both"], "out_features": 12},
  {"name": "drop", "kind": "dropout", "inputs": ["fc1"], "p": 0.2},
  {"name": "fc2", "kind": "linear", "inputs": ["drop"], "out_features": 5},
  {"name": "loss", "kind": "softmax_cross_entropy", "inputs": ["fc2", "label"]}]}
END
# pairs DIRECTORY: writes 42 samples to train on, and 10 to test.
pairs() {
	mkdir "$1"
	for part in train test; do
		n=$([ $part = train ] && echo 42 || echo 10)
		mkdir "$1/$part"
		{ npy "<f4" "($n, 1, 6, 6)"; numbers $((n * 36)) "$n" | floats; } >"$1/$part/left.npy"
		{ npy "|u1" "($n, 2, 6, 6)"; idx_bytes $((n * 72)) 1 5; } >"$1/$part/right eye.npy"
		{ npy "|u1" "($n,)"; idx_bytes "$n" 1 4; } >"$1/$part/label.npy"
	done
}
pairs data
profile pairs.json 4 >pairs
# Bytes are not scaled, so at ten times this rate a worker by itself diverges within 30 minibatches.
sgd="--lr=0.001 --momentum=0.9"
for replicas in "1" "1 1" "2 1" "1 2" "1 1 1"; do
	test_ok "two images and a label, stages of $replicas: 27 minibatches of the published rule, which learn" '
		plan pairs $replicas >plan.json
		trained 27 plan.json $sgd --data=data
		jq -c "select(.event == \"evaluation\").loss" out
		jq -s -e "map(select(.event == \"evaluation\")) | map(.samples) == [10, 10, 10] and
			all(.loss < 5)" out'
done
test_ok "in 16 bits" '
	PD_TEST_DTYPE=bf16 profile pairs.json 4 >half
	plan half 1 1 >plan.json
	trained 12 plan.json $sgd --data=data'
test_ok "stopped inside an epoch and resumed: the same bits" '
	plan pairs 1 1 >plan.json
	resumed plan.json 18 4 13 -- $sgd --data=data'
test_ok "the files matter: with another image, other weights" '
	cp -r data other
	{ npy "<f4" "(42, 1, 6, 6)"; numbers $((42 * 36)) 7 | floats; } >other/train/left.npy
	rm -rf ck
	train ck plan.json $sgd --minibatches=18 --data=other >out
	! diff -r "$(at ck-whole 18)" "$(at ck 18)" >/dev/null || false'

# scaled IMAGES.idx...: prints the pixels of the last file as pd-run reads those of IDX, scaled by the first
# file.
scaled() {
	for file; do
		tail -c +17 "$file" | od -An -v -tu1 -w784
		echo end
	done | awk '
		# f32(x): returns the nearest f32, as the rounded result of one operation.
		function f32(x, s, rest) {
			if (!x)
				return 0
			s = 1
			while (x * s < 8388608 && x * s > -8388608)
				s *= 2
			x *= s
			rest = x - int(x)
			x = int(x)
			if (rest > 0.5 || (rest == 0.5 && x % 2))
				x++
			if (rest < -0.5 || (rest == -0.5 && x % 2))
				x--
			return x / s
		}
		$1 == "end" && ++sets == 1 {
			for (v = 0; v < 256; v++)
				mean += count[v] / n * (v / 255)
			for (v = 0; v < 256; v++)
				variance += count[v] / n * (v / 255 - mean) * (v / 255 - mean)
			m = f32(mean)
			d = f32(sqrt(variance))
			for (v = 0; v < 256; v++)
				value[v] = f32(f32(f32(v / 255) - m) / d)
		}
		$1 == "end" {
			last = total
			next
		}
		!sets {
			for (i = 1; i <= NF; i++)
				count[$i]++
			n += NF
		}
		{
			if (total == last)
				first = total + 0
			for (i = 1; i <= NF; i++)
				pixel[total++] = $i
		}
		END {
			for (i = first; i < total; i++)
				printf "%.17g\n", value[pixel[i]]
		}'
}
idx_data idx
mkdir same same/train same/test
{ npy "<f4" "(110, 1, 28, 28)"; scaled idx/train-images-idx3-ubyte | floats; } >same/train/image.npy
{ npy "|u1" "(110,)"; tail -c +9 idx/train-labels-idx1-ubyte; } >same/train/label.npy
{ npy "<f4" "(10, 1, 28, 28)"; scaled idx/train-images-idx3-ubyte idx/t10k-images-idx3-ubyte | floats; } \
	>same/test/image.npy
{ npy "|u1" "(10,)"; tail -c +9 idx/t10k-labels-idx1-ubyte; } >same/test/label.npy
residual_model >residual.json
profile residual.json 4 >residual
plan residual 1 1 >residual-plan
test_ok "the numbers that IDX files are read as, in .npy: the same losses and weights" '
	for data in idx same; do
		train ck-$data residual-plan --lr=0.002 --epochs=2 --data=$data --report-every=1 |
			ordered_jq -S -c "select(.event == \"progress\" or .event == \"evaluation\") |
				del(.samples_per_s)" >losses-$data
	done
	[ "$(grep -c evaluation losses-idx)" -eq 2 ]
	cmp losses-idx losses-same
	diff -r -x checkpoint.json "$(at ck-idx 54)" "$(at ck-same 54)"
	for data in idx same; do
		jq "del(.recipe.data.format, .recipe.data.path, .checksum)" "$(at ck-$data 54)/checkpoint.json" >info-$data
	done
	cmp info-idx info-same'

# refused WORDS OPTION...: checks that pd-run refuses these at once, in one sentence with the WORDS.
plan pairs 1 1 >plan.json
refused() {
	words=$1
	shift
	status 2 pd-run "$@" plan.json 2>err >out
	cat err
	one_line err && grep -q -e "^pd-run: $words" err && [ ! -s out ]
}
# spoilt FILE: makes a folder `bad` in which that file is what comes from standard input.
spoilt() {
	rm -rf bad
	cp -r data bad
	cat >"bad/$1"
}
test_ok "an input without a file" '
	rm -rf bad
	cp -r data bad
	rm "bad/train/right eye.npy"
	refused "bad/train/right eye.npy: cannot open: No such file" --data=bad
	rm -r bad/train/*
	refused "bad/train/left.npy: cannot open: No such file" --data=bad'
test_ok "a test set is needed, but with --no-evaluate" '
	rm -rf bad
	cp -r data bad
	rm -r bad/test
	refused "bad/test/left.npy: cannot open: No such file" --data=bad
	pd-run --device=cpu --threads=1 --data=bad --no-evaluate -m 2 plan.json'
test_ok "samples of another shape, or not as many" '
	{ npy "<f4" "(42, 36)"; numbers 1512 1 | floats; } | spoilt train/left.npy
	refused "bad/train/left.npy: shape (42, 36): expected (samples, 1, 6, 6)" --data=bad
	{ npy "|u1" "(41,)"; idx_bytes 41 1 4; } | spoilt train/label.npy
	refused "bad/train/label.npy: 41 samples: expected 42, as many as in bad/train/left.npy" --data=bad'
test_ok "other orders and types, with what writes the right ones" '
	{ npy "<f4" "(42, 1, 6, 6)" True; numbers 1512 1 | floats; } | spoilt train/left.npy
	refused "bad/train/left.npy: in Fortran order: .*numpy.ascontiguousarray" --data=bad
	{ npy ">f4" "(42, 1, 6, 6)"; numbers 1512 1 | floats; } | spoilt train/left.npy
	refused "bad/train/left.npy: elements of type .>f4.: .*array.astype(\"float32\")" --data=bad
	{ npy "<f4" "(42,)"; numbers 42 1 | floats; } | spoilt train/label.npy
	refused "bad/train/label.npy: elements of type .<f4.: .*array.astype(\"int32\")" --data=bad'
test_ok "a label that is no class, and where it is" '
	{ npy "|u1" "(42,)"; idx_bytes 30 1 4; printf "\005"; idx_bytes 11 1 4; } | spoilt train/label.npy
	refused "bad/train/label.npy: 5 in sample 30: expected a number from 0 to 4, for the model.s input \"label\"" \
		--data=bad'
test_ok "files that are cut off, longer than they say, or something else" '
	head -c 6000 data/train/left.npy | spoilt train/left.npy
	refused "bad/train/left.npy: truncated: expected 42 samples of 144 bytes, found 5872" --data=bad
	{ cat data/train/left.npy; echo; } | spoilt train/left.npy
	refused "bad/train/left.npy: expected the end of the file .*, found 1 more bytes" --data=bad
	echo "1.5, 2.5, 3.5" | spoilt train/left.npy
	refused "bad/train/left.npy: begins with 0x312e352c2032: .*numpy.save" --data=bad'

if python3 -c 'import numpy' 2>/dev/null; then
	test_ok "what numpy.save writes is what is read" '
		python3 -c "
import os, numpy as np
os.makedirs(\"numpy/train\"), os.makedirs(\"numpy/test\")
for part in \"train\", \"test\":
	for name, type in (\"left\", \"f8\"), (\"right eye\", \"f2\"), (\"label\", \"i8\"):
		array = np.load(f\"data/{part}/{name}.npy\")
		np.save(\"plain.npy\", array)
		assert open(\"plain.npy\", \"rb\").read() == open(f\"data/{part}/{name}.npy\", \"rb\").read()
		np.save(f\"numpy/{part}/{name}.npy\", array.astype(type))
with open(\"numpy/train/left.npy\", \"wb\") as out:
	np.lib.format.write_array(out, np.load(\"data/train/left.npy\"), (3, 0))
"
		rm -rf ck
		train ck plan.json $sgd --minibatches=18 --data=numpy >out
		diff -r "$(at ck-whole 18)" "$(at ck 18)"'
	test_ok "what numpy.savez and numpy.savez_compressed write is what is read" '
		python3 -c "
import os, numpy as np
os.makedirs(\"archives\")
one = {}
for part in \"train\", \"test\":
	arrays = {name: np.load(f\"data/{part}/{name}.npy\") for name in (\"left\", \"right eye\", \"label\")}
	np.savez_compressed(f\"archives/{part}.npz\", **arrays)
	one.update({f\"{name}_{part}\": array for name, array in arrays.items()})
one[\"y_train\"] = one.pop(\"label_train\").reshape(-1, 1).astype(\"i8\")
one[\"y_test\"] = one.pop(\"label_test\")
one[\"left_train\"] = one[\"left_train\"].reshape(42, 6, 6)
np.savez(\"one.npz\", **one)
"
		for from in archives one.npz one.npz:left,"right eye",y; do
			rm -rf ck
			train ck plan.json $sgd --minibatches=18 --data="$from" >out
			diff -r "$(at ck-whole 18)" "$(at ck 18)"
		done'
	test_ok "arrays that numpy.save writes otherwise are refused" '
		python3 -c "
import numpy as np
array = np.load(\"data/train/left.npy\")
np.save(\"fortran.npy\", np.asfortranarray(array))
np.save(\"big.npy\", array.astype(\">f4\"))
np.save(\"records.npy\", np.zeros(42, dtype=[(\"x\", \"f4\")]))
np.savez(\"many.npz\", array)
"
		for file in fortran.npy big.npy records.npy many.npz; do
			spoilt train/left.npy <$file
			refused "bad/train/left.npy: " --data=bad
		done'
else
	test_skip "what numpy.save writes" "there is no NumPy for python3"
fi
test_done
