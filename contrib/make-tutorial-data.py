#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes test/data/tutorial anew: what the Python of pd-tutorial(7) writes, and tokens for its last part.

    make-tutorial-data.py FOLDER

Needs torch, onnx, onnxscript and numpy."""
import array
import pathlib
import random
import re
import subprocess
import sys

import onnx

page = pathlib.Path(__file__).parent.parent / "man" / "pd-tutorial.7"
folder = pathlib.Path(sys.argv[1])
(folder / "tokens").mkdir(parents=True)
text = re.search(r'file: net\.py\n\.Bd.*?\n(.*?)\.Ed\n', page.read_text(), re.S).group(1)
subprocess.run([sys.executable, "-c", text], cwd=folder, check=True)

# Stack traces are most of a small file, and have paths of the machine that wrote it.
model = onnx.load(folder / "net.onnx")
for node in model.graph.node:
    said = [entry for entry in node.metadata_props if entry.key.startswith("pkg.torch.onnx.name_scopes") or
            entry.key.startswith("pkg.torch.onnx.class_hierarchy")]
    del node.metadata_props[:]
    node.metadata_props.extend(said)
for values in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
    del values.metadata_props[:]
onnx.save(model, folder / "net.onnx")

# Counting in steps: something that can be learned.
random.seed(1)
tokens = []
while len(tokens) < 1500:
    first = random.randrange(4)
    tokens += [1 + (first + i * (first + 1)) % 31 for i in range(8)]
for name, part in ("train", tokens[:1350]), ("val", tokens[1350:]):
    with open(folder / "tokens" / f"{name}.bin", "wb") as file:
        array.array("i", [20240520, 1, len(part)] + [0] * 253).tofile(file)
        array.array("H", part).tofile(file)
