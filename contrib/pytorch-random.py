#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training of random networks of images with PyTorch in float64, also with numbers that are none.

    python3 contrib/pytorch-random.py BUILD [FIRST [COUNT]]

BUILD is a build; FIRST (1) is the number of the first case, COUNT (100) how many there are; a number always
makes the same case.  A case has layers of most kinds, some of them frozen, losses along the way, so that several stages have
some, one to three stages, and one to three epochs of one minibatch.  In most there is a NaN or infinity in the data.
Weights and running statistics must be as far off as rounding at most, and must not be finite where PyTorch's
are not, and nowhere else; so must be the losses of an evaluation.  In f16 all numbers are finite, since an
overflow there leaves out the update.  It needs PyTorch.  For each wrong case it prints a folder that has all of
it.  The exit status is 1 if any was wrong.
"""
import importlib
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
judge = importlib.import_module("pytorch-judge")

BAD = [math.nan, math.inf, -math.inf, math.nan, None]
TOLERANCE = {"f32": 1e-4, "bf16": 0.15, "f16": 0.03}  # of the largest number of a tensor
CURVES = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": functional.silu,
          "gelu": functional.gelu}


class Network:
    """A document, and the same in PyTorch: `steps` are names, inputs and functions."""

    def __init__(self, draw, batch):
        self.draw, self.batch = draw, batch
        channels, size = draw.choice([1, 2, 3]), draw.choice([6, 8, 9])
        self.shape, self.image = [channels, size, size], [channels, size, size]
        self.layers, self.steps, self.modules, self.losses = [], [], {}, []
        self.last = "x"
        for i in range(draw.randint(3, 7)):
            self.grow(f"l{i}")
            if draw.random() < 0.3:
                self.add_loss(f"{i}", mse=draw.random() < 0.35)
        self.add_loss("end", mse=False)

    def add(self, name, kind, inputs, how, **attributes):
        # some layers learn nothing, but for those that make the losses' inputs
        if isinstance(how, nn.Module) and name[0] != "h" and self.draw.random() < 0.2:
            attributes["frozen"] = True
            how.requires_grad_(False)
        self.layers.append({"name": name, "kind": kind, "inputs": inputs, **attributes})
        if isinstance(how, nn.Module):
            self.modules[name] = how.double()
        self.steps.append((name, inputs, how))

    def follow(self, name, kind, how, then=None, **attributes):
        """Adds a layer behind the last; its output has the shape `then`, or that of its input."""
        self.add(name, kind, [self.last], how, **attributes)
        self.last, self.shape = name, then or self.shape

    def flat(self, name):
        if len(self.shape) == 1:
            return self.last
        self.add(name, "flatten", [self.last], lambda x: x.flatten(1))
        return name

    def add_loss(self, name, mse):
        flat = self.flat("f" + name)
        self.add("h" + name, "linear", [flat], nn.Linear(math.prod(self.shape), 3), out_features=3)
        if mse:
            self.add("o" + name, "mse", ["h" + name], lambda x: (x * x).mean())
        else:
            self.add("o" + name, "softmax_cross_entropy", ["h" + name, "y"], functional.cross_entropy)
        self.losses.append("o" + name)

    def grow(self, name):
        if len(self.shape) == 1:
            kind = self.draw.choice([*CURVES, "linear", "layernorm"])
            if kind == "linear":
                out = self.draw.choice([3, 8])
                self.follow(name, kind, nn.Linear(self.shape[0], out), [out], out_features=out)
            elif kind == "layernorm":
                self.follow(name, kind, nn.LayerNorm(self.shape[0]))
            else:
                self.follow(name, kind, CURVES[kind])
            return
        kind = self.draw.choice([*CURVES, "conv2d", "conv2d", "conv_transpose2d", "upsample", "batchnorm2d",
                                 "maxpool2d", "avgpool2d", "adaptive_avgpool2d", "residual", "flatten",
                                 "groupnorm", "prelu", "conv1d"])
        channels, size, _ = self.shape
        if size < 3 and "pool" in kind:
            kind = "relu"
        if size < 2:    # weights over padding alone: the gradient is 0, in PyTorch a NaN if there is one
            kind = "flatten"
        if kind == "conv2d":
            out = self.draw.choice([2, 4, 16])
            self.follow(name, kind, nn.Conv2d(channels, out, 3, padding=1), [out, size, size],
                        out_channels=out, kernel=3, padding=1)
        elif kind == "conv_transpose2d":
            out, kernel, stride = self.draw.choice([2, 6, 16]), self.draw.choice([2, 3]), self.draw.choice([1, 2])
            how = {"stride": stride, "padding": self.draw.choice([0, 1]), "dilation": self.draw.choice([1, 2]),
                   "output_padding": self.draw.choice([0, stride - 1]), "bias": self.draw.random() < 0.8,
                   "groups": self.draw.choice([1, math.gcd(channels, out)])}
            large = (size - 1) * stride + how["dilation"] * (kernel - 1) + 1 + how["output_padding"] - \
                2 * how["padding"]
            self.follow(name, kind, nn.ConvTranspose2d(channels, out, kernel, **how), [out, large, large],
                        out_channels=out, kernel=kernel, **how)
        elif kind == "upsample":
            mode, how = self.draw.choice(["nearest", "bilinear"]), {}
            if self.draw.random() < 0.5:
                how["scale_factor"] = self.draw.choice([2, 1.5, 0.8, 1.1])
                out = int(size * how["scale_factor"])
            else:
                how["size"] = out = self.draw.choice([4, size, size + 3])
            if mode == "bilinear":
                how["align_corners"] = self.draw.random() < 0.5
            self.follow(name, kind, nn.Upsample(mode=mode, **how), [channels, out, out], mode=mode, **how)
        elif kind == "batchnorm2d":
            self.follow(name, kind, nn.BatchNorm2d(channels))
        elif kind == "groupnorm":
            groups = self.draw.choice([g for g in range(1, channels + 1) if channels % g == 0])
            affine = self.draw.random() < 0.8
            self.follow(name, kind, nn.GroupNorm(groups, channels, affine=affine), num_groups=groups,
                        affine=affine)
        elif kind == "prelu":
            count = self.draw.choice([1, channels])
            self.follow(name, kind, nn.PReLU(count), num_parameters=count)
        elif kind == "conv1d":
            self.add_lines(name, channels, size)
        elif kind == "maxpool2d":
            kernel, stride, padding = self.draw.choice([(2, 2, 0), (3, 2, 1), (3, 1, 1)])
            out = (size + 2 * padding - kernel) // stride + 1
            self.follow(name, kind, lambda x: functional.max_pool2d(x, kernel, stride, padding),
                        [channels, out, out], kernel=kernel, stride=stride, padding=padding)
        elif kind == "avgpool2d":
            self.follow(name, kind, lambda x: functional.avg_pool2d(x, 2, 1),
                        [channels, size - 1, size - 1], kernel=2, stride=1)
        elif kind == "adaptive_avgpool2d":
            self.follow(name, kind, lambda x: functional.adaptive_avg_pool2d(x, 2), [channels, 2, 2],
                        output_size=2)
        elif kind == "residual":
            self.follow(name + "r", "relu", torch.relu)
            self.add(name + "c", "conv2d", [self.last], nn.Conv2d(channels, channels, 1),
                     out_channels=channels, kernel=1)
            self.add(name, "add", [name + "c", self.last], lambda a, b: a + b)
            self.last = name
        elif kind == "flatten":
            self.last, self.shape = self.flat(name), [math.prod(self.shape)]
        else:
            self.follow(name, kind, CURVES[kind])

    def add_lines(self, name, channels, size):
        """A conv1d of all places of an image, which it gives back as an image."""
        kernel, padding = self.draw.choice([(3, 1), (1, 0), (5, 2)])
        groups = self.draw.choice([1, channels])
        lines = nn.Conv1d(channels, 2 * channels, kernel, padding=padding, groups=groups)
        self.follow(name + "l", "reshape", lambda x: x.flatten(2), [channels, size * size],
                    shape=[channels, size * size])
        self.follow(name + "c", "conv1d", lines, [2 * channels, size * size], out_channels=2 * channels,
                    kernel=kernel, padding=padding, groups=groups)
        self.follow(name, "reshape", lambda x: x.unflatten(2, (size, size)), [2 * channels, size, size],
                    shape=[2 * channels, size, size])

    def document(self):
        inputs = [{"name": "x", "dtype": "f32", "shape": self.image},
                  {"name": "y", "dtype": "i32", "shape": []}]
        return {"format": "pd-model", "version": 1, "name": "random", "inputs": inputs,
                "layers": self.layers}

    def numbers(self):
        return {f"{name}.{key}": values for name, module in self.modules.items()
                for key, values in module.state_dict().items() if "num_batches" not in key}

    def forward(self, images, labels):
        values = {"x": images.double(), "y": labels.long()}
        for name, inputs, how in self.steps:
            values[name] = how(*(values[i] for i in inputs))
        return [values[name] for name in self.losses]

    def train(self, data, epochs):
        parameters = [p for module in self.modules.values() for p in module.parameters()
                      if p.requires_grad]
        sgd = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
        for _ in range(epochs):
            sgd.zero_grad()
            sum(self.forward(*data)).backward()
            sgd.step()

    def evaluate(self, data):
        for module in self.modules.values():
            module.eval()
        with torch.no_grad():
            return {name: loss.item() for name, loss in zip(self.losses, self.forward(*data))}


def run(build, folder, program, *arguments, into=None):
    done = subprocess.run([pathlib.Path(build).resolve() / "bin" / program, *arguments], cwd=folder,
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{program}: {done.returncode}: {done.stderr.strip()}")
    if into:
        (folder / into).write_text(done.stdout)
    return done.stdout


def compare(found, expected, tolerance, what):
    if not torch.equal(found.isfinite(), expected.isfinite()):
        return [f"{what}: {int((~found.isfinite()).sum())} of {found.numel()} are not finite, expected "
                f"{int((~expected.isfinite()).sum())}"]
    good = expected.isfinite()
    off = (found - expected)[good].abs().max() if good.any() else torch.tensor(0.0)
    scale = max(1e-3, expected[good].abs().max().item()) if good.any() else 1
    return [f"{what}: off by {off / scale:.2g}"] if off > tolerance * scale else []


def case(build, number, folder):
    draw = random.Random(number)
    torch.manual_seed(number)
    batch, epochs, stages = draw.choice([2, 3, 4]), draw.choice([1, 2, 3]), draw.choice([1, 2, 3])
    dtype, bad = draw.choice(["f32", "f32", "bf16", "f16"]), draw.choice(BAD)
    network = Network(draw, batch)
    (folder / "m.json").write_text(json.dumps(network.document()))
    sets = {}
    for part, samples in (("train", batch), ("test", 5)):
        images, labels = torch.randn(samples, *network.image), torch.randint(0, 3, (samples,)).int()
        if part == "train" and bad is not None and dtype != "f16":
            images.view(-1)[draw.randrange(images.numel())] = bad
        (folder / "data" / part).mkdir(parents=True)
        judge.save_npy(folder / "data" / part / "x.npy", images)
        judge.save_npy(folder / "data" / part / "y.npy", labels)
        sets[part] = (images, labels)
    judge.save_safetensors(folder / "init.safetensors", network.numbers())
    init = judge.load_safetensors(folder / "init.safetensors")
    for name, module in network.modules.items():
        module.load_state_dict({key: init.get(f"{name}.{key}", values)
                                for key, values in module.state_dict().items()})
    run(build, folder, "pd-profile", "--device=cpu", "--threads=1", "--no-link", "--iterations=1",
        f"--batch-size={batch}", f"--dtype={dtype}", "m.json", into="profile.json")
    run(build, folder, "pd-plan", f"--topology={stages}@10GB/s", "--straight", "--weights=flush",
        "--microbatches=1", "profile.json", into="plan.json")
    report = run(build, folder, "pd-run", "--device=cpu", "--threads=1", "--data=data",
                 "--lr=0.05", "--momentum=0.9", f"--epochs={epochs}", "--init=init.safetensors",
                 "--checkpoint=ck", *["--loss-scale=1"][:dtype == "f16"], "plan.json")
    network.train(sets["train"], epochs)
    found = {}
    for file in (folder / "ck" / f"step-{epochs:012}").glob("stage-*.safetensors"):
        found.update(judge.load_safetensors(file))
    wrong = []
    for name, values in network.numbers().items():
        wrong += compare(found[name], values, TOLERANCE[dtype], name)
    last = json.loads(report.splitlines()[-1])["evaluation"]
    for name, loss in network.evaluate(sets["test"]).items():
        value = last["losses"][name]["loss"] if "losses" in last else last["loss"]
        value = math.nan if value is None else value
        wrong += compare(torch.tensor([value]), torch.tensor([loss]), TOLERANCE[dtype], name)
    return wrong


def main():
    build = sys.argv[1]
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    bad = 0
    for number in range(first, first + count):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"case-{number}-"))
        try:
            wrong = case(build, number, folder)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            wrong = [str(error)]
        if wrong:
            bad += 1
            print(f"case {number}, {folder}:", *wrong, sep="\n    ", flush=True)
        else:
            shutil.rmtree(folder)
    print(f"{count - bad} right, {bad} wrong")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
