# SPDX-License-Identifier: Apache-2.0
"""cpu-vs-torch.py MODEL.json BATCH-SIZE STEPS [THREADS]: samples per second of training steps of a
pd-model in PyTorch, eager, on the CPU; the median over the steps after two that warm up.  Then
the same per second of processor time."""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F


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


def main():
    model = json.load(open(sys.argv[1]))
    batch, steps = int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    net = Net(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x = torch.rand([batch] + model["inputs"][0]["shape"]) * 2 - 1
    y = torch.arange(batch) % 10
    times, cpu_times = [], []
    for step in range(-2, steps):
        start, start_cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x.clone()), y).backward()
        optimizer.step()
        if step >= 0:
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - start_cpu)
    print(f"{batch / statistics.median(times):.2f} {batch / statistics.median(cpu_times):.2f}")


if __name__ == "__main__":
    main()
