# SPDX-License-Identifier: Apache-2.0
"""Makes test/data/import anew: small networks as people have them, each in a folder of its own.

    make-import-data.py FOLDER

A folder has a config.json and model.safetensors (or shards with an index) as transformers writes them, or
model.onnx; arrays for each input, in train and test; and expected.json: PyTorch's loss of the test set in
float64, the same after so many updates by the whole training set, how these were made, and the number of
parameters.  refused.onnx is what torch.onnx.export makes by default.

Needs torch, torchvision, transformers, onnx, onnxscript and numpy.  Numbers are drawn with fixed seeds; with
other versions of these other files may come out."""
import json
import os
import pathlib
import shutil
import sys

import onnx
import torch
import transformers

import import_networks as networks

# Two layers where something counts layers, one elsewhere, since the repository carries these files.
LAYERS = {"gpt2": 2, "llama": 2}
SHARDED = {"llama": "9KB"}
HALF = {"qwen2"}
# These say of each node which module it is of, as the exporter has it; the larger ones would grow by half.
SCOPES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
SCOPED = {"convnet", "gpt", "unet"}


def hugging_face(name, folder):
    case = networks.hugging_face_case(name, *networks.hugging_face(LAYERS.get(name, 1))[name])
    case.save(folder, SHARDED.get(name, "1GB"), torch.bfloat16 if name in HALF else torch.float32)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return case


def smaller(file, kept):
    """Drops what is said of nodes but what is kept.  Stack traces are most of a small file, and have paths
    of the machine that wrote it."""
    model = onnx.load(file, load_external_data=False)
    for node in model.graph.node:
        said = [entry for entry in node.metadata_props if entry.key in kept]
        del node.metadata_props[:]
        node.metadata_props.extend(said)
    for values in list(model.graph.value_info) + list(model.graph.input) + list(model.graph.output):
        del values.metadata_props[:]
    onnx.save(model, file)


def of_onnx(name, make, draw, folder):
    case = networks.onnx_case(name, make, draw)
    networks.write_onnx(case, folder / "model.onnx", external=name == "gpt")
    smaller(folder / "model.onnx", SCOPES if name in SCOPED else ())
    if name == "convnet":
        networks.write_onnx(case, folder / "refused.onnx", recipe=False)
        smaller(folder / "refused.onnx", SCOPES)
    return case


def finish(case, folder):
    case.write_samples(folder)
    case.write_expected(folder)
    said = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{case.name}: {said['parameters']} parameters, loss {said['loss']:.6f}, "
          f"trained {said['trained']:.6f}, {size} bytes")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    top = pathlib.Path(sys.argv[1])
    for name in networks.hugging_face():
        folder = fresh(top / name)
        finish(hugging_face(name, folder), folder)
    for name, (make, draw) in networks.small_onnx().items():
        folder = fresh(top / name)
        finish(of_onnx(name, make, draw, folder), folder)


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


if __name__ == "__main__":
    main()
