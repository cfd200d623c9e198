# SPDX-License-Identifier: Apache-2.0
"""cpu-vs-torch.py MODEL.json BATCH-SIZE STEPS f32|bf16 THREADS ROUNDS SPEED: a line of
cpu-vs-torch.sh's table.  SPEED is test/bench/speed."""
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F


TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
WARM_UP = 2


def pair(value):
    return value if isinstance(value, list) else [value, value]


class Net(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.parts = torch.nn.ModuleDict()
        shapes = {i["name"]: [1] + i["shape"] for i in model["inputs"]}
        with torch.no_grad():
            values = {n: torch.zeros(s) for n, s in shapes.items()}
            for layer in model["layers"][:-1]:
                part = self.make(layer, values[layer["inputs"][0]].shape[1:])
                if part is not None:
                    self.parts[layer["name"].replace(".", "_")] = part.eval()
                values[layer["name"]] = self.apply_layer(layer, values)
        self.train()

    def make(self, layer, shape):
        kind = layer["kind"]
        if kind == "conv2d":
            return torch.nn.Conv2d(shape[0], layer["out_channels"], pair(layer["kernel"]),
                                   pair(layer.get("stride", 1)), pair(layer.get("padding", 0)),
                                   pair(layer.get("dilation", 1)), layer.get("groups", 1),
                                   layer.get("bias", True))
        if kind == "linear":
            return torch.nn.Linear(shape[0], layer["out_features"], layer.get("bias", True))
        if kind == "batchnorm2d":
            return torch.nn.BatchNorm2d(shape[0])
        if kind == "maxpool2d":
            return torch.nn.MaxPool2d(pair(layer["kernel"]),
                                      pair(layer.get("stride", layer["kernel"])),
                                      pair(layer.get("padding", 0)))
        if kind == "adaptive_avgpool2d":
            return torch.nn.AdaptiveAvgPool2d(pair(layer["output_size"]))
        if kind == "relu":
            return torch.nn.ReLU(inplace=True)
        if kind in ("tanh", "sigmoid"):
            return torch.nn.Tanh() if kind == "tanh" else torch.nn.Sigmoid()
        if kind == "avgpool2d":
            return torch.nn.AvgPool2d(pair(layer["kernel"]),
                                      pair(layer.get("stride", layer["kernel"])),
                                      pair(layer.get("padding", 0)),
                                      count_include_pad=layer.get("count_include_pad", True))
        if kind == "dropout":
            return torch.nn.Dropout(layer.get("p", 0.5))
        if kind == "flatten":
            return torch.nn.Flatten()
        if kind == "add":
            return None
        sys.exit(f"{layer['name']}: {kind} is not known here")

    def apply_layer(self, layer, values):
        inputs = [values[name] for name in layer["inputs"]]
        return sum(inputs[1:], inputs[0]) if layer["kind"] == "add" \
            else self.parts[layer["name"].replace(".", "_")](inputs[0])

    def forward(self, x):
        values = {self.model["inputs"][0]["name"]: x}
        for layer in self.model["layers"][:-1]:
            out = values[layer["name"]] = self.apply_layer(layer, values)
        return out


class Way:
    """PyTorch's training steps of a net, run in one way; what they took, in milliseconds."""
    def __init__(self, net, run, dtype, x, y):
        self.net, self.run, self.dtype, self.x, self.y = net, run, dtype, x, y
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9,
                                         weight_decay=1e-4)
        self.times = []

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            loss = F.cross_entropy(self.run(self.x.clone()).float(), self.y)
        loss.backward()
        self.optimizer.step()

    def round(self, steps):
        for step in range(-WARM_UP, steps):
            start, start_cpu = time.perf_counter(), time.process_time()
            self.step()
            taken = time.process_time() - start_cpu, time.perf_counter() - start
            if step >= 0:
                self.times.append([1e3 * t for t in taken])


class Ours:
    """The same of test/bench/speed, which prints a line per step and warms up itself."""
    def __init__(self, command):
        self.command = command
        self.times = []

    def round(self, steps):
        out = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True).stdout
        self.times += [[float(t) for t in line.split()] for line in out.splitlines()[-steps:]]


def medians(way):
    return [statistics.median(column) for column in zip(*way.times)]


def compare(model, batch, name, ways, steps, rounds):
    """Measures "ours", "eager" and "compiled" in turn and prints the table's line."""
    for number in range(rounds):
        for which, way in ways.items():
            print(f"\r{model} {name}: round {number + 1} of {rounds}, {which} \033[K",
                  end="", file=sys.stderr, flush=True)
            way.round(steps)
    print("\r\033[K", end="", file=sys.stderr)
    taken = {which: medians(way) for which, way in ways.items()}
    best = [min(pair) for pair in zip(taken["eager"], taken["compiled"])]
    pairs = [f"{t[0]:9.2f} {t[1]:9.2f}" for t in taken.values()]
    print(f"{model:12} {batch:>5} {name:4}  " + " ".join(f"{p:26}" for p in pairs) +
          f" {best[0] / taken['ours'][0]:.2f} {best[1] / taken['ours'][1]:.2f}", flush=True)


def main():
    file, batch, steps, name, threads, rounds, speed = sys.argv[1:]
    model = json.load(open(file))
    torch.set_num_threads(int(threads))
    net = Net(model).to(memory_format=torch.channels_last)
    x = torch.rand([int(batch)] + model["inputs"][0]["shape"]) * 2 - 1
    x = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
    y = torch.arange(int(batch)) % 10
    ways = {
        "ours": Ours([speed, file, batch, steps, "cpu", threads, name]),
        "eager": Way(net, net, TYPES[name], x, y),
        "compiled": Way(net, torch.compile(net), TYPES[name], x, y),
    }
    compare(model["name"], batch, name, ways, int(steps), int(rounds))


if __name__ == "__main__":
    main()
