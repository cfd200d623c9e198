# SPDX-License-Identifier: Apache-2.0
"""torch-judge.py MODEL.json DATA FROM TO STEPS [CLIP]: trains the network in PyTorch, from the
checkpoint FROM on, for STEPS minibatches, each of them all samples of DATA (IDX files, or arrays in
DATA/train/INPUT.npy), and compares with the checkpoint TO.  SGD with rate 0.2,
momentum 0.9 and weight decay 0.01.  Exit status 0: no tensor is off by more than a ten-thousandth of
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
    pixels = (pixels - pixels.mean()) / pixels.std(unbiased=False)
    return pixels.float(), torch.tensor(list(labels))


def array(file):
    """What a .npy file holds; numbers in C order."""
    data = file.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode())
    kind = {"|u1": torch.uint8, "<i4": torch.int32, "<f4": torch.float32}[header["descr"]]
    values = torch.frombuffer(bytearray(data[10 + length:]), dtype=kind).reshape(header["shape"])
    return values if kind == torch.float32 else values.long()


def samples(model, folder):
    """All samples of the inputs, by name."""
    if (pathlib.Path(folder) / "train").is_dir():
        return {given["name"]: array(pathlib.Path(folder) / "train" / f"{given['name']}.npy")
                for given in model["inputs"]}
    image, label = images(folder)
    return {"image": image.reshape(-1, *model["inputs"][0]["shape"]), "label": label}


def rotated(x, layer):
    """Rotary position embedding of (samples, positions, ..., features)."""
    size = layer.get("head_dim", x.shape[-1])
    heads = x.unflatten(-1, (-1, size))
    angle = (torch.arange(x.shape[1], dtype=torch.float64)[:, None] *
             layer.get("base", 10000) ** (-torch.arange(0, size, 2, dtype=torch.float64) / size))
    shape = [1, x.shape[1]] + [1] * (heads.dim() - 3) + [size // 2]
    cos, sin = (f(angle).float().reshape(shape) for f in (torch.cos, torch.sin))
    if layer.get("interleaved"):
        a, b = heads[..., 0::2], heads[..., 1::2]
        pairs = torch.stack((a * cos - b * sin, b * cos + a * sin), -1)
        return pairs.flatten(-2).flatten(-2)
    a, b = heads.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


def relative_bias(layer, queries, keys, weight):
    """By T5's rule: (heads, queries, keys)."""
    behind = torch.arange(queries)[:, None] - torch.arange(keys)
    half = len(weight) if layer.get("causal") else len(weight) // 2
    distance = behind.clamp(min=0) if layer.get("causal") else behind.abs()
    exact, most = half // 2, layer.get("max_distance", 128)
    far = exact + (torch.log(distance / exact) / math.log(most / exact) * (half - exact)).clamp(min=0).long()
    bucket = torch.where(distance < exact, distance, far.clamp(max=half - 1))
    if not layer.get("causal"):
        bucket = bucket + half * (behind < 0)
    return weight[bucket].permute(2, 0, 1)


def attended(layer, q, k, v, weight):
    q, k, v = (t.unflatten(-1, (n, -1)).transpose(1, 2) for t, n in
               ((q, layer["heads"]), (k, layer.get("kv_heads", layer["heads"])),
                (v, layer.get("kv_heads", layer["heads"]))))
    behind = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
    seen = (behind >= 0) & (behind < (layer.get("window") or len(behind)))
    mask = seen if layer.get("causal") else None
    if weight is not None:
        mask = relative_bias(layer, q.shape[2], k.shape[2], weight)
        if layer.get("causal"):
            mask = mask.masked_fill(~seen, -torch.inf)
    y = functional.scaled_dot_product_attention(q, k, v, mask,
                                                scale=layer.get("scale") or None, enable_gqa=True)
    return y.transpose(1, 2).flatten(-2)


def additive_attention(part, q, k, lengths):
    w = part("weight") * part("scale") / part("weight").norm()
    scores = torch.tanh(functional.linear(q, part("query_weight"))[:, :, None] + part("bias") +
                        functional.linear(k, part("key_weight"))[:, None]) @ w
    seen = (torch.arange(k.shape[1]) < lengths[:, None])[:, None]
    return (scores.masked_fill(~seen, -65504).softmax(-1) * seen) @ k


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


def by_name(layer, kind, x):
    """What PyTorch has by the kind's name, with the attributes as arguments."""
    function = getattr(functional, kind, None) or sys.exit(f"torch-judge.py: no {kind}")
    known = ("name", "kind", "inputs", "shares", "init", "frozen")
    return function(x, **{key: value for key, value in layer.items() if key not in known})


def loss_of(model, parameters, given, state):
    values, loss = dict(given), 0
    for layer in model["layers"]:
        inputs = [values[name] for name in layer["inputs"]]
        x = inputs[0]
        owner = layer.get("shares", layer["name"])
        w, b = (parameters.get(f"{owner}.{part}") for part in ("weight", "bias"))
        match layer["kind"]:
            case "conv1d" | "conv2d" as kind:
                how = {name: layer.get(name, 0 if name == "padding" else 1)
                       for name in ("stride", "padding", "dilation", "groups")}
                x = getattr(functional, kind)(x, w, b, **how)
            case "groupnorm":
                x = functional.group_norm(x, layer["num_groups"], w, b, layer.get("eps", 1e-5))
            case "prelu":
                x = functional.prelu(x, w)
            case "linear":
                x = functional.linear(x, w, b)
            case "layernorm":
                x = functional.layer_norm(x, w.shape, w, b)
            case "rmsnorm":
                x = functional.rms_norm(x, w.shape, w, layer.get("eps"))
            case "embedding":
                x = functional.embedding(x, w, layer.get("padding_idx"))
            case "position_embedding":
                x = x + w[:x.shape[1]]
            case "upsample":
                x = functional.interpolate(x, **{
                    key: layer[key] for key in ("size", "scale_factor", "mode", "align_corners")
                    if key in layer})
            case "conv_transpose2d":
                x = functional.conv_transpose2d(x, w, b, **{
                    key: layer[key] for key in ("stride", "padding", "output_padding", "groups", "dilation")
                    if key in layer})
            case "parameter":
                x = w.expand(len(x), *w.shape)
            case "softmax":
                x = x.softmax(layer.get("dim", -1))
            case "rope":
                x = rotated(x, layer)
            case "attention":
                x = attended(layer, *inputs[:3], w)
            case "additive_attention":
                x = additive_attention(lambda part: parameters[f"{layer['name']}.{part}"], *inputs)
            case "lstm":
                x = lstm(layer, x, inputs[1] if len(inputs) > 1 else None, parameters, state)
            case "add":
                x = sum(inputs[1:], x)
            case "mul":
                x = x * inputs[1]
            case "concat":
                x = torch.cat(inputs, layer.get("dim", 1))
            case "slice":
                start = layer.get("start", 0)
                end = layer.get("end", x.shape[layer["dim"]])
                x = x.narrow(layer["dim"], start, end - start)
            case "transpose":
                x = x.transpose(layer["dim0"], layer["dim1"])
            case "reshape":
                shape = layer["shape"]
                x = x.reshape([len(x)] + (shape if isinstance(shape, list) else [shape]))
            case "mean":
                x = x.mean(layer["dim"], keepdim=layer.get("keepdim", False))
            case "flatten":
                x = x.flatten(1)
            case "softmax_cross_entropy":
                x = functional.cross_entropy(
                    x.flatten(0, -2), inputs[1].flatten().long(),
                    ignore_index=layer.get("ignore_index", -100),
                    label_smoothing=layer.get("label_smoothing", 0))
                loss = loss + x
            case "mse":
                other = inputs[1] if len(inputs) > 1 else torch.zeros_like(x)
                x = layer.get("weight", 1) * functional.mse_loss(x, other)
                loss = loss + x
            case kind:
                x = by_name(layer, kind, x)
        values[layer["name"]] = x
    return loss


def main():
    model = json.load(open(sys.argv[1], encoding="utf-8"))
    given = samples(model, sys.argv[2])
    before, after = tensors(sys.argv[3]), tensors(sys.argv[4])
    clip = float(sys.argv[6]) if len(sys.argv) > 6 else math.inf
    state = {name: values for name, values in before.items() if name.endswith((".hidden", ".cell"))}
    frozen = {layer["name"] for layer in model["layers"] if layer.get("frozen")}
    parameters, still = {}, {}
    for name, values in before.items():
        if name.rsplit(".", 1)[0] in frozen:
            still[name] = values
        elif not name.endswith(".velocity") and name not in state:
            parameters[name] = values.requires_grad_()
    sgd = torch.optim.SGD(parameters.values(), lr=0.2, momentum=0.9, weight_decay=0.01)
    for name, values in parameters.items():
        sgd.state[values]["momentum_buffer"] = before[name + ".velocity"].clone()
    for _ in range(int(sys.argv[5])):
        sgd.zero_grad()
        loss = loss_of(model, parameters | still, given, state)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        sgd.step()
    print(f"loss {loss.item():.6f}, norm {norm:.6f}")
    worst = sum(not torch.equal(values, after[name]) for name, values in still.items())
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
