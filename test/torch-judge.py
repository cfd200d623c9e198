# SPDX-License-Identifier: Apache-2.0
"""torch-judge.py MODEL.json DATA FROM TO STEPS [CLIP]: trains the network in PyTorch, from the
checkpoint FROM on, for STEPS minibatches, each of them all samples of DATA (images as IDX files, or a
.npy file for each input), and compares with the checkpoint TO.  SGD with rate 0.2, momentum 0.9 and weight decay 0.01.  Knows the kinds of
layer that test/t4013-torch.sh has.  Exit status 0: no tensor is off by more than a ten-thousandth of
its largest element; 4: one is."""
import ast
import json
import math
import pathlib
import struct
import sys

import torch
from torch.nn import functional


def tensors(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("stage-*.safetensors")):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, about in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in about["data_offsets"])
            values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
            found[name] = values.reshape(about["shape"]).clone()
    return found


def images(folder):
    data = (pathlib.Path(folder) / "train-images-idx3-ubyte").read_bytes()
    count, rows, columns = struct.unpack(">3I", data[4:16])
    pixels = torch.tensor(list(data[16:]), dtype=torch.float64).reshape(count, 1, rows, columns) / 255
    labels = (pathlib.Path(folder) / "train-labels-idx1-ubyte").read_bytes()[8:]
    pixels = (pixels - pixels.mean()) / pixels.std(correction=0)
    return pixels.float(), torch.tensor(list(labels))


def array(file):
    data = file.read_bytes()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    about = ast.literal_eval(data[10:begin].decode())
    kind = {"<f4": torch.float32, "|u1": torch.uint8}[about["descr"]]
    values = torch.frombuffer(bytearray(data[begin:]), dtype=kind).reshape(about["shape"])
    return values if kind == torch.float32 else values.long()


def inputs_of(model, folder):
    names = [about["name"] for about in model["inputs"]]
    arrays = pathlib.Path(folder) / "train"
    if arrays.is_dir():
        return {name: array(arrays / f"{name}.npy") for name in names}
    return dict(zip(names, images(folder)))


def lstm(layer, x, lengths, parameters, state):
    """Of a layer with lanes the state of all of them is in `state`, and is left there."""
    names = {name.removeprefix(layer["name"] + "."): values for name, values in parameters.items()
             if name.startswith(layer["name"] + ".")}
    module = torch.nn.LSTM(x.shape[2], layer["hidden_size"], batch_first=True,
                           bias=layer.get("bias", True),
                           bidirectional=layer.get("bidirectional", False))
    first = None
    if layer.get("lanes"):
        first = tuple(state[f"{layer['name']}.{part}"].unsqueeze(0) for part in ("hidden", "cell"))
    packed = x if lengths is None else torch.nn.utils.rnn.pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False)
    out, last = torch.func.functional_call(module, names, (packed, first))
    if layer.get("lanes"):
        for part, values in zip(("hidden", "cell"), last):
            state[f"{layer['name']}.{part}"] = values.squeeze(0).detach()
    return out if lengths is None else torch.nn.utils.rnn.pad_packed_sequence(
        out, batch_first=True, total_length=x.shape[1])[0]


def loss_of(model, parameters, inputs, state):
    values, loss = dict(inputs), 0
    for layer in model["layers"]:
        x = values[layer["inputs"][0]]
        w, b = (parameters.get(f"{layer['name']}.{part}") for part in ("weight", "bias"))
        match layer["kind"]:
            case "conv2d":
                x = functional.conv2d(x, w, b, stride=layer["stride"])
            case "linear":
                x = functional.linear(x, w, b)
            case "layernorm":
                x = functional.layer_norm(x, w.shape, w, b)
            case "lstm":
                lengths = values[layer["inputs"][1]] if len(layer["inputs"]) > 1 else None
                x = lstm(layer, x, lengths, parameters, state)
            case "tanh":
                x = torch.tanh(x)
            case "flatten":
                x = x.flatten(1)
            case "softmax_cross_entropy":
                x = functional.cross_entropy(x, values[layer["inputs"][1]])
                loss = loss + x
            case kind:
                sys.exit(f"torch-judge.py: no {kind}")
        values[layer["name"]] = x
    return loss


def main():
    model = json.load(open(sys.argv[1], encoding="utf-8"))
    inputs = inputs_of(model, sys.argv[2])
    before, after = tensors(sys.argv[3]), tensors(sys.argv[4])
    clip = float(sys.argv[6]) if len(sys.argv) > 6 else math.inf
    state = {name: values for name, values in before.items() if name.endswith((".hidden", ".cell"))}
    parameters = {name: values.requires_grad_() for name, values in before.items()
                  if not name.endswith(".velocity") and name not in state}
    sgd = torch.optim.SGD(parameters.values(), lr=0.2, momentum=0.9, weight_decay=0.01)
    for name, values in parameters.items():
        sgd.state[values]["momentum_buffer"] = before[name + ".velocity"].clone()
    for _ in range(int(sys.argv[5])):
        sgd.zero_grad()
        loss = loss_of(model, parameters, inputs, state)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        sgd.step()
    print(f"loss {loss.item():.6f}, norm {norm:.6f}")
    worst = 0
    for name, values in parameters.items():
        for mine, theirs in ((values, after[name]),
                             (sgd.state[values]["momentum_buffer"], after[name + ".velocity"])):
            off = ((mine - theirs).abs().max() / mine.abs().max()).item()
            worst = max(worst, off)
            print(f"{name}: off by {off:.2e}")
    for name, values in state.items():
        off = ((values - after[name]).abs().max() / values.abs().max()).item()
        worst = max(worst, off)
        print(f"{name}: off by {off:.2e}")
    sys.exit(0 if worst <= 1e-4 else 4)


main()
