# SPDX-License-Identifier: Apache-2.0
"""PyTorch trains the network of a plan, in float64, as the plan's rule for weight versions says.

    pytorch-judge.py make MODEL.json SAMPLES DATA INIT.safetensors CHECKPOINT
        makes up data, a .npy file for each input, and parameters like those of a checkpoint
    pytorch-judge.py judge PLAN.json DATA INIT.safetensors CHECKPOINT [rate=R] [late=N] [single]
        trains one epoch with SGD (rate 0.02 if not R, momentum 0.9) in the order of pd-run's seed 1, and
        compares with what pd-run ended with

Exit status 0: no tensor is off by more than a ten-thousandth of its largest element; 4: one is.
late=N breaks the rule on purpose: every stage but the last then reads versions N updates older.
single: also says how far PyTorch's own float32 is off, which is what rounding alone makes."""
import json
import math
import os
import pathlib
import struct
import sys

import torch
from torch import nn
from torch.nn import functional

MOMENTUM = 0.9
real = torch.float64             # what is computed in
NPY = {torch.float32: ("<f4", "f"), torch.int32: ("<i4", "i")}


# ---- files ----

def save_npy(name, array):
    code, letter = NPY[array.dtype]
    shape = "(" + "".join(f"{size}, " for size in array.shape) + ")"
    text = f"{{'descr': '{code}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    values = array.flatten().tolist()
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode())
        out.write(struct.pack(f"<{len(values)}{letter}", *values))


def load_npy(name, shape, dtype):
    data = pathlib.Path(name).read_bytes()
    at = 10 + struct.unpack("<H", data[8:10])[0]
    return torch.frombuffer(bytearray(data[at:]), dtype=dtype).reshape([-1] + shape)


def save_safetensors(name, tensors):
    header, at = {}, 0
    for key, values in tensors.items():
        header[key] = {"dtype": "F32", "shape": list(values.shape),
                       "data_offsets": [at, at + 4 * values.numel()]}
        at += 4 * values.numel()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(name, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            out.write(struct.pack(f"<{values.numel()}f", *values.flatten().tolist()))


def load_safetensors(name):
    data = pathlib.Path(name).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    found = {}
    for key, about in json.loads(data[8:8 + length]).items():
        if key == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in about["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        found[key] = values.reshape(about["shape"]).to(real)
    return found


def parameters_of(checkpoint):
    found = {}
    for file in sorted(pathlib.Path(checkpoint).glob("stage-*.safetensors")):
        found.update(load_safetensors(file))
    # moments and states are no parameters; copies of a shared weight have the owner's name
    return {name: values for name, values in found.items()
            if not name.endswith((".velocity", ".hidden", ".cell"))}


# ---- layers: each takes (layer, inputs, parameter(name), state) and returns its output ----

def lstm_of(layer, inputs, parameter, state):
    x = inputs[0]
    both = layer.get("bidirectional", False)
    names = [f"{part}_l0{way}" for way in ("", "_reverse")[:1 + both]
             for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    module = nn.LSTM(x.shape[-1], layer["hidden_size"], batch_first=True, bidirectional=both,
                     dtype=real)
    values = {name: parameter(name) for name in names}
    # one bias: the other stays zero
    values = {name: torch.zeros(4 * layer["hidden_size"], dtype=real)
              if value is None else value for name, value in values.items()}
    arguments = (x,)
    if len(inputs) > 1:
        arguments = (nn.utils.rnn.pack_padded_sequence(
            x, inputs[1].long(), batch_first=True, enforce_sorted=False),)
    elif layer.get("lanes", 0) and layer["name"] in state:
        arguments = (x, state[layer["name"]])
    out, last = torch.func.functional_call(module, values, arguments)
    state[layer["name"]] = tuple(part.detach() for part in last)
    if len(inputs) > 1:
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
    return out


def attention_of(layer, inputs, parameter, state):
    heads, kv = layer["heads"], layer.get("kv_heads", layer["heads"])
    q, k, v = (x.unflatten(-1, (count, -1)).transpose(1, 2)
               for x, count in zip(inputs, (heads, kv, kv)))
    mask = None
    if len(inputs) > 3:
        mask = (torch.arange(k.shape[2]) < inputs[3][:, None])[:, None, None, :]
    if layer.get("window"):
        behind = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        mask = (behind >= 0) & (behind < layer["window"]) & (True if mask is None else mask)
    out = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=layer.get("causal", False) and not layer.get("window"),
        enable_gqa=kv != heads, scale=layer.get("scale"))
    return out.transpose(1, 2).flatten(2)


def additive_attention_of(layer, inputs, parameter, state):
    """As GNMT has it: normalised, over the keys before each sample's length."""
    query, keys = inputs[0] @ parameter("query_weight").T, inputs[1] @ parameter("key_weight").T
    v = parameter("weight")
    v = parameter("scale") * v / v.norm()
    scores = torch.tanh(query[:, :, None] + keys[:, None] + parameter("bias")) @ v
    if len(inputs) > 2:
        beyond = torch.arange(keys.shape[1]) >= inputs[2][:, None]
        scores = scores.masked_fill(beyond[:, None, :], -math.inf)
    return scores.softmax(-1) @ inputs[1]


def rope_of(layer, inputs, parameter, state):
    """Half-split, as the Hugging Face hub's Llama."""
    x = inputs[0].unflatten(-1, (-1, layer["head_dim"]))
    half = layer["head_dim"] // 2
    step = layer["base"] ** (-torch.arange(half, dtype=real) / half)
    low, high = layer.get("low_freq_factor", 1), layer.get("high_freq_factor", 4)
    whole = (layer.get("original_positions", 0) * step / (2 * math.pi) - low) / (high - low)
    step = torch.lerp(step / layer.get("factor", 1), step, whole.clamp(0, 1))
    angle = torch.arange(x.shape[1], dtype=real)[:, None] * step
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).flatten(2)


def mse_of(layer, inputs, parameter, state):
    return layer.get("weight", 1) * functional.mse_loss(
        inputs[0], inputs[1] if len(inputs) > 1 else torch.zeros_like(inputs[0]))


def loss_of(layer, inputs, parameter, state):
    return functional.cross_entropy(
        inputs[0].flatten(0, -2), inputs[1].long().flatten(),
        ignore_index=layer.get("ignore_index", -100),
        label_smoothing=layer.get("label_smoothing", 0))


KINDS = {
    "embedding": lambda l, x, p, s: functional.embedding(x[0].long(), p("weight"),
                                                         padding_idx=l.get("padding_idx")),
    "position_embedding": lambda l, x, p, s: x[0] + p("weight")[:x[0].shape[1]],
    "linear": lambda l, x, p, s: functional.linear(x[0], p("weight"), p("bias")),
    "bias": lambda l, x, p, s: x[0] + p("bias"),
    "layernorm": lambda l, x, p, s: functional.layer_norm(x[0], x[0].shape[-1:], p("weight"),
                                                          p("bias")),
    "rmsnorm": lambda l, x, p, s: functional.rms_norm(x[0], x[0].shape[-1:], p("weight"), l["eps"]),
    "gelu": lambda l, x, p, s: functional.gelu(x[0], approximate=l.get("approximate", "none")),
    "silu": lambda l, x, p, s: functional.silu(x[0]),
    "tanh": lambda l, x, p, s: torch.tanh(x[0]),
    "add": lambda l, x, p, s: sum(x[1:], x[0]),
    "mul": lambda l, x, p, s: x[0] * x[1],
    "concat": lambda l, x, p, s: torch.cat(x, l.get("dim", 1)),
    "slice": lambda l, x, p, s: x[0].transpose(0, l["dim"])[l.get("start", 0):l.get("end")].transpose(
        0, l["dim"]),
    "flatten": lambda l, x, p, s: x[0].flatten(1),
    "rope": rope_of, "lstm": lstm_of, "attention": attention_of,
    "additive_attention": additive_attention_of, "softmax_cross_entropy": loss_of,
    "mse": mse_of,
}


def forward(model, values, parameters, state):
    """The sum of all losses."""
    values, total = dict(values), 0
    for layer in model["layers"]:
        def parameter(name, layer=layer):
            own = parameters.get(f"{layer['name']}.{name}")
            return own if own is not None else parameters.get(f"{layer.get('shares')}.{name}")
        out = KINDS[layer["kind"]](layer, [values[name] for name in layer["inputs"]], parameter, state)
        values[layer["name"]] = out
        if layer["kind"] in ("softmax_cross_entropy", "mse"):
            total = total + out
    return total


# ---- what is made up ----

def limits(model):
    """Input name -> numbers that it may have, from the layers that take it."""
    found = {}
    width = {entry["name"]: entry["shape"][-1] if entry["shape"] else 1 for entry in model["inputs"]}
    length = {entry["name"]: entry["shape"][0] if entry["shape"] else 1 for entry in model["inputs"]}
    for layer in model["layers"]:
        first, rest = layer["inputs"][0], layer["inputs"][1:]
        width[layer["name"]] = layer.get("out_features", layer.get("embedding_dim", width[first]))
        length[layer["name"]] = length[first]
        if layer["kind"] == "embedding":
            found[first] = (0, layer["num_embeddings"])
        elif layer["kind"] == "softmax_cross_entropy":
            found[rest[0]] = (0, width[first])
        elif layer["kind"] in ("lstm", "attention", "additive_attention"):
            for name in rest:
                if name.endswith("length"):
                    found[name] = (1, length[rest[0] if len(rest) > 1 else first] + 1)
    return found


def make(model, samples, data, init, shapes):
    torch.manual_seed(7)
    ranges = limits(model)
    for part in "train", "test":
        os.makedirs(f"{data}/{part}", exist_ok=True)
        for entry in model["inputs"]:
            shape = [samples] + entry["shape"]
            values = torch.randint(*ranges[entry["name"]], shape, dtype=torch.int32) \
                if entry["dtype"] == "i32" else torch.randn(shape)
            save_npy(f"{data}/{part}/{entry['name']}.npy", values)
    save_safetensors(init, {name: 1 + torch.randn(shape) * 0.1
                            if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "ln.weight",
                                              "norm.weight", ".scale")) else torch.randn(shape) * 0.2
                            for name, shape in shapes.items()})


# ---- the order of samples, as pd-run(1) describes it ----

def philox(seed, counter):
    c, k = list(counter), [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xffffffff, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xffffffff]
        k = [k[0] + 0x9E3779B9 & 0xffffffff, k[1] + 0xBB67AE85 & 0xffffffff]
    return c[0]


def order_of(samples, seed):
    order = list(range(samples))
    for i in range(samples - 1, 0, -1):
        attempt = 0
        while (value := philox(seed, (i, attempt, 0, 3))) < 2 ** 32 % (i + 1):
            attempt += 1
        j = value % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def lanes_order(samples, lanes):
    """Place n belongs to lane n mod lanes, each of which goes through a part of its own."""
    each = samples // lanes
    return [n % lanes * each + n // lanes for n in range(each * lanes)]


# ---- training ----

def version(plan, stage, microbatch, late):
    """The update of the stage after which its parameters are read."""
    group = plan.get("microbatches", 1)
    last = stage == len(plan["stages"]) - 1
    ahead = {"stash": microbatch - plan["stages"][stage]["warmup"],
             "2bw": microbatch // group - 1 if plan["weights"] == "2bw" else 0,
             "flush": microbatch // group}[plan["weights"]]
    if plan["weights"] == "stash":
        ahead = math.floor(ahead / group)
    return max(0, ahead - (0 if last else late))


def train(plan, data, init, rate, late):
    model = plan["profile"]["model"]
    batch, group = plan["profile"]["batch_size"], plan.get("microbatches", 1)
    sets = {entry["name"]: load_npy(f"{data}/train/{entry['name']}.npy", entry["shape"],
                                    torch.int32 if entry["dtype"] == "i32" else torch.float32)
            for entry in model["inputs"]}
    sets = {name: values.to(real) if values.dtype == torch.float32 else values
            for name, values in sets.items()}
    samples = len(next(iter(sets.values())))
    lanes = max([layer.get("lanes", 0) for layer in model["layers"]])
    order = lanes_order(samples, lanes) if lanes else order_of(samples, 1)
    stage_of = {name: s for s, stage in enumerate(plan["stages"]) for name in stage["layers"]}
    versions, velocity = [load_safetensors(init)], {}
    # lanes are the samples of a minibatch, so each of its microbatches has its own
    states = [{} for _ in range(group)]
    for step in range(samples // (batch * group)):
        gradients = {}
        for microbatch in range(step * group, (step + 1) * group):
            chosen = order[microbatch * batch:(microbatch + 1) * batch]
            parameters = {name: versions[version(plan, stage_of[name.rsplit(".", 1)[0]], microbatch,
                                                 late)][name].clone().requires_grad_()
                          for name in versions[0]}
            loss = forward(model, {name: values[chosen] for name, values in sets.items()},
                           parameters, states[microbatch % group])
            loss.backward()
            for name, values in parameters.items():
                if values.grad is not None:
                    gradients[name] = gradients.get(name, 0) + values.grad / group
        after = {}
        for name, values in versions[-1].items():
            velocity[name] = MOMENTUM * velocity.get(name, 0) + gradients.get(name, 0)
            after[name] = values - rate * velocity[name]
        versions.append(after)
    return versions[-1], loss.item()


def farthest(found, expected):
    """The largest difference in a tensor over that tensor's largest element, and where."""
    worst, where = 0, None
    for name, values in expected.items():
        off = ((values - found[name]).abs().max() / values.abs().max()).item()
        if not off <= worst:
            worst, where = off, name
    return worst, where


def judge(plan, data, init, checkpoint, options):
    global real
    how = float(options.get("rate", 0.02)), int(options.get("late", 0))
    expected, loss = train(plan, data, init, *how)
    worst, where = farthest(parameters_of(checkpoint), expected)
    print(f"loss {loss:.6f}, off by {worst:.1e} at most ({where})", end="")
    if "single" in options:
        real = torch.float32
        print(", PyTorch's float32 by {:.1e} ({})".format(
            *farthest(train(plan, data, init, *how)[0], expected)), end="")
    print()
    return 0 if worst <= 1e-4 else 4


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "make":
        model = json.load(open(sys.argv[2], encoding="utf-8"))
        shapes = {name: list(values.shape) for name, values in parameters_of(sys.argv[6]).items()}
        make(model, int(sys.argv[3]), sys.argv[4], sys.argv[5], shapes)
        return 0
    plan = json.load(open(sys.argv[2], encoding="utf-8"))
    options = dict((word + "=").split("=")[:2] for word in sys.argv[6:])
    return judge(plan, sys.argv[3], sys.argv[4], sys.argv[5], options)


if __name__ == "__main__":
    sys.exit(main())
