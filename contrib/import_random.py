# SPDX-License-Identifier: Apache-2.0
"""Random small modules, each exported as pd-model(1) says and judged: the loss of its samples and one update by it
against PyTorch in float64.  What pd-model refuses is counted by its reason.

    import_random.py COUNT [SEED [KEEP]]        judges COUNT modules, from that seed on (1); KEEP: a folder in
                                                which those that are wrong stay (wrong)

PATH has the programs.  Exit status 4: a module was taken and is wrong."""
import collections
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

BATCH, PLACES, FEATURES, TOKENS, CLASSES = 4, 6, 8, 12, 5
SIDE = 8
WIDTH = 4                                       # channels of an image


class Net(nn.Module):
    """Steps, one behind the other; each is a function of the module and what came before."""

    def __init__(self, rng):
        super().__init__()
        self.rng, self.steps, self.said, self.number = rng, [], [], 0

    def name(self, what):
        self.number += 1
        return f"{what}{self.number}"

    def layer(self, module, what="l"):
        name = self.name(what)
        self.add_module(name, module)
        return lambda s: getattr(s, name)

    def tensor(self, *shape, positive=False, how=None):
        """A parameter, a buffer that is saved or not, or an attribute."""
        values = torch.randn(shape) * 0.5
        values = values.abs() + 0.6 if positive else values + 0.3
        how = how or self.rng.choice(["parameter"] * 4 + ["buffer", "buffer", "transient", "plain"])
        name = self.name(how[:2])
        if how == "parameter":
            self.register_parameter(name, nn.Parameter(values))
        elif how == "plain":
            setattr(self, name, values)
        else:
            self.register_buffer(name, values, persistent=how == "buffer")
        return lambda s: getattr(s, name).to(kind_of(s))

    def then(self, what, function):
        self.said.append(what)
        self.steps.append(function)

    def forward(self, x):
        for step in self.steps:
            x = step(self, x)
        return x


def kind_of(net):
    return next(net.parameters()).dtype


def number(rng):
    return rng.choice([2.0, 3.0, 0.5, -1.5, 0.1, 1.702, math.sqrt(FEATURES), 1.0, 0.25])


def table_shape(rng, shape):
    """A shape that is repeated to that of a sample."""
    some = [tuple(shape), (1, *shape), tuple(shape[-1:]), (1,), (), (*(1 for _ in shape[:-1]), shape[-1]),
            (shape[0], *(1 for _ in shape[1:])), tuple(shape)]
    return rng.choice(some)


# ---- steps of any shape: what they do, and the function; shape is that of a sample ----

def scale(net, shape):
    c, form = number(net.rng), net.rng.randrange(9)
    return [("x * c", lambda s, x: x * c), ("c * x", lambda s, x: c * x), ("x + c", lambda s, x: x + c),
            ("x - c", lambda s, x: x - c), ("c - x", lambda s, x: c - x), ("x / c", lambda s, x: x / c),
            ("-x", lambda s, x: -x), ("(x + c) * c", lambda s, x: (x + c) * c),
            ("x * c + c", lambda s, x: x * c + c)][form]


def curve(net, shape):
    return net.rng.choice([
        ("relu", lambda s, x: F.relu(x)), ("tanh", lambda s, x: torch.tanh(x)),
        ("sigmoid", lambda s, x: torch.sigmoid(x)), ("gelu", lambda s, x: F.gelu(x)),
        ("gelu tanh", lambda s, x: F.gelu(x, approximate="tanh")), ("silu", lambda s, x: F.silu(x)),
        ("hardswish", lambda s, x: F.hardswish(x)), ("elu", lambda s, x: F.elu(x, 0.7)),
        ("leaky", lambda s, x: F.leaky_relu(x, 0.2)), ("relu6", lambda s, x: F.relu6(x)),
        ("hardsigmoid", lambda s, x: F.hardsigmoid(x)), ("quick gelu", lambda s, x: x * torch.sigmoid(1.702 * x)),
        ("mish", lambda s, x: F.mish(x)), ("softplus", lambda s, x: F.softplus(x)),
        ("selu", lambda s, x: F.selu(x)), ("softsign", lambda s, x: F.softsign(x)),
        ("squared relu", lambda s, x: F.relu(x) ** 2), ("swish of c", lambda s, x: x * torch.sigmoid(0.7 * x + 0.1)),
    ])


def function(net, shape):
    return net.rng.choice([
        ("exp", lambda s, x: torch.exp(x * 0.3)), ("log", lambda s, x: torch.log(x * x + 1)),
        ("sqrt", lambda s, x: torch.sqrt(x * x + 0.5)), ("pow 2", lambda s, x: x.pow(2)),
        ("pow 3", lambda s, x: x ** 3 * 0.2), ("abs", lambda s, x: x.abs()),
        ("clamp", lambda s, x: x.clamp(-0.7, 0.9)), ("rsqrt", lambda s, x: torch.rsqrt(x * x + 1)),
        ("reciprocal", lambda s, x: 1 / (x * x + 1)), ("sin", lambda s, x: torch.sin(x)),
        ("x * x", lambda s, x: x * x), ("erf", lambda s, x: torch.erf(x)),
    ])


def table(net, shape):
    rng = net.rng
    form = rng.choice(["x + p", "p + x", "x * p", "p * x", "x - p", "p - x", "x / p", "add alpha", "x * c + p",
                       "p * c + x", "x * p + p", "x + p * q", "x * (1 + p)", "exp(p) x"])
    p = net.tensor(*table_shape(rng, shape), positive=form == "x / p")
    q = net.tensor(*table_shape(rng, shape)) if form in ("x * p + p", "x + p * q") else None
    c = number(rng)
    if form == "p * c + x" and rng.random() < 0.5:
        c = 3.0
    return form, {
        "x + p": lambda s, x: x + p(s), "p + x": lambda s, x: p(s) + x, "x * p": lambda s, x: x * p(s),
        "p * x": lambda s, x: p(s) * x, "x - p": lambda s, x: x - p(s), "p - x": lambda s, x: p(s) - x,
        "x / p": lambda s, x: x / p(s), "add alpha": lambda s, x: torch.add(x, p(s), alpha=3),
        "x * c + p": lambda s, x: x * c + p(s), "p * c + x": lambda s, x: p(s) * c + x,
        "x * p + p": lambda s, x: x * p(s) + q(s), "x + p * q": lambda s, x: x + p(s) * q(s),
        "x * (1 + p)": lambda s, x: x * (1 + p(s)), "exp(p) x": lambda s, x: p(s).exp() * x,
    }[form]


def around(net, shape):
    """Residual branches and gates, whose inside keeps the shape."""
    rng = net.rng
    what, inside = rng.choice([scale, curve, table, mix_of(shape), mix_of(shape)])(net, shape)
    c = number(rng)
    p = net.tensor(*table_shape(rng, shape))
    form = rng.randrange(7)
    return [(f"x + {what}", lambda s, x: x + inside(s, x)), (f"c x + {what}", lambda s, x: c * x + inside(s, x)),
            (f"x + c {what}", lambda s, x: x + c * inside(s, x)), (f"x - {what}", lambda s, x: x - inside(s, x)),
            (f"x sigmoid {what}", lambda s, x: x * torch.sigmoid(inside(s, x))),
            (f"x + p {what}", lambda s, x: x + p(s) * inside(s, x)),
            (f"x {what} / 2", lambda s, x: x * inside(s, x) / 2)][form]


def dtype(net, shape):
    form = net.rng.randrange(3)
    return [("float()", lambda s, x: x.float() if x.dtype != torch.float64 else x),
            ("double and back", lambda s, x: (x.double() * 1.5).to(x.dtype)),
            ("to dtype of p", lambda s, x: x.to(kind_of(s)))][form]


def norm_rows(net, shape):
    rng, width = net.rng, shape[-1]
    forms = [("layernorm", nn.LayerNorm(width)), ("layernorm without", nn.LayerNorm(width, elementwise_affine=False)),
             ("layernorm no bias", nn.LayerNorm(width, bias=False)), ("rmsnorm", nn.RMSNorm(width, eps=1e-5)),
             ("layernorm of both", nn.LayerNorm(shape))]
    if rng.random() < 0.3:
        weight = net.tensor(width)
        return "norm by hand", lambda s, x: weight(s) * (x - x.mean(-1, keepdim=True)) / torch.sqrt(
            x.var(-1, keepdim=True, unbiased=False) + 1e-5)
    if rng.random() < 0.2:
        return "rms by hand", lambda s, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    what, module = rng.choice(forms)
    l = net.layer(module)
    return what, lambda s, x: l(s)(x)


def linear(net, shape):
    rng, width = net.rng, shape[-1]
    form = rng.randrange(7)
    if form < 3:
        l = net.layer(nn.Linear(width, width, bias=rng.random() < 0.7))
        return "linear", lambda s, x: l(s)(x)
    w = net.tensor(width, width, how=rng.choice(["parameter", "parameter", "buffer"]))
    b = net.tensor(width)
    c = number(rng)
    return [("x @ w", lambda s, x: x @ w(s) * 0.3), ("x @ w.t() + b", lambda s, x: x @ w(s).t() * 0.3 + b(s)),
            ("F.linear", lambda s, x: F.linear(x, w(s), b(s))),
            ("x @ w * c + b", lambda s, x: (x @ w(s)) * c + b(s))][form - 3]


def tied(net, shape):
    l = net.layer(nn.Linear(shape[-1], shape[-1]))
    c = number(net.rng)
    return net.rng.choice([("linear twice", lambda s, x: l(s)(torch.tanh(l(s)(x)))),
                           ("tied transposed", lambda s, x: F.linear(torch.tanh(l(s)(x)), l(s).weight.t())),
                           ("linear twice, scaled", lambda s, x: l(s)(x) * c + l(s)(x * 0.5))])


def halves(net, shape):
    form = net.rng.randrange(6)
    return [("chunk and gate", lambda s, x: torch.cat([a * torch.sigmoid(b) for a, b in [x.chunk(2, -1)]] * 2, -1)),
            ("halves change places", lambda s, x: torch.cat(x.chunk(2, -1)[::-1], -1)),
            ("halves, one negative", lambda s, x: torch.cat([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1)),
            ("halves scaled", lambda s, x: torch.cat([x.chunk(2, -1)[0] * 3, x.chunk(2, -1)[1] + 1], -1)),
            ("mean added", lambda s, x: x + x.mean(-1, keepdim=True)),
            ("max added", lambda s, x: x - x.max(-1, keepdim=True).values * 0.5)][form]


def softmax(net, shape):
    c = number(net.rng)
    return net.rng.choice([("softmax", lambda s, x: torch.softmax(x * c, -1) * 3),
                           ("log_softmax", lambda s, x: torch.log_softmax(x, -1) * 0.3),
                           ("softmax of axis 1", lambda s, x: torch.softmax(x, 1) * 4)])


# ---- positions, features ----

def positions(net, shape):
    rng, (length, width) = net.rng, shape
    form = rng.randrange(6)
    long = net.tensor(length + 3, width)
    other = net.tensor(1, length + 3, width)
    e = net.layer(nn.Embedding(length + 2, width)) if form == 2 else None
    c = number(rng)
    return [("x + p[:t]", lambda s, x: x + long(s)[:x.shape[1]]),
            ("x * c + p[:, :t]", lambda s, x: x * c + other(s)[:, :x.shape[1]]),
            ("x + embedding(arange)", lambda s, x: x + e(s)(torch.arange(length))),
            ("x + p * c", lambda s, x: x + long(s)[:length] * c),
            ("x + arange", lambda s, x: x + torch.arange(length, dtype=x.dtype)[:, None] * 0.1),
            ("x * literal", lambda s, x: x * torch.tensor([1.0, 2.0] * (width // 2)).to(x.dtype))][form]


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attention(net, shape):
    rng, (length, width) = net.rng, shape
    heads, form, c = rng.choice([1, 2, 4]), rng.randrange(7), number(rng)
    qkv = net.layer(nn.Linear(width, 3 * width))
    if form >= 5:
        m = net.layer(nn.MultiheadAttention(width, heads, batch_first=rng.random() < 0.7))
        weights = form == 6
        return f"multihead weights={weights}", lambda s, x: m(s)(x, x, x, need_weights=weights)[0]
    bias = net.tensor(heads, length, length)

    def attend(s, x):
        q, k, v = (heads_of(part, heads) for part in qkv(s)(x).chunk(3, -1))
        if form == 0:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif form == 1:
            y = F.scaled_dot_product_attention(q * c, k, v * c, scale=0.4)
        elif form == 2:
            y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v
        elif form == 3:
            mask = torch.ones(length, length).tril() == 0
            y = torch.softmax((q @ k.transpose(-1, -2) * 0.3).masked_fill(mask, -1e9), -1) @ v
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) * 0.3 + bias(s), -1) @ v
        return y.transpose(1, 2).reshape(x.shape)
    return f"attention {form}, {heads} heads", attend


def product(net, shape):
    l = net.layer(nn.Linear(shape[-1], shape[-1]))
    return net.rng.choice([
        ("x x' x", lambda s, x: x @ x.transpose(1, 2) @ l(s)(x) * 0.05),
        ("x x' / c added", lambda s, x: x + (x @ l(s)(x).transpose(1, 2) / 9) @ x)])


def along(net, shape):
    """A linear layer or a convolution along positions."""
    length, width = shape
    form = net.rng.randrange(4)
    if form == 0:
        l = net.layer(nn.Linear(length, length))
        return "linear along positions", lambda s, x: l(s)(x.transpose(1, 2)).transpose(1, 2)
    conv = net.layer(nn.Conv1d(width, width, 3, padding=1 if form == 1 else 0))
    if form == 1:
        return "conv1d", lambda s, x: conv(s)(x.transpose(1, 2)).transpose(1, 2)
    if form == 2:
        return "causal conv1d", lambda s, x: conv(s)(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
    return "shifted", lambda s, x: x + F.pad(x, (0, 0, 1, 0))[:, :-1]


# ---- images ----

def image(net, shape):
    rng, (channels, height, width) = net.rng, shape
    form = rng.randrange(11)
    conv = nn.Conv2d(channels, channels, 3, padding=1, bias=rng.random() < 0.6,
                     groups=rng.choice([1, 1, channels]))
    if form < 3:
        l = net.layer(conv)
        c = number(rng)
        return ("conv", lambda s, x: l(s)(x)) if form < 2 else ("conv * c + x", lambda s, x: l(s)(x) * c + x)
    if form == 3:
        k, b = net.tensor(channels, 1, 3, 3), net.tensor(channels)
        return "F.conv2d", lambda s, x: F.conv2d(x, k(s), b(s), padding=1, groups=channels)
    if form == 4:
        l = net.layer(nn.BatchNorm2d(channels, affine=rng.random() < 0.7))
        return "batchnorm" if l(net).affine else "batchnorm without", lambda s, x: l(s)(x)
    if form == 5:
        l = net.layer(rng.choice([nn.GroupNorm(2, channels), nn.GroupNorm(2, channels, affine=False),
                                  nn.InstanceNorm2d(channels), nn.InstanceNorm2d(channels, affine=True)]))
        return type(l(net)).__name__, lambda s, x: l(s)(x)
    if form == 6:
        p = net.tensor(channels, 1, 1)
        return "channel scale", lambda s, x: x * p(s)
    if form == 7:
        l = net.layer(nn.LayerNorm(channels))
        return "layernorm of channels", lambda s, x: l(s)(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    if form == 8:
        l, m = net.layer(nn.Conv2d(channels, 2, 1)), net.layer(nn.Conv2d(2, channels, 1))
        return "squeeze", lambda s, x: x * torch.sigmoid(m(s)(F.relu(l(s)(x.mean((2, 3), keepdim=True)))))
    if form == 9:
        return "maxpool 3", lambda s, x: F.max_pool2d(x, 3, 1, 1)
    return "avgpool 3", lambda s, x: F.avg_pool2d(x, 3, 1, 1)


def mix_of(shape):
    return {3: image, 2: lambda net, shape: net.rng.choice([norm_rows, linear, along])(net, shape),
            1: lambda net, shape: net.rng.choice([norm_rows, linear])(net, shape)}[len(shape)]


ANY = [scale, scale, table, table, table, curve, curve, around, around, function, dtype]
STEPS = {1: ANY + [norm_rows, linear, linear, tied, halves, softmax],
         2: ANY + [norm_rows, linear, tied, halves, softmax, positions, positions, attention, attention, product, along],
         3: ANY + [image, image, image, image]}


def head(net, shape):
    rng = net.rng
    if len(shape) == 3:
        l = net.layer(nn.Linear(shape[0], CLASSES), "head")
        if rng.random() < 0.4:
            m = net.layer(nn.Linear(math.prod(shape), CLASSES), "head")
            net.then("flatten, linear", lambda s, x: m(s)(x.flatten(1)))
        else:
            net.then("mean, linear", lambda s, x: l(s)(x.mean((2, 3))))
    else:
        l = net.layer(nn.Linear(shape[-1], CLASSES), "head")
        if len(shape) == 2 and rng.random() < 0.4:
            net.then("mean, linear", lambda s, x: l(s)(x.mean(1)))
        elif len(shape) == 2 and rng.random() < 0.3:
            net.then("first, linear", lambda s, x: l(s)(x[:, 0]))
        else:
            net.then("linear", lambda s, x: l(s)(x))
    last = rng.random()
    c = number(rng)
    if last < 0.15:
        net.then("logits * c", lambda s, x: x * c)
    elif last < 0.25:
        p = net.tensor(positive=True)
        net.then("logits * p", lambda s, x: x * p(s))
    elif last < 0.3:
        net.then("log_softmax", lambda s, x: F.log_softmax(x, -1))
    elif last < 0.35:
        p = net.tensor(CLASSES)
        net.then("logits + p", lambda s, x: x + p(s))


def draw(seed):
    """A module, and its input."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    net = Net(rng)
    begin = rng.choice(["tokens", "rows", "rows", "vector", "image", "image"])
    if begin == "tokens":
        e, c = net.layer(nn.Embedding(TOKENS, FEATURES), "e"), number(rng)
        x, shape = torch.randint(TOKENS, (BATCH, PLACES)), (PLACES, FEATURES)
        net.then("embedding * c", lambda s, x: e(s)(x) * c) if rng.random() < 0.5 else \
            net.then("embedding", lambda s, x: e(s)(x))
    else:
        shape = {"rows": (PLACES, FEATURES), "vector": (FEATURES,), "image": (WIDTH, SIDE, SIDE)}[begin]
        x = torch.randn(BATCH, *shape).half().float()
    net.said.insert(0, begin)
    for _ in range(rng.randrange(1, 5)):
        net.then(*rng.choice(STEPS[len(shape)])(net, shape))
    head(net, shape)
    with torch.no_grad():
        for values in net.parameters():
            values.add_(0.02 * torch.randn_like(values))
        for name, values in net.named_buffers():
            if "running_mean" in name:
                values.add_(0.1 * torch.randn_like(values))
    return net.eval(), x


def doubled(x):
    return x.double() if x.is_floating_point() else x


def as_double(net):
    """In place: attributes that are no buffers, too."""
    return net.double()


def loss_of(net, x, labels):
    y = net(doubled(x))
    return F.cross_entropy(y.flatten(0, -2), labels.flatten())


def expected(seed):
    """The loss of one update, and the parameters before and behind it."""
    net, x = draw(seed)
    net = as_double(net)
    with torch.no_grad():
        labels = torch.randint(CLASSES, net(doubled(x)).shape[:-1])
    before = {name: values.clone() for name, values in net.state_dict().items()}
    loss = loss_of(net.train(), x, labels)
    loss.backward()
    most = max((values.grad.abs().max().item() for values in net.parameters() if values.grad is not None),
               default=0.0)
    rate = float(f"{0.05 / max(most, 1e-3):.2g}")
    with torch.no_grad():
        for values in net.parameters():
            if values.grad is not None:
                values -= rate * values.grad
    return {"loss": loss.item(), "x": x, "labels": labels, "rate": rate, "before": before, "after": net.state_dict(),
            "used": {name for name, values in net.named_parameters() if values.grad is not None}}


def run(command, folder, **how):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **how)


def reason(text):
    """A sentence without what differs from module to module."""
    text = text.strip().split("\n")[-1]
    text = re.sub(r"^pd-model: \S+?: ", "", text)
    text = re.sub(r"^\S+ \((\w+)[^)]*\)", r"(\1)", text)
    text = re.sub(r"\b[a-z_]+\d+(_\d+)?\b|\bval_\d+\b", "N", text)
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "#", text)[:150]


class Wrong(Exception):
    pass


def ran(command, folder):
    done = run(command, folder)
    if done.returncode != 0:
        raise Wrong(f"{command[0]}: status {done.returncode}: {done.stderr.strip()[:300]}")
    return done.stdout


def compare(want, found):
    """The farthest parameter from where one update brings it, over how far the update moves any of its tensor."""
    worst, where = 0.0, None
    for name, after in want["after"].items():
        if name.endswith("num_batches_tracked"):
            continue
        if name not in found:
            if name in want["used"]:
                raise Wrong(f"{name} is not exported")
            continue
        moved = (after - want["before"][name]).abs().max().item()
        off = (found[name].double() - after).abs().max().item()
        size = after.abs().max().item()
        off = max(0.0, off - 4e-7 * max(size, 1e-3)) / max(moved, 1e-3)
        if not off <= worst:
            worst, where = off, name
    surplus = set(found) - set(want["after"])
    if surplus:
        raise Wrong(f"exported, too: {sorted(surplus)}")
    return worst, where


def judge(seed, folder):
    """None, or why the module was refused.  Wrong: what is wrong."""
    want = expected(seed)
    if not math.isfinite(want["loss"]) or not all(values.isfinite().all() for values in want["after"].values()):
        return "(not finite in PyTorch)"
    net, x = draw(seed)
    try:
        torch.onnx.export(net, (x,), str(folder / "net.onnx"), dynamo=True, optimize=False, opset_version=23,
                          verbose=False, external_data=False)
    except Exception as error:                  # what PyTorch cannot write is not ours
        return "(torch.onnx) " + reason(type(error).__name__)
    done = run(["pd-model", "net.onnx"], folder)
    if done.returncode == 2:
        return reason(done.stderr)
    if done.returncode != 0:
        raise Wrong(f"pd-model: status {done.returncode}: {done.stderr}")
    (folder / "model.json").write_text(done.stdout, encoding="utf-8")
    for part in ("train", "test"):
        (folder / "data" / part).mkdir(parents=True)
        numpy.save(folder / "data" / part / "x.npy",
                   x.numpy().astype(numpy.float16 if x.is_floating_point() else numpy.int32))
        numpy.save(folder / "data" / part / "labels.npy", want["labels"].numpy().astype(numpy.int32))
    (folder / "profile.json").write_text(ran(["pd-profile", "--iterations=1", "--no-link", "--threads=1",
                                              f"--batch-size={BATCH}", "model.json"], folder), encoding="utf-8")
    (folder / "plan.json").write_text(ran(["pd-plan", "--gpus=1", "--weights=flush", "--microbatches=1",
                                           "profile.json"], folder), encoding="utf-8")
    out = ran(["pd-run", "--threads=1", "--data=data", "--init=net.onnx", f"--lr={want['rate']}", "--momentum=0",
               "--minibatches=1", "--no-evaluate", "--checkpoint=ck", "plan.json"], folder)
    loss = [event["loss"] for event in map(json.loads, out.splitlines()) if event.get("event") == "progress"][-1]
    if not abs(loss - want["loss"]) <= 2e-5 * max(1, abs(want["loss"])):
        raise Wrong(f"loss {loss:.7f}, PyTorch {want['loss']:.7f}")
    ran(["pd-export", "--dtype=f32", "-o", "exported", "ck"], folder)
    found = {}
    for file in sorted((folder / "exported").glob("*.safetensors")):
        found.update(load_file(file))
    worst, where = compare(want, found)
    if worst > 1e-3:
        raise Wrong(f"{where} is off by {worst:.1e} of the update")
    return None


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else "wrong")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    taken, refused, wrong = 0, collections.Counter(), []
    examples = {}
    for seed in range(first, first + count):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="pd-random-"))
        what = " | ".join(draw(seed)[0].said)
        try:
            why = judge(seed, folder)
        except Wrong as error:
            wrong.append(seed)
            shutil.copytree(folder, kept / str(seed), dirs_exist_ok=True)
            print(f"{seed}: WRONG: {error}\n    {what}", flush=True)
        else:
            print(f"{seed}: {why or 'taken'}", flush=True)
            taken += why is None
            if why:
                refused[why] += 1
                examples.setdefault(why, (seed, what))
        shutil.rmtree(folder)
    print(f"{count} modules: {taken} taken, {sum(refused.values())} refused, {len(wrong)} wrong"
          f"{': ' + ', '.join(map(str, wrong)) if wrong else ''}")
    for why, times in refused.most_common():
        seed, what = examples[why]
        print(f"{times:5} {why}\n      such as {seed}: {what}")
    return 4 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
